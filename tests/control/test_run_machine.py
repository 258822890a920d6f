"""Any sequence of commands, answers and events leaves a run in a state that makes sense.

A controller that judges by a table of its own answers what comes; `Model` says, in other words than
the fold, what the run must be like then.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rookery.config.live import effective, live_values
from rookery.config.reading import build
from rookery.control.home import content
from rookery.control.run_state import ALLOWED, RunState, apply, why_not
from rookery.envs.registry import describe
from rookery.messages import (
    JOINED_FROM,
    CheckpointDamaged,
    CheckpointSaved,
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    Evaluate,
    Event,
    JobDone,
    LabelRun,
    PauseRun,
    PlayMatch,
    ResumeRun,
    RunEnded,
    RunOwned,
    SaveCheckpoint,
    ScaleActors,
    ScaleLearner,
    SetHyperparameters,
    SetSeatMap,
    StartRun,
    StopRun,
    WorkerExited,
    WorkerFailed,
    WorkerStarted,
    WorkerStarting,
    decode_json,
    encode_json,
)

RUN = "r"
MAX_ACTORS = 4
ASKED = {
    "environment": {"id": "CartPole-v1"},
    "actors": {"max_count": MAX_ACTORS},
    "policies": {"a": {}, "b.1": {"algorithm": {"kind": "impala"}}},
}
CONFIGS = {
    "local": build(ASKED),
    "inline": build(ASKED, {"launcher": "inline"}),
    "memory": build(ASKED, {"launcher": "inline", "bus": {"kind": "memory"}}),
}
SPEC = describe("CartPole-v1")
ENDS = ("solved", "finished", "limited", "stopped", "failed")

# what a run should be like after a command, by what it should be like before; else it is rejected
EVERYWHERE = {"stopped": "stopped", "running": "running", "paused": "paused"}
TO_RUNNING = dict.fromkeys(EVERYWHERE, "running")
NEXT: dict[type, dict[str, str]] = {
    CreateRun: {},
    StartRun: TO_RUNNING,
    ResumeRun: TO_RUNNING,
    PauseRun: {"running": "paused", "paused": "paused"},
    StopRun: dict.fromkeys(EVERYWHERE, "stopped"),
    DeleteRun: {"stopped": "deleted"},
    SaveCheckpoint: {"running": "running", "paused": "paused"},
    ScaleActors: EVERYWHERE,
    ScaleLearner: EVERYWHERE,
    SetHyperparameters: EVERYWHERE,
    SetSeatMap: EVERYWHERE,
    LabelRun: EVERYWHERE,
    Evaluate: EVERYWHERE,
    PlayMatch: EVERYWHERE,
}
IMPOSSIBLE: dict[str, set[type]] = {"local": set(), "inline": {ScaleActors, ScaleLearner}}
IMPOSSIBLE["memory"] = IMPOSSIBLE["inline"] | {
    PauseRun,
    SetHyperparameters,
    SetSeatMap,
    SaveCheckpoint,
}
GOOD_VALUES: list[dict[str, float]] = [
    {"algorithm.learning_rate": 0.1},
    {"algorithm.learning_rate": 0.2, "policies.a.algorithm.learning_rate": 0.3},
    {"policies.a.algorithm.learning_rate": 0.4},
    {"policies.b.1.algorithm.learning_rate": 0.5, "algorithm.learning_rate": 0.6},
    {"policies.b.1.algorithm.rho_clip": 2.0},
    {"algorithm.clip": 0.1, "algorithm.gamma": 0.9},
]
BAD_VALUES: list[dict[str, float]] = [
    {"algorithm.learning_rate": 0.0},
    {"algorithm.gamma": 1.5, "algorithm.clip": 0.1},
    {"policies.b.1.algorithm.clip": 0.1},
    {"algorithm.epochs": 2.0},
    {"nothing": 1.0},
]


class Model:
    """What a run must be like, told in the plainest way."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.desired = "stopped"
        self.going = False  # asked for, and not ended
        self.begun = False  # somebody of its own works for it
        self.last = "created"  # or how it ended
        self.lives: dict[tuple[str, int], tuple[int, bool]] = {}  # incarnation, whether it runs
        self.actors = 1
        self.learners = 1
        self.values = live_values(CONFIGS[kind])
        self.seats: tuple[int, Any] = (0, None)
        self.checkpoints = 0
        self.jobs: set[str] = set()

    @property
    def status(self) -> str:
        if self.desired in ("deleted", "paused"):
            return self.desired
        if not self.going:
            return self.last
        return "running" if self.begun else "queued"

    def takes(self, command: Command) -> bool:
        if self.desired not in NEXT[type(command)] or type(command) in IMPOSSIBLE[self.kind]:
            return False
        if isinstance(command, ScaleActors):
            return command.count <= MAX_ACTORS
        return not isinstance(command, SetHyperparameters) or command.values in GOOD_VALUES

    def carry_out(self, command: Command) -> None:
        before, self.desired = self.desired, NEXT[type(command)][self.desired]
        at_work = any(runs and index < JOINED_FROM for (_, index), (_, runs) in self.lives.items())
        match command:
            case StartRun() | ResumeRun() if before != "running":
                self.going, self.begun = True, self.going and at_work
            case StopRun() if before == "paused":
                self.begun = at_work
            case ScaleActors():
                self.actors = command.count
            case ScaleLearner():
                self.learners = command.count
            case SetSeatMap():
                self.seats = (self.seats[0] + 1, command.seats)
            case SaveCheckpoint():
                self.checkpoints += 1
            case Evaluate() | PlayMatch():
                self.jobs.add(command.id)
            case DeleteRun():
                self.going = False
                self.jobs.clear()
            case SetHyperparameters():
                self._set(command.values)

    def _set(self, values: dict[str, float]) -> None:
        for key in sorted(values):  # `algorithm...` comes before `policies...`
            for known in self.values:
                if known == key or (key.startswith("algorithm.") and known.endswith("." + key)):
                    self.values[known] = values[key]

    def happens(self, event: Event) -> None:
        match event:
            case RunEnded(status=status) if self.going and status in ENDS:
                if status != "stopped" or self.desired == "stopped":
                    self.desired, self.going, self.last = "stopped", False, status
            case RunOwned(again=False):
                self.lives = {who: (life, False) for who, (life, _) in self.lives.items()}
            case JobDone():
                self.jobs.discard(event.command)
            case WorkerStarting() | WorkerStarted() | WorkerFailed() | WorkerExited():
                self._works(event)

    def _works(self, event: WorkerStarting | WorkerStarted | WorkerFailed | WorkerExited) -> None:
        if isinstance(event, WorkerStarting | WorkerStarted) and event.index < JOINED_FROM:
            self.begun |= self.desired != "paused"
        who = (event.kind, event.index)
        life, runs = self.lives.get(who, (event.incarnation, False))
        if event.incarnation < life:
            return
        match event:
            case WorkerStarting():
                life = event.incarnation
            case WorkerStarted():
                runs = True
            case WorkerExited():
                runs = False
        self.lives[who] = (life, runs)


Fields = dict[str, Any]  # of a command, with its type as `kind`
steering: st.SearchStrategy[Fields] = st.sampled_from(
    [{"kind": kind} for kind in (StartRun, PauseRun, ResumeRun, StopRun)]
)
changes: st.SearchStrategy[Fields] = st.one_of(
    st.sampled_from([{"kind": SaveCheckpoint}, {"kind": Evaluate, "episodes": 5}]),
    st.sampled_from(["", "a"]).map(lambda name: {"kind": LabelRun, "name": name, "tags": ["b"]}),
    st.just({"kind": PlayMatch, "a": "main", "b": "script:random"}),
    st.integers(0, MAX_ACTORS + 2).map(lambda count: {"kind": ScaleActors, "count": count}),
    st.integers(0, 1).map(lambda count: {"kind": ScaleLearner, "count": count}),
    st.sampled_from(GOOD_VALUES).map(lambda v: {"kind": SetHyperparameters, "values": v}),
    st.sampled_from(BAD_VALUES).map(lambda v: {"kind": SetHyperparameters, "values": v}),
    st.sampled_from(["main", "script:random"]).map(
        lambda player: {"kind": SetSeatMap, "seats": {"*": player}}
    ),
)
ends: st.SearchStrategy[Fields] = st.sampled_from(
    [
        {"kind": StopRun},
        {"kind": CreateRun, "config": {"config": {}, "spec": {}}},
        {"kind": DeleteRun},
    ]
)
commands = steering | changes
workers = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["actor", "learner"]),
        "index": st.sampled_from([0, 1, JOINED_FROM]),
        "incarnation": st.integers(1, 3),
    }
)


class RunMachine(RuleBasedStateMachine):
    """One run from its creation on; every message goes through its written form."""

    sequences = 0

    def __init__(self) -> None:
        super().__init__()
        RunMachine.sequences += 1
        self.log: list[bytes] = []
        self.sent: list[Command] = []
        self.waiting: dict[str, Command] = {}
        self.told: set[str] = set()
        self.state: RunState | None = None
        self.revision, self.orders = 0, ""
        self.final: RunState | None = None
        self.seen_values: dict[str, float] | None = None
        self.seen_effective: dict[str, float] = {}

    # --- what happens ----------------------------------------------------------------------------

    @initialize(
        kind=st.sampled_from(["local", "local", *CONFIGS]),
        early=st.booleans(),
        good=st.integers(0, 19).map(lambda seldom: seldom != 19),
        begun=st.sampled_from([(), (StartRun,), (StartRun, PauseRun), (StartRun, StopRun)]),
        works=st.booleans(),
    )
    def create(
        self, kind: str, early: bool, good: bool, begun: tuple[type, ...], works: bool
    ) -> None:
        self.model = Model(kind)
        if early:
            self._fold(StartRun(run=RUN, id="early"))
            self._fold(RunEnded(run=RUN, status="failed", reason=""))
            assert self.state is None
        made = content(CONFIGS[kind], SPEC) if good else {"config": {"seed": -1}}
        command = CreateRun(run=RUN, id="create", config=made)
        self._fold(command)
        assert (why_not(self.state, command) is None) == good
        self._tell("create", accepted=good)
        if not good:
            self.model.desired = "deleted"
        for command_type in begun:
            self.steer({"kind": command_type})
            if works:
                self.work({"kind": "learner", "index": 0, "incarnation": 1}, "started")

    @rule(fields=steering)
    def steer(self, fields: Fields) -> None:
        self._judge(self._ask(self._new(fields)))

    @rule(fields=changes)
    def change(self, fields: Fields) -> None:
        self._judge(self._ask(self._new(fields)))

    @rule(fields=commands)
    def send(self, fields: Fields) -> None:
        self._ask(self._new(fields))

    @rule(fields=ends, seldom=st.integers(0, 5))
    def send_an_end(self, fields: Fields, seldom: int) -> None:
        if seldom == 5:
            self._ask(self._new(fields))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        self._ask(data.draw(st.sampled_from(self.sent)))

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), fields=commands)
    def send_another_with_a_known_id(self, data: st.DataObject, fields: Fields) -> None:
        self._ask(self._made(data.draw(st.sampled_from(self.sent)).id, fields))

    def _new(self, fields: Fields) -> Command:
        return self._made(f"c{len(self.sent)}", fields)

    def _made(self, id: str, fields: Fields) -> Command:
        values = {name: value for name, value in fields.items() if name != "kind"}
        made: Command = fields["kind"](run=RUN, id=id, **values)
        return made

    def _ask(self, command: Command) -> str:
        if command.id not in self.told:
            self.waiting.setdefault(command.id, command)
        self.sent.append(command)
        self._fold(command)
        return command.id

    @precondition(lambda self: self.waiting)
    @rule()
    def answer_the_oldest(self) -> None:
        self._judge(next(iter(self.waiting)))

    @precondition(lambda self: self.waiting)
    @rule()
    def answer_all(self) -> None:
        for id in [*self.waiting]:
            self._judge(id)

    @precondition(lambda self: len(self.waiting) > 1)
    @rule(data=st.data())
    def answer_out_of_order(self, data: st.DataObject) -> None:
        self._judge(data.draw(st.sampled_from([*self.waiting])))

    def _judge(self, id: str) -> None:
        command = self.waiting.pop(id)
        why = why_not(self.state, command)
        assert (why is None) == self.model.takes(command), why
        assert why is None or "\n" not in why
        if why is None:
            self.model.carry_out(command)
        self._tell(id, accepted=why is None)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """For a reason that the log does not know, like a list of what is allowed."""
        id = data.draw(st.sampled_from([*self.waiting]))
        del self.waiting[id]
        self._tell(id, accepted=False)

    @precondition(lambda self: any(not self.model.takes(c) for c in self.waiting.values()))
    @rule()
    def accept_by_mistake(self) -> None:
        id = next(id for id, command in self.waiting.items() if not self.model.takes(command))
        del self.waiting[id]
        self._tell(id, accepted=True)

    @precondition(lambda self: self.told)
    @rule(data=st.data(), accepted=st.booleans())
    def answer_again(self, data: st.DataObject, accepted: bool) -> None:
        self._tell(data.draw(st.sampled_from(sorted(self.told))), accepted)

    @rule(accepted=st.booleans())
    def answer_what_nobody_asked(self, accepted: bool) -> None:
        self._tell("nobody's", accepted)

    def _tell(self, id: str, accepted: bool) -> None:
        self.told.add(id)
        if accepted:
            self._fold(CommandAccepted(run=RUN, command=id))
        else:
            self._fold(CommandRejected(run=RUN, command=id, why="no"))

    @rule(who=workers, what=st.sampled_from(["starting", "started", "failed", "exited"]))
    def work(self, who: dict[str, Any], what: str) -> None:
        made: dict[str, Event] = {
            "starting": WorkerStarting(run=RUN, **who),
            "started": WorkerStarted(run=RUN, **who, pid=7),
            "failed": WorkerFailed(run=RUN, **who, error="boom", final=True),
            "exited": WorkerExited(run=RUN, **who, code=-9),
        }
        self._happens(made[what])

    @rule(status=st.sampled_from([*ENDS, "running", "deleted", ""]), seldom=st.integers(0, 2))
    def end(self, status: str, seldom: int) -> None:
        if seldom == 2:
            self._happens(RunEnded(run=RUN, status=status, reason="why"))

    @rule(by=st.sampled_from(["terminal", "server"]), again=st.booleans())
    def own(self, by: str, again: bool) -> None:
        self._happens(RunOwned(run=RUN, pid=3, by=by, again=again))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def finish_a_job(self, data: st.DataObject) -> None:
        self._happens(JobDone(run=RUN, command=data.draw(st.sampled_from(self.sent)).id))

    @rule(saved=st.booleans())
    def checkpoint(self, saved: bool) -> None:
        if saved:
            self._happens(CheckpointSaved(run=RUN, name="one", env_steps=5))
        else:
            self._happens(CheckpointDamaged(run=RUN, name="one", why="flip"))

    def _happens(self, event: Event) -> None:
        self.model.happens(event)
        self._fold(event)

    def _fold(self, message: Command | Event) -> None:
        self.log.append(encode_json(message))
        self.state = apply(self.state, decode_json(self.log[-1], Command | Event))

    # --- what is always true ---------------------------------------------------------------------

    @invariant()
    def all_is_well(self) -> None:
        self._check_model()
        self._check_sense()
        self._check_hyperparameters()
        self._check_orders()
        self._check_deleted()

    def _check_model(self) -> None:
        state, model = self.state, self.model
        assert state is not None
        assert (state.desired, state.status) == (model.desired, model.status)
        assert [*state.commands] == [*self.waiting]
        assert state.answered == self.told
        assert (state.actors_wanted, state.learners) == (model.actors, model.learners)
        assert (state.seats_revision, state.seats) == model.seats
        assert state.checkpoints == model.checkpoints
        assert state.jobs.keys() == model.jobs
        lives = {(w.kind, w.index): (w.incarnation, w.running) for w in state.workers.values()}
        assert lives == model.lives

    def _check_sense(self) -> None:
        state = self.state
        assert state is not None and state.desired in ALLOWED
        assert (state.status == "paused") == (state.desired == "paused")
        assert (state.status == "deleted") == (state.desired == "deleted")
        if state.status in ("queued", "running"):
            assert state.desired in ("running", "stopped")
        if state.desired == "running":
            assert state.status in ("queued", "running")
        assert 0 <= state.actors_wanted <= state.max_actors and state.learners in (0, 1)
        assert state.jobs.keys() <= {command.id for command in self.sent}

    def _check_hyperparameters(self) -> None:
        assert self.state is not None
        if self.state.hyperparameters != self.seen_values:
            self.seen_values = self.state.hyperparameters
            config = effective(CONFIGS[self.model.kind], self.seen_values)  # raises if not valid
            self.seen_effective = live_values(config)
        assert self.seen_effective == self.model.values

    def _check_orders(self) -> None:
        assert self.state is not None
        now = self.state.orders
        said = repr((now.paused, sorted(now.hyperparameters.items()), now.checkpoints))
        assert now.revision >= self.revision + (said != self.orders and self.orders != "")
        self.revision, self.orders = now.revision, said

    def _check_deleted(self) -> None:
        assert self.state is not None
        if self.final is None and self.state.desired == "deleted":
            self.final = self.state
        if self.final is not None:
            assert self.state.desired == "deleted"
            assert self.state.hyperparameters == self.final.hyperparameters
            assert self.state.orders_revision == self.final.orders_revision
            assert self.state.jobs.keys() <= self.final.jobs.keys()

    def teardown(self) -> None:
        """Whoever reads the whole log has the same state; so has one who reads it said twice."""
        again: RunState | None = None
        for payload in self.log:
            message = decode_json(payload, Command | Event)
            again = apply(again, message)
            if again is not None and hasattr(message, "id"):
                assert apply(again, message) == again
        assert again == self.state


FEW = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # an explanation would take minutes
)
MANY = settings(
    max_examples=10_000,
    stateful_step_count=40,
    deadline=None,
    database=None,
    phases=FEW.phases,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestRunMachine = RunMachine.TestCase
TestRunMachine.settings = FEW


def test_every_command_is_in_the_table() -> None:
    assert NEXT.keys() == {*get_args(Command)}


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many_sequences_leave_the_machine_in_order() -> None:
    before = RunMachine.sequences
    run_state_machine_as_test(RunMachine, settings=MANY)
    print(f"{RunMachine.sequences - before} sequences of up to {MANY.stateful_step_count} steps")
    assert RunMachine.sequences - before >= MANY.max_examples
