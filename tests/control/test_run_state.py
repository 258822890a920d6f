"""A run's state is a fold of its log: any log, any order, the same answer each time."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.config.reading import build
from rookery.control.autoscale import AUTHOR
from rookery.control.home import content
from rookery.control.run_state import (
    ALLOWED,
    DELETED,
    PAUSED,
    RUNNING,
    STOPPED,
    RunState,
    apply,
    exit_text,
    why_not,
)
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
    HyperparametersChanged,
    JobDone,
    JobStarted,
    LabelRun,
    MatchPlayed,
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
    TrainingHeld,
    WorkerExited,
    WorkerFailed,
    WorkerStarted,
    WorkerStarting,
    decode_json,
    encode_json,
)

RUN = "r"
CARTPOLE = {"environment": {"id": "CartPole-v1"}, "actors": {"max_count": 4}}
SPEC = describe("CartPole-v1")
CONTENT = content(build(CARTPOLE), SPEC)
INLINE = content(build(CARTPOLE, {"launcher": "inline"}), SPEC)
IN_MEMORY = content(build(CARTPOLE, {"launcher": "inline", "bus": {"kind": "memory"}}), SPEC)
TWO = content(build(CARTPOLE, {"policies": {"a": {}, "b": {}}}), SPEC)
NO_CONFIGS: list[dict[str, Any]] = [
    {},
    {"seed": 1},
    {"config": 5, "spec": {}},
    {"config": {"actors": 3, "bus": []}, "spec": {}},
    {"config": {**CONTENT["config"], "actors": {"count": "x", "max_count": None}}, "spec": {}},
]
RATE = "algorithm.learning_rate"

ids = st.sampled_from(["a", "b", "c", "d"])
kinds = st.sampled_from(["actor", "learner"])
small = st.integers(0, 3)
a_run = st.just(RUN)
rates = st.sampled_from([1e-4, 1e-3, 0.0, 7.0])
commands = st.one_of(
    st.builds(CreateRun, run=a_run, id=ids, config=st.sampled_from([CONTENT, INLINE, *NO_CONFIGS])),
    *(
        st.builds(kind, run=a_run, id=ids)
        for kind in (StartRun, PauseRun, ResumeRun, StopRun, SaveCheckpoint, DeleteRun, Evaluate)
    ),
    st.builds(ScaleActors, run=a_run, id=ids, count=st.integers(0, 6)),
    st.builds(LabelRun, run=a_run, id=ids, name=ids),
    st.builds(ResumeRun, run=a_run, id=ids, steps=st.integers(1, 6)),
    st.builds(ScaleLearner, run=a_run, id=ids, count=st.integers(0, 1)),
    st.builds(SetHyperparameters, run=a_run, id=ids, values=st.builds(lambda r: {RATE: r}, rates)),
    st.builds(SetSeatMap, run=a_run, id=ids, seats=st.just({"*": "script:random"})),
    st.builds(PlayMatch, run=a_run, id=ids, a=st.just("main"), b=st.just("script:random")),
)
worker = {"run": a_run, "kind": kinds, "index": small, "incarnation": small}
events = st.one_of(
    st.builds(CommandAccepted, run=a_run, command=ids),
    st.builds(CommandRejected, run=a_run, command=ids, why=st.just("no")),
    st.builds(
        RunOwned,
        run=a_run,
        pid=small,
        by=st.sampled_from(["terminal", "server"]),
        again=st.booleans(),
    ),
    st.builds(WorkerStarting, **worker),
    st.builds(WorkerStarted, **worker, pid=small),
    st.builds(WorkerFailed, **worker, error=st.just("boom"), final=st.booleans()),
    st.builds(WorkerExited, **worker, code=st.integers(-70, 5), expected=st.booleans()),
    st.builds(CheckpointSaved, run=a_run, name=ids, env_steps=small),
    st.builds(CheckpointDamaged, run=a_run, name=ids, why=st.just("flip")),
    st.builds(JobStarted, run=a_run, command=ids, pid=small),
    st.builds(JobDone, run=a_run, command=ids),
    st.builds(TrainingHeld, run=a_run, held=st.booleans(), update=small, env_steps=small),
    st.builds(
        HyperparametersChanged, run=a_run, update=small, env_steps=small, values=st.just({RATE: 1})
    ),
    st.builds(
        MatchPlayed,
        run=a_run,
        players=st.just(("a", "b")),
        wins=small,
        draws=small,
        losses=small,
    ),
    st.builds(
        RunEnded,
        run=a_run,
        status=st.sampled_from(["solved", "finished", "limited", "stopped", "failed", "running"]),
        reason=st.just("why"),
    ),
)
logs = st.lists(commands | events, max_size=30)
steering = st.sampled_from([StartRun, PauseRun, ResumeRun, StopRun]).map(lambda kind: kind(run=RUN))
half_steering = st.booleans().flatmap(lambda often: steering if often else commands | events)
answered_logs = st.lists(half_steering, max_size=30).map(
    lambda log: [_with_new_id(message, f"new-{i}") for i, message in enumerate(log)]
)


def _with_new_id(message: Any, id: str) -> Any:
    return msgspec.structs.replace(message, id=id) if hasattr(message, "id") else message


def one_of_each() -> list[Any]:
    """Every command but CreateRun, good for any run that is not inline."""
    return [
        StartRun(run=RUN),
        PauseRun(run=RUN),
        ResumeRun(run=RUN),
        StopRun(run=RUN),
        ScaleActors(run=RUN, count=2),
        ScaleLearner(run=RUN, count=0),
        LabelRun(run=RUN, name="a try"),
        SetHyperparameters(run=RUN, values={RATE: 1e-4}),
        SetSeatMap(run=RUN, seats={"*": "script:random"}),
        SaveCheckpoint(run=RUN),
        Evaluate(run=RUN),
        PlayMatch(run=RUN, a="main", b="script:random"),
        DeleteRun(run=RUN),
    ]


def fold(log: list[Any], state: RunState | None = None) -> RunState | None:
    for message in log:
        state = apply(state, message)
    return state


def after(state: RunState, *log: Any) -> RunState:
    found = fold([*log], state)
    assert found is not None
    return found


def created(*log: Any, config: dict[str, Any] = CONTENT, **labels: Any) -> RunState:
    create = CreateRun(run=RUN, id="create", config=config, **labels)
    state = fold([create, CommandAccepted(run=RUN, command="create"), *log])
    assert state is not None
    return state


def answered(state: RunState, *log: Any) -> RunState:
    """After a controller that answers each command at once; events are folded as they are."""
    for message in log:
        state = after(state, message)
        if not isinstance(message, get_args(Command)):
            continue
        why = why_not(state, message)
        answer: Event = CommandAccepted(run=RUN, command=message.id)
        if why is not None:
            answer = CommandRejected(run=RUN, command=message.id, why=why)
        state = after(state, answer)
    return state


def carried_out(*log: Any, config: dict[str, Any] = CONTENT) -> RunState:
    return answered(created(config=config), *log)


def in_state(desired: str) -> RunState:
    steps: dict[str, tuple[Command, ...]] = {
        STOPPED: (),
        RUNNING: (StartRun(run=RUN),),
        PAUSED: (StartRun(run=RUN), PauseRun(run=RUN)),
        DELETED: (DeleteRun(run=RUN),),
    }
    state = carried_out(*steps[desired])
    assert state.desired == desired
    return state


def lives(kind: str = "learner", index: int = 0, incarnation: int = 1) -> list[Event]:
    named: dict[str, Any] = {"run": RUN, "kind": kind, "index": index, "incarnation": incarnation}
    return [WorkerStarting(**named), WorkerStarted(**named, pid=10)]


# --- any log -------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(logs)
def test_no_log_can_break_the_fold(log: list[Any]) -> None:
    state: RunState | None = None
    for message in log:
        before = None if state is None else repr(state)
        following = apply(state, message)
        if state is not None:
            assert repr(state) == before, "a state is never changed in place"
            assert following is not None and following.desired in ALLOWED
            assert following.actors_wanted >= 0
        state = following
    for command in one_of_each():
        why = why_not(state, command)
        assert why is None or "\n" not in why


@settings(max_examples=200, deadline=None)
@given(logs)
def test_replaying_the_log_as_it_was_written_gives_the_same_state(log: list[Any]) -> None:
    written = [encode_json(message) for message in log]
    again = [decode_json(payload, Command | Event) for payload in written]
    assert fold(again) == fold(log)


@settings(max_examples=300, deadline=None)
@given(logs, st.lists(commands | events, max_size=20))
def test_deleted_is_final(before: list[Any], later: list[Any]) -> None:
    state = fold([*before])
    if state is None or state.desired != DELETED:
        state = in_state(DELETED)
    state = after(state, *later)
    assert (state.desired, state.status) == (DELETED, "deleted")
    for command in one_of_each():
        assert why_not(state, command) == "run r was deleted"


@settings(max_examples=300, deadline=None)
@given(logs, commands)
def test_a_command_that_comes_twice_acts_once(log: list[Any], command: Any) -> None:
    once = [*log, command, CommandAccepted(run=RUN, command=command.id)]
    state = fold(once)
    assert fold([command, CommandAccepted(run=RUN, command=command.id)], state) == state


@settings(max_examples=300, deadline=None)
@given(logs, commands)
def test_a_rejected_command_changes_nothing_but_the_list_of_answers(
    log: list[Any], command: Any
) -> None:
    state = fold(log)
    if state is None or isinstance(state.commands.get(command.id, command), CreateRun):
        return
    rejected = after(state, command, CommandRejected(run=RUN, command=command.id, why="no"))
    waiting = {i: c for i, c in state.commands.items() if i != command.id}
    told = state.answered | {command.id}
    assert rejected == msgspec.structs.replace(state, commands=waiting, answered=told)


@settings(max_examples=200, deadline=None)
@given(logs)
def test_a_command_does_nothing_before_it_is_answered(log: list[Any]) -> None:
    state = fold(log)
    if state is None:
        return
    for command in one_of_each():
        waiting = {**state.commands, command.id: command}
        assert apply(state, command) == msgspec.structs.replace(state, commands=waiting)


@settings(max_examples=300, deadline=None)
@given(answered_logs)
def test_other_orders_for_the_learner_have_a_higher_revision(log: list[Any]) -> None:
    """A learner heeds only orders that are newer than those it knows."""
    state = created()
    for message in log:
        before, state = state.orders, answered(state, message)
        changed = msgspec.structs.replace(state.orders, time_s=before.time_s) != before
        assert state.orders.revision >= before.revision + changed


@settings(max_examples=300, deadline=None)
@given(answered_logs)
def test_desired_and_status_agree(log: list[Any]) -> None:
    state = created()
    for message in log:
        state = answered(state, message)
        assert (state.status == "paused") == (state.desired == PAUSED)
        assert (state.status == "deleted") == (state.desired == DELETED)
        assert state.desired != RUNNING or state.status in ("queued", "running")
        assert state.status in ("created", "queued", "running", "paused", "deleted") or (
            state.status in ("solved", "finished", "limited", "stopped", "failed")
            and state.desired == STOPPED
        )


# --- the table -----------------------------------------------------------------------------------

ANY_TIME = {ScaleActors, ScaleLearner, SetHyperparameters, SetSeatMap, Evaluate, PlayMatch}
ANY_TIME |= {LabelRun}
ACCEPTED: dict[str, set[type]] = {
    STOPPED: ANY_TIME | {StartRun, ResumeRun, StopRun, DeleteRun},
    RUNNING: ANY_TIME | {StartRun, ResumeRun, StopRun, PauseRun, SaveCheckpoint},
    PAUSED: ANY_TIME | {StartRun, ResumeRun, StopRun, PauseRun, SaveCheckpoint},
    DELETED: set(),
}
REFUSALS = {
    STOPPED: "run r does not run: start it first",
    RUNNING: "run r is running: stop it first",
    PAUSED: "run r is paused: stop it first",
    DELETED: "run r was deleted",
}


@pytest.mark.parametrize("desired", ACCEPTED)
@pytest.mark.parametrize("command", one_of_each(), ids=lambda command: type(command).__name__)
def test_a_command_is_accepted_where_it_makes_sense(desired: str, command: Any) -> None:
    state = in_state(desired)
    why = why_not(state, command)
    assert why == (None if type(command) in ACCEPTED[desired] else REFUSALS[desired])
    if why is not None:
        wrongly = after(state, command, CommandAccepted(run=RUN, command=command.id))
        told = state.answered | {command.id}
        assert wrongly == msgspec.structs.replace(state, answered=told), "accepted by mistake"


def test_every_command_is_in_these_tests() -> None:
    assert {CreateRun, *map(type, one_of_each())} == set(get_args(Command))
    assert {*ACCEPTED} == {*ALLOWED}


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        (CONTENT, set()),
        (INLINE, {ScaleActors, ScaleLearner}),
        (
            IN_MEMORY,
            {ScaleActors, ScaleLearner, PauseRun, SetHyperparameters, SetSeatMap, SaveCheckpoint},
        ),
    ],
    ids=["local", "inline", "memory"],
)
def test_what_a_run_in_one_process_cannot_do(config: dict[str, Any], refused: set[type]) -> None:
    state = carried_out(StartRun(run=RUN), config=config)
    said = {type(c): why_not(state, c) for c in one_of_each() if not isinstance(c, DeleteRun)}
    assert {kind for kind, why in said.items() if why is not None} == refused
    for kind in refused:
        assert ("launcher=inline" if kind in (ScaleActors, ScaleLearner) else "sqlite") in str(
            said[kind]
        )


# --- creation ------------------------------------------------------------------------------------


def test_messages_before_the_creation_are_ignored() -> None:
    assert fold([StartRun(run=RUN), RunOwned(run=RUN, pid=3)]) is None
    for command in one_of_each():
        assert why_not(None, command) == "there is no run r"
    assert why_not(None, CreateRun(run=RUN, config=CONTENT)) is None


def test_a_run_is_created_once() -> None:
    state = created(CreateRun(run=RUN, config=INLINE))
    assert state.config == CONTENT
    assert why_not(state, CreateRun(run=RUN, config=CONTENT)) == "run r exists already"
    other = CreateRun(run=RUN, config=INLINE)
    assert answered(state, other).config == CONTENT
    rejected = after(state, other, CommandRejected(run=RUN, command=other.id, why="no"))
    assert rejected.desired == STOPPED


@pytest.mark.parametrize("config", NO_CONFIGS)
def test_a_run_of_no_valid_config_is_deleted_when_its_creation_is_judged(
    config: dict[str, Any],
) -> None:
    state = fold([CreateRun(run=RUN, id="create", config=config)])
    assert state is not None and state.desired == STOPPED
    why = why_not(state, state.commands["create"])
    assert why and "\n" not in why
    state = after(state, CommandRejected(run=RUN, command="create", why=why))
    assert (state.desired, state.status) == (DELETED, "deleted")


def test_who_created_a_run_and_from_where_is_kept() -> None:
    create = CreateRun(run=RUN, config=CONTENT, origin="network", time_s=12.0)
    state = fold([create])
    assert state is not None
    assert (state.created_by, state.origin, state.created_s) == (create.id, "network", 12.0)


# --- start, pause, resume, stop, delete ----------------------------------------------------------


def test_start_stop_start_delete() -> None:
    start, stop, again = StartRun(run=RUN), StopRun(run=RUN), StartRun(run=RUN)
    assert (carried_out(start).desired, carried_out(start).status) == (RUNNING, "queued")
    assert carried_out(start, *lives()).status == "running"
    assert carried_out(start, stop).desired == STOPPED
    assert carried_out(start, stop, again).desired == RUNNING
    assert carried_out(start, stop, DeleteRun(run=RUN)).desired == DELETED


def test_a_running_run_cannot_be_deleted() -> None:
    state = carried_out(StartRun(run=RUN), DeleteRun(run=RUN))
    assert state.desired == RUNNING
    assert why_not(state, DeleteRun(run=RUN)) == "run r is running: stop it first"


@pytest.mark.parametrize("resume", [StartRun, ResumeRun])
def test_a_paused_run_goes_on_with_the_workers_it_has(resume: type) -> None:
    state = carried_out(StartRun(run=RUN), *lives(), PauseRun(run=RUN))
    assert (state.desired, state.status, state.orders.paused) == (PAUSED, "paused", True)
    again = answered(state, PauseRun(run=RUN))
    assert again.orders_revision == state.orders_revision, "paused already: nothing new"
    state = answered(state, resume(run=RUN))
    assert (state.desired, state.status, state.orders.paused) == (RUNNING, "running", False)


def test_a_run_paused_in_the_queue_goes_back_there() -> None:
    state = carried_out(StartRun(run=RUN), PauseRun(run=RUN), ResumeRun(run=RUN))
    assert (state.desired, state.status) == (RUNNING, "queued")


def test_a_run_resumed_while_its_workers_start_is_running_when_they_have() -> None:
    starting, started = lives()
    state = carried_out(StartRun(run=RUN), starting, PauseRun(run=RUN), ResumeRun(run=RUN))
    assert answered(state, started).status == "running"


def test_a_run_stopped_and_started_before_a_worker_ended_is_running() -> None:
    state = carried_out(StartRun(run=RUN), *lives(), StopRun(run=RUN), StartRun(run=RUN))
    assert (state.desired, state.status) == (RUNNING, "running")


def test_a_run_that_ended_waits_for_new_workers_when_it_is_started() -> None:
    ended = RunEnded(run=RUN, status="solved", reason="475")
    state = carried_out(StartRun(run=RUN), *lives("actor"), ended, StartRun(run=RUN))
    assert (state.desired, state.status) == (RUNNING, "queued")


def test_a_run_stopped_in_a_pause_and_started_again_does_not_stay_held() -> None:
    paused = carried_out(StartRun(run=RUN), *lives(), PauseRun(run=RUN))
    stopping = answered(paused, StopRun(run=RUN))
    assert (stopping.desired, stopping.status) == (STOPPED, "running")
    again = answered(stopping, StartRun(run=RUN))
    assert not again.orders.paused
    assert again.orders.revision > paused.orders.revision, "or the learner would not heed it"


def test_a_failure_ends_a_pause() -> None:
    paused = carried_out(StartRun(run=RUN), *lives(), PauseRun(run=RUN))
    failed = after(paused, RunEnded(run=RUN, status="failed", reason="boom"))
    assert (failed.desired, failed.status, failed.reason) == (STOPPED, "failed", "boom")
    assert failed.orders.revision > paused.orders.revision and not failed.orders.paused


def test_an_actor_that_joined_on_its_own_does_not_take_a_run_from_the_queue() -> None:
    state = carried_out(StartRun(run=RUN), *lives("actor", JOINED_FROM + 5))
    assert state.status == "queued"
    assert answered(state, PauseRun(run=RUN), ResumeRun(run=RUN)).status == "queued"


def test_how_a_run_ended_stays_until_it_is_started_again() -> None:
    late = RunEnded(run=RUN, status="stopped", reason="late")
    ended = RunEnded(run=RUN, status="solved", reason="475")
    state = carried_out(StartRun(run=RUN), *lives(), ended, late)
    assert (state.status, state.reason, state.desired) == ("solved", "475", STOPPED)
    state = answered(state, StartRun(run=RUN))
    assert (state.status, state.reason, state.desired) == ("queued", "", RUNNING)
    assert after(state, late) == state, "said by a learner of the life before"


@pytest.mark.parametrize("status", ["running", "queued", "paused", "deleted", "created", "", "x"])
def test_an_end_that_is_none_changes_nothing(status: str) -> None:
    for state in (in_state(RUNNING), in_state(PAUSED), in_state(STOPPED)):
        assert after(state, RunEnded(run=RUN, status=status, reason="")) == state


def test_when_a_run_was_asked_for_is_kept_for_the_queue() -> None:
    start = StartRun(run=RUN)
    state = created(start, CommandAccepted(run=RUN, command=start.id, time_s=50.0))
    assert (state.queued_s, state.start_asked) == (50.0, True)
    again = StartRun(run=RUN)
    state = after(state, again, CommandAccepted(run=RUN, command=again.id, time_s=60.0))
    assert state.queued_s == 50.0, "it keeps its place"
    owned = after(state, RunOwned(run=RUN, pid=4, by="server"))
    assert (owned.owner_pid, owned.owned_by, owned.start_asked) == (4, "server", False)
    workers = after(state, *lives(), RunOwned(run=RUN, pid=9, by="terminal", again=True))
    assert workers.workers["learner-0"].running, "its owner carried it already"
    assert (workers.owner_pid, workers.start_asked) == (None, False)


# --- changes while it goes on --------------------------------------------------------------------


def test_actors_are_scaled_within_their_limit() -> None:
    state = created()
    assert (state.actors_wanted, state.max_actors) == (1, 4)
    for count in (0, 4):
        assert answered(state, ScaleActors(run=RUN, count=count)).actors_wanted == count
    above = ScaleActors(run=RUN, count=5)
    assert why_not(state, above) == "5 actors are above the limit of 4: actors.max_count"
    assert answered(state, above).actors_wanted == 1
    many = content(build(CARTPOLE, {"actors": {"count": 6}}), SPEC)
    assert created(config=many).max_actors == 6


def test_actors_follow_the_learner_until_somebody_says_how_many() -> None:
    auto = content(build(CARTPOLE, {"actors": {"count": "auto"}}), SPEC)
    assert not created().follows_learner
    state = created(config=auto)
    assert state.follows_learner and state.actors_wanted == 1
    state = answered(state, ScaleActors(run=RUN, count=2, author=AUTHOR))
    assert state.follows_learner and state.actors_wanted == 2
    state = answered(state, ScaleActors(run=RUN, count=3, author="ann"))
    assert not state.follows_learner
    state = answered(state, ScaleActors(run=RUN, count=4, author=AUTHOR))
    assert not state.follows_learner, "what came too late changes nothing of that"


def test_labels_are_given_at_creation_and_later_each_by_itself() -> None:
    state = created(name="a try", tags=["nightly"], notes="first")
    assert (state.name, state.tags, state.notes) == ("a try", ["nightly"], "first")
    state = answered(state, LabelRun(run=RUN, tags=["nightly", "good"]))
    assert (state.name, state.tags, state.notes) == ("a try", ["nightly", "good"], "first")
    state = answered(state, LabelRun(run=RUN, name="", notes="second"))
    assert (state.name, state.tags, state.notes) == ("", ["nightly", "good"], "second")


def test_new_bounds_are_told_to_the_learner_and_hold() -> None:
    state = carried_out(ResumeRun(run=RUN, steps=7))
    assert state.orders.stop is not None and state.orders.stop["steps"] == 7
    again = answered(state, ResumeRun(run=RUN, until_return=475.0))
    assert again.stop is not None and (again.stop["steps"], again.stop["until_return"]) == (7, 475)
    assert again.orders_revision > state.orders_revision
    assert answered(again, ResumeRun(run=RUN)).orders_revision == again.orders_revision


def test_the_learner_is_taken_away_and_brought_back() -> None:
    away = carried_out(ScaleLearner(run=RUN, count=0))
    assert away.learners == 0
    assert answered(away, ScaleLearner(run=RUN, count=1)).learners == 1


def test_hyperparameters_are_added_up_and_told_to_the_learner() -> None:
    state = carried_out(
        SetHyperparameters(run=RUN, values={RATE: 1e-4}),
        SetHyperparameters(run=RUN, values={"algorithm.clip": 0.1}),
        SetHyperparameters(run=RUN, values={RATE: 9.0, "algorithm.clip": 0.3}),  # 9 is too much
        SetHyperparameters(run=RUN, values={"algorithm.epochs": 3.0}),  # not live
    )
    assert state.orders.hyperparameters == {RATE: 1e-4, "algorithm.clip": 0.1}
    assert state.orders.revision == 2


def test_what_was_set_last_for_a_policy_counts() -> None:
    of_a = "policies.a.algorithm.learning_rate"
    state = carried_out(
        SetHyperparameters(run=RUN, values={of_a: 0.1}),
        SetHyperparameters(run=RUN, values={RATE: 0.5}),
        config=TWO,
    )
    assert state.hyperparameters == {RATE: 0.5}
    state = answered(state, SetHyperparameters(run=RUN, values={of_a: 0.1}))
    assert state.hyperparameters == {RATE: 0.5, of_a: 0.1}


def test_a_seat_map_replaces_the_one_before() -> None:
    state = carried_out(
        SetSeatMap(run=RUN, seats={"*": "main"}),
        SetSeatMap(run=RUN, seats={"*": "script:random"}, origin="network"),
    )
    assert (state.seats, state.seats_revision) == ({"*": "script:random"}, 2)
    assert state.seats_origin == "network"


def test_each_checkpoint_that_is_asked_for_is_a_new_order() -> None:
    state = carried_out(StartRun(run=RUN), SaveCheckpoint(run=RUN), SaveCheckpoint(run=RUN))
    assert (state.orders.checkpoints, state.orders.revision) == (2, 2)


def test_a_job_is_there_until_it_is_done() -> None:
    evaluate, match = Evaluate(run=RUN), PlayMatch(run=RUN, a="main", b="script:random")
    state = carried_out(evaluate, match)
    assert state.jobs == {evaluate.id: evaluate, match.id: match}
    state = after(state, JobStarted(run=RUN, command=match.id, pid=3))
    state = after(state, JobDone(run=RUN, command=match.id), JobDone(run=RUN, command="other"))
    assert state.jobs == {evaluate.id: evaluate}
    assert answered(state, DeleteRun(run=RUN)).jobs == {}


# --- workers and checkpoints ---------------------------------------------------------------------


def test_a_stop_and_a_start_are_no_restart() -> None:
    def of(kind: type, **values: Any) -> Any:
        return kind(run=RUN, kind="actor", index=0, **values)

    log = [
        of(WorkerStarting, incarnation=1),
        of(WorkerExited, incarnation=1, code=-9),
        of(WorkerStarting, incarnation=2),
        of(WorkerExited, incarnation=2, code=0, expected=True),
    ]
    assert created(*log).workers["actor-0"].restarts == 1
    log += [of(WorkerStarting, incarnation=3), of(WorkerStarted, incarnation=3, pid=1)]
    assert created(*log).workers["actor-0"].restarts == 1
    log += [of(WorkerExited, incarnation=3, code=1), of(WorkerStarting, incarnation=4)]
    assert created(*log).workers["actor-0"].restarts == 2


def test_a_workers_life_is_told() -> None:
    def of(kind: type, **values: Any) -> Any:
        return kind(run=RUN, kind="actor", index=0, **values)

    log = [
        of(WorkerStarting, incarnation=1),
        of(WorkerStarted, incarnation=1, pid=10),
        of(WorkerExited, incarnation=1, code=-9),
        of(WorkerStarting, incarnation=2),
    ]
    found = created(*log).workers["actor-0"]
    assert (found.running, found.pid, found.deaths, found.restarts) == (False, None, 1, 1)
    assert found.last_error == "ended by SIGKILL"

    log += [
        of(WorkerStarted, incarnation=2, pid=11),
        of(WorkerFailed, incarnation=2, error="boom", detail="trace", final=True),
        of(WorkerExited, incarnation=2, code=1),
    ]
    found = created(*log).workers["actor-0"]
    assert (found.deaths, found.last_error, found.last_detail) == (2, "boom", "trace")
    assert found.failed_for_good
    log += [of(WorkerStarting, incarnation=3), of(WorkerStarted, incarnation=3, pid=12)]
    found = created(*log).workers["actor-0"]
    assert found.running and not found.failed_for_good
    late = [of(WorkerExited, incarnation=2, code=1), of(WorkerFailed, incarnation=1, error="x")]
    assert created(*log, *late).workers["actor-0"] == found, "another has taken its work over"
    log += [of(WorkerExited, incarnation=3, code=0, expected=True)]
    assert created(*log).workers["actor-0"].deaths == 2


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (WorkerFailed, "no file /data (on 10.0.0.3)"),
        (WorkerExited, "exited with code 1 (on 10.0.0.3)"),
    ],
)
def test_an_error_on_another_node_says_which(
    ends: type[WorkerFailed | WorkerExited], said: str
) -> None:
    who: dict[str, Any] = {"run": RUN, "kind": "actor", "index": 0}
    what = {"error": "no file /data"} if ends is WorkerFailed else {"code": 1}
    log = [
        WorkerStarting(**who, incarnation=1),
        WorkerStarted(**who, incarnation=1, pid=10, host="10.0.0.3"),
        ends(**who, incarnation=1, **what),
        WorkerStarting(**who, incarnation=2),
    ]
    assert created(*log).workers["actor-0"].last_error == said
    here = [WorkerStarted(**who, incarnation=2, pid=11), ends(**who, incarnation=2, **what)]
    found = created(*log, *here).workers["actor-0"].last_error
    assert found == said.removesuffix(" (on 10.0.0.3)"), "its own machine goes without saying"
    named = WorkerExited(**who, incarnation=1, code=-9, reason="its node 10.0.0.3 is gone")
    assert created(*log[:2], named).workers["actor-0"].last_error == "its node 10.0.0.3 is gone"


def test_a_new_owner_knows_that_nobody_of_the_old_one_lives() -> None:
    started = WorkerStarted(run=RUN, kind="actor", index=0, incarnation=1, pid=10)
    state = created(started, RunOwned(run=RUN, pid=7))
    assert not state.workers["actor-0"].running and state.owner_pid == 7


def test_checkpoints_are_told() -> None:
    state = created(
        CheckpointSaved(run=RUN, name="one", env_steps=5),
        CheckpointDamaged(run=RUN, name="zero", why="flip"),
        CheckpointSaved(run=RUN, name="two", env_steps=9),
    )
    assert (state.checkpoint, state.env_steps, state.damaged) == ("two", 9, {"zero": "flip"})


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-11, "ended by SIGSEGV"),
        (-99, "ended by signal 99"),
    ],
)
def test_an_exit_code_in_words(code: int, text: str) -> None:
    assert exit_text(code) == text
