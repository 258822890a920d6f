"""The state of a run: a fold of its commands and events, without I/O.

    state = None
    for message in log: state = apply(state, message)

A command waits in `commands` until the controller that owns the run has judged it (`why_not`) and
said so: its CommandAccepted event makes the command count, CommandRejected does not. A command id
that was answered before, or waits already, is nothing new. ALLOWED is the transition table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, get_args

import msgspec

from rookery.config.live import combined, why_not_set
from rookery.control.answered import Answered
from rookery.control.autoscale import AUTHOR
from rookery.control.bounds import named, stop_after
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
    Job,
    JobDone,
    LabelRun,
    LearnerOrders,
    MatchPlayed,
    Origin,
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
    WorkerWaiting,
)

_S = TypeVar("_S", bound=msgspec.Struct)

RUNNING, PAUSED, STOPPED, DELETED = "running", "paused", "stopped", "deleted"
ACTIVE = ("queued", "running", "paused")  # statuses of a run that has not ended
ENDED = ("solved", "finished", "limited", "stopped", "failed")
Status = Literal[
    "created",
    "queued",
    "running",
    "paused",
    "interrupted",
    "solved",
    "finished",
    "limited",
    "stopped",
    "failed",
]

_ANY_TIME = (
    *(LabelRun, SetSeatMap, SetHyperparameters, ScaleActors, ScaleLearner),
    *(Evaluate, PlayMatch),
)
_LIVE = (StartRun, PauseRun, ResumeRun, StopRun, SaveCheckpoint)

# desired state -> commands that make sense in it; anything else is rejected
ALLOWED: dict[str, tuple[type, ...]] = {
    STOPPED: (CreateRun, StartRun, ResumeRun, StopRun, DeleteRun, *_ANY_TIME),
    RUNNING: (*_LIVE, *_ANY_TIME),
    PAUSED: (*_LIVE, *_ANY_TIME),
    DELETED: (),
}
_ONE_PROCESS = (ScaleActors, ScaleLearner)  # not for launcher=inline
_BY_BUS = (PauseRun, SetHyperparameters, SetSeatMap, SaveCheckpoint)  # not for bus.kind=memory


class WorkerState(msgspec.Struct, frozen=True):
    """One worker, over all of its incarnations."""

    kind: str
    index: int
    incarnation: int
    pid: int | None = None
    running: bool = False
    deaths: int = 0  # unexpected exits over the life of the run
    last_error: str | None = None
    last_detail: str = ""
    failed_for_good: bool = False
    error_of: int = 0  # the incarnation whose error it is
    error_s: float = 0.0  # and when
    started_s: float = 0.0  # when its process began
    ended_as_asked: bool = False  # the last incarnation: whoever comes next is no restart
    resumes: int = 0  # incarnations that came after such a one
    host: str = ""  # the node that it lives on; empty: its owner's machine
    waits_for: str = ""  # what its launcher has no place for it without

    @property
    def restarts(self) -> int:
        """How often it had to be started again; after a stop it was only started."""
        return max(0, self.incarnation - 1 - self.resumes)


class RunState(msgspec.Struct, frozen=True):
    """Everything that the log says about a run."""

    id: str
    config: Mapping[str, Any]
    created_s: float
    created_by: str = ""  # id of the command
    origin: Origin = "local"
    desired: str = STOPPED
    status: str = "created"  # then queued, running, paused; solved, finished, limited, stopped,
    # failed; deleted
    reason: str = ""
    owner_pid: int | None = None
    owned_by: str = ""  # terminal or server; empty: nobody ever carried it
    start_asked: bool = False  # since it was last owned
    queued_s: float = 0.0  # when it was last asked to start
    workers: dict[str, WorkerState] = {}  # "actor-0" -> state
    checkpoint: str | None = None
    env_steps: int = 0
    updates: int | None = None  # when it last ended or saved; None: the log does not say
    mean_return_100: float | None = None  # then
    train_s: float | None = None  # then
    damaged: dict[str, str] = {}  # checkpoint -> why
    commands: dict[str, Command] = {}  # waiting for an answer, by id
    answered: Answered = Answered()
    seats: dict[str, Any] | None = None  # as they were changed, if ever
    seats_revision: int = 0
    seats_origin: Origin = "local"
    actors: int | None = None  # as scaled; None: as the config says
    scaled_by_hand: bool = False  # by somebody, and not because the learner could take it
    learners: int = 1
    hyperparameters: dict[str, float] = {}  # as set, by config key
    checkpoints: int = 0  # how many were asked for
    orders_revision: int = 0
    jobs: dict[str, Job] = {}  # accepted and not done, by command
    matches: tuple[MatchPlayed, ...] = ()  # for the ladder, in the order of the log
    stop: dict[str, Any] | None = None  # as a ResumeRun has bounded it, if ever
    name: str = ""
    tags: list[str] = []
    notes: str = ""
    group: str = ""
    offset: int = -1  # of its CreateRun in the log; -1: an older Rookery saved the state
    signed_events: bool = False  # events without a signature are nobody's; older runs have them
    writers: dict[str, int] = {}  # of events -> the last number of each

    @property
    def age(self) -> tuple[int, float]:
        """Sorts runs as they were created, whatever the clock said then."""
        return self.offset, self.created_s

    @property
    def actors_wanted(self) -> int:
        return self._actors_config("count", 1) if self.actors is None else self.actors

    @property
    def follows_learner(self) -> bool:
        """Whether its owner says how many actors play, by what its learner can take."""
        auto = _part(_part(self.config, "config"), "actors").get("auto") is True
        return auto and not self.scaled_by_hand

    @property
    def max_actors(self) -> int:
        """How many actors a command may ask for."""
        return max(self._actors_config("count", 1), self._actors_config("max_count", 16))

    def _actors_config(self, key: str, otherwise: int) -> int:
        return _number(_part(_part(self.config, "config"), "actors"), key, otherwise)

    @property
    def max_learners(self) -> int:
        """How many learners a command may ask for."""
        learner = _part(_part(self.config, "config"), "learner")
        return max(_number(learner, "count", 1), _number(learner, "max_count", 8))

    @property
    def orders(self) -> LearnerOrders:
        return LearnerOrders(
            revision=self.orders_revision,
            paused=self.desired == PAUSED,
            hyperparameters=self.hyperparameters,
            checkpoints=self.checkpoints,
            actors=self.actors or 0,
            stop=self.stop,
            learners=max(1, self.learners),
        )


def apply(state: RunState | None, message: Command | Event) -> RunState | None:
    """The state after one more message of its log; messages before CreateRun are ignored."""
    if state is None:
        if not isinstance(message, CreateRun):
            return None
        state = RunState(
            message.run,
            message.config,
            message.time_s,
            created_by=message.id,
            origin=message.origin,
            name=message.name,
            tags=message.tags,
            notes=message.notes,
            group=message.group,
            learners=_number(_part(_part(message.config, "config"), "learner"), "count", 1),
        )
    if isinstance(message, get_args(Command)):
        if message.id in state.answered or message.id in state.commands:
            return state
        return _replace(state, commands={**state.commands, message.id: message})
    match message:
        case CommandAccepted(command=command) | CommandRejected(command=command):
            return _answered(state, command, isinstance(message, CommandAccepted), message.time_s)
        case RunOwned(again=True):
            return _replace(state, start_asked=False)
        case RunOwned(pid=pid, by=by):
            workers = {n: _replace(w, running=False) for n, w in state.workers.items()}
            return _replace(state, owner_pid=pid, owned_by=by, start_asked=False, workers=workers)
        case WorkerStarting() | WorkerWaiting() | WorkerStarted() | WorkerFailed() | WorkerExited():
            state = _with_worker(state, message)
            works = isinstance(message, WorkerStarting | WorkerStarted)
            ours = message.index < JOINED_FROM  # not an actor that waits for the run as well
            begins = works and ours and state.status == "queued"
            return _replace(state, status="running") if begins else state
        case CheckpointSaved():
            return _came_to(_replace(state, checkpoint=message.name), message)
        case CheckpointDamaged(name=name, why=why):
            return _replace(state, damaged={**state.damaged, name: why})
        case JobDone(command=command):
            jobs = {id: job for id, job in state.jobs.items() if id != command}
            return _replace(state, jobs=jobs)
        case MatchPlayed():
            return _replace(state, matches=(*state.matches, message))
        case RunEnded(status=status) if status not in ENDED or state.status not in ACTIVE:
            return state  # the first word counts: a learner told to stop by a failure adds nothing
        case RunEnded(status="stopped") if state.desired != STOPPED:
            return state  # said by a learner that was stopped before the run was started again
        case RunEnded(status=status, reason=reason):
            return _came_to(_desiring(state, STOPPED, status=status, reason=reason), message)
    return state


def _came_to(state: RunState, said: RunEnded | CheckpointSaved) -> RunState:
    """How far, if its learner says so; else what was last saved counts."""
    steps = state.env_steps if said.env_steps is None else said.env_steps
    if said.updates is None:
        return _replace(state, env_steps=steps)
    return _replace(
        state,
        env_steps=steps,
        updates=said.updates,
        mean_return_100=said.mean_return_100,
        train_s=said.train_s,
    )


def why_not(state: RunState | None, command: Command) -> str | None:
    """Why a command cannot be carried out now; None if it can."""
    if state is None:
        return None if isinstance(command, CreateRun) else f"there is no run {command.run}"
    run = command.run
    if state.desired == DELETED:
        return f"run {run} was deleted"
    if isinstance(command, CreateRun):
        if command.id != state.created_by:
            return f"run {run} exists already"
        return why_not_set(command.config, {})
    if not isinstance(command, ALLOWED[state.desired]):
        if state.desired == STOPPED:
            return f"run {run} does not run: start it first"
        return f"run {run} is {state.desired}: stop it first"
    config = _part(state.config, "config")
    if isinstance(command, _ONE_PROCESS) and config.get("launcher") == "inline":
        return f"run {run} plays and trains in one process: launcher=inline cannot be scaled"
    if isinstance(command, _BY_BUS) and _part(config, "bus").get("kind") == "memory":
        return f"run {run} keeps its bus in memory, where nobody can reach it: use bus.kind=sqlite"
    match command:
        case ScaleActors(count=count) if count > state.max_actors:
            return f"{count} actors are above the limit of {state.max_actors}: actors.max_count"
        case ScaleLearner(count=count) if count > state.max_learners:
            return (
                f"{count} learners are above the limit of {state.max_learners}: learner.max_count"
            )
        case ScaleLearner(count=count) if count > 1:
            return why_not_set(with_learners(state.config, count), {})
        case SetHyperparameters(values=values):
            return why_not_set(state.config, combined(state.hyperparameters, values))
    return None


def _answered(state: RunState, command: str, accepted: bool, now: float) -> RunState:
    waiting = dict(state.commands)
    asked = waiting.pop(command, None)
    after = _replace(state, commands=waiting, answered=state.answered.plus(command))
    if asked is None:
        return after
    if isinstance(asked, CreateRun):
        refused = asked.id == state.created_by and not accepted
        return _desiring(after, DELETED, status="deleted") if refused else after
    if accepted and why_not(state, asked) is None:
        return _carry_out(after, asked, now)
    return after


def _carry_out(state: RunState, command: Command, now: float) -> RunState:
    match command:
        case StartRun() | ResumeRun():
            return _started(_replace(_bounded(state, command), start_asked=True), now)
        case PauseRun():
            return _desiring(state, PAUSED, status="paused")
        case StopRun() if state.desired == PAUSED:
            return _desiring(state, STOPPED, status=_not_held(state))
        case StopRun():
            return _desiring(state, STOPPED)
        case LabelRun():
            return _labelled(state, command)
        case DeleteRun():
            return _replace(state, desired=DELETED, status="deleted", jobs={})
        case SetSeatMap(seats=seats, origin=origin):
            revision = state.seats_revision + 1
            return _replace(state, seats=seats, seats_revision=revision, seats_origin=origin)
        case ScaleActors(count=count, author=author):
            by_hand = state.scaled_by_hand or author != AUTHOR
            return _ordered(_replace(state, actors=count, scaled_by_hand=by_hand))
        case ScaleLearner(count=count):
            return _replace(state, learners=count)
        case SetHyperparameters(values=values):
            return _ordered(
                _replace(state, hyperparameters=combined(state.hyperparameters, values))
            )
        case SaveCheckpoint():
            return _ordered(_replace(state, checkpoints=state.checkpoints + 1))
        case Evaluate() | PlayMatch():
            return _replace(state, jobs={**state.jobs, command.id: command})
    return state


def _started(state: RunState, now: float) -> RunState:
    if state.desired == RUNNING:
        return state
    return _desiring(state, RUNNING, status=_not_held(state), reason="", queued_s=now)


def _bounded(state: RunState, command: Command) -> RunState:
    asked = named(command)
    return _ordered(_replace(state, stop=stop_after(state, asked))) if asked else state


def _labelled(state: RunState, label: LabelRun) -> RunState:
    given = {key: getattr(label, key) for key in ("name", "tags", "notes", "group")}
    return _replace(state, **{key: text for key, text in given.items() if text is not None})


def _not_held(state: RunState) -> str:
    """Running with workers that are there, as they are after a pause or before a stop took hold."""
    at_work = any(w.running and w.index < JOINED_FROM for w in state.workers.values())
    return "running" if at_work and state.status in ACTIVE else "queued"


def _desiring(state: RunState, desired: str, **changes: Any) -> RunState:
    """Another desired state; the learner is told where it has to hold, or no longer."""
    after = _replace(state, desired=desired, **changes)
    return _ordered(after) if after.orders.paused != state.orders.paused else after


def _ordered(state: RunState) -> RunState:
    """Something that the learner has to be told."""
    return _replace(state, orders_revision=state.orders_revision + 1)


def _with_worker(
    state: RunState,
    event: WorkerStarting | WorkerWaiting | WorkerStarted | WorkerFailed | WorkerExited,
) -> RunState:
    name = f"{event.kind}-{event.index}"
    worker = state.workers.get(name) or WorkerState(event.kind, event.index, event.incarnation)
    if event.incarnation < worker.incarnation:
        return state  # the last words of one whose work another has taken over
    match event:
        case WorkerStarting():
            worker = _replace(
                worker,
                incarnation=event.incarnation,
                pid=None,
                failed_for_good=False,
                resumes=worker.resumes + worker.ended_as_asked,
                ended_as_asked=False,
                host="",
                waits_for="",
            )
        case WorkerWaiting():
            worker = _replace(worker, waits_for=event.why)
        case WorkerStarted():
            worker = _replace(
                worker,
                pid=event.pid,
                running=True,
                started_s=event.time_s,
                host=event.host,
                waits_for="",
            )
        case WorkerFailed():
            worker = _replace(
                worker,
                last_error=_with_node(event.error, worker.host),
                last_detail=event.detail,
                failed_for_good=event.final,
                error_of=event.incarnation,
                error_s=event.time_s,
            )
        case WorkerExited():
            died = not event.expected
            worker = _replace(
                worker,
                running=False,
                deaths=worker.deaths + died,
                ended_as_asked=not died,
                waits_for="",
            )
            if died and worker.error_of != event.incarnation:  # it could not say so itself
                worker = _replace(
                    worker,
                    last_error=event.reason or _with_node(exit_text(event.code), worker.host),
                    last_detail="",
                    error_of=event.incarnation,
                    error_s=event.time_s,
                )
    return _replace(state, workers={**state.workers, name: worker})


def _with_node(error: str, host: str) -> str:
    """What went wrong there may be the node's affair: a file, a driver or a version."""
    return f"{error} (on {host})" if host and host not in error else error


def _part(config: Any, key: str) -> dict[str, Any]:
    """A part of a config that nobody has judged yet."""
    found = config.get(key) if isinstance(config, Mapping) else None
    return found if isinstance(found, dict) else {}


def _number(part: Mapping[str, Any], key: str, otherwise: int) -> int:
    found = part.get(key)
    return found if isinstance(found, int) else otherwise


def with_learners(content: Mapping[str, Any], count: int) -> dict[str, Any]:
    """What a run is, if so many learners train it."""
    config = _part(content, "config")
    learner = {**_part(config, "learner"), "count": count}
    return {**content, "config": {**config, "learner": learner}}


def exit_text(code: int) -> str:
    if code < 0:
        import signal

        try:
            return f"ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"ended by signal {-code}"
    return f"exited with code {code}"


def _replace(struct: _S, **changes: Any) -> _S:
    return msgspec.structs.replace(struct, **changes)
