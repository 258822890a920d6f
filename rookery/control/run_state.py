"""The state of a run: a fold of its commands and events, without I/O.

    state = None
    for message in log: state = apply(state, message)

A command is first judged (`why_not`) by the controller that owns the run, whose CommandAccepted or
CommandRejected event makes it count; a command id that was answered before is not judged again.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from rookery.messages import (
    ChangeSeats,
    CheckpointDamaged,
    CheckpointSaved,
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    Event,
    RunEnded,
    RunOwned,
    StartRun,
    StopRun,
    WorkerExited,
    WorkerFailed,
    WorkerStarted,
    WorkerStarting,
)

_S = TypeVar("_S", bound=msgspec.Struct)

RUNNING, STOPPED, DELETED = "running", "stopped", "deleted"

# desired state -> commands that make sense in it; anything else is rejected
_ALLOWED: dict[str, tuple[type, ...]] = {
    STOPPED: (StartRun, StopRun, DeleteRun, ChangeSeats),
    RUNNING: (StartRun, StopRun, ChangeSeats),
    DELETED: (),
}


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

    @property
    def restarts(self) -> int:
        return self.incarnation - 1


class RunState(msgspec.Struct, frozen=True):
    """Everything that the log says about a run."""

    id: str
    config: dict[str, Any]
    created_s: float
    desired: str = STOPPED
    status: str = "created"  # created, running, solved, finished, limited, stopped, failed, deleted
    reason: str = ""
    owner_pid: int | None = None
    workers: dict[str, WorkerState] = {}  # "actor-0" -> state
    checkpoint: str | None = None
    env_steps: int = 0
    damaged: dict[str, str] = {}  # checkpoint -> why
    commands: dict[str, Command] = {}  # waiting for an answer, by id
    answered: frozenset[str] = frozenset()
    seats: dict[str, Any] | None = None  # as they were changed, if ever
    seats_revision: int = 0


def apply(state: RunState | None, message: Command | Event) -> RunState | None:
    """The state after one more message of its log; messages before CreateRun are ignored."""
    if isinstance(message, CreateRun):
        if state is not None:
            return state
        return RunState(
            message.run, message.config, message.time_s, answered=frozenset([message.id])
        )
    if state is None:
        return None
    match message:
        case StartRun() | StopRun() | DeleteRun() | ChangeSeats():
            if message.id in state.answered or message.id in state.commands:
                return state
            return _replace(state, commands={**state.commands, message.id: message})
        case CommandAccepted(command=command) | CommandRejected(command=command):
            waiting = dict(state.commands)
            asked = waiting.pop(command, None)
            state = _replace(state, commands=waiting, answered=state.answered | {command})
            if asked is None or isinstance(message, CommandRejected) or why_not(state, asked):
                return state
            return _carry_out(state, asked)
        case RunOwned(pid=pid):
            workers = {n: _replace(w, running=False) for n, w in state.workers.items()}
            return _replace(state, owner_pid=pid, workers=workers)
        case WorkerStarting() | WorkerStarted() | WorkerFailed() | WorkerExited():
            return _with_worker(state, message)
        case CheckpointSaved(name=name, env_steps=env_steps):
            return _replace(state, checkpoint=name, env_steps=env_steps)
        case CheckpointDamaged(name=name, why=why):
            return _replace(state, damaged={**state.damaged, name: why})
        case RunEnded() if state.status != "running":
            return state  # the first word counts: a learner told to stop by a failure adds nothing
        case RunEnded(status="stopped") if state.desired == RUNNING:
            return state  # said by a learner that was stopped before the run was started again
        case RunEnded(status=status, reason=reason):
            return _replace(state, status=status, reason=reason, desired=STOPPED)
    return state


def why_not(state: RunState | None, command: Command) -> str | None:
    """Why a command cannot be carried out now; None if it can."""
    if isinstance(command, CreateRun):
        return None if state is None else f"run {command.run} exists already"
    if state is None:
        return f"there is no run {command.run}"
    if isinstance(command, _ALLOWED[state.desired]):
        return None
    if state.desired == DELETED:
        return f"run {command.run} was deleted"
    return f"run {command.run} is running: stop it first"


def _carry_out(state: RunState, command: Command) -> RunState:
    match command:
        case StartRun() if state.desired != RUNNING:
            return _replace(state, desired=RUNNING, status="running", reason="")
        case StopRun():
            return _replace(state, desired=STOPPED)
        case DeleteRun():
            return _replace(state, desired=DELETED, status="deleted")
        case ChangeSeats(seats=seats):
            return _replace(state, seats=seats, seats_revision=state.seats_revision + 1)
    return state


def _with_worker(
    state: RunState, event: WorkerStarting | WorkerStarted | WorkerFailed | WorkerExited
) -> RunState:
    name = f"{event.kind}-{event.index}"
    worker = state.workers.get(name) or WorkerState(event.kind, event.index, event.incarnation)
    if event.incarnation < worker.incarnation:
        return state  # the last words of one whose work another has taken over
    match event:
        case WorkerStarting():
            worker = _replace(
                worker, incarnation=event.incarnation, pid=None, failed_for_good=False
            )
        case WorkerStarted():
            worker = _replace(worker, pid=event.pid, running=True)
        case WorkerFailed():
            worker = _replace(
                worker,
                last_error=event.error,
                last_detail=event.detail,
                failed_for_good=event.final,
            )
        case WorkerExited():
            died = not event.expected
            worker = _replace(worker, running=False, deaths=worker.deaths + died)
            if died and worker.last_error is None:
                worker = _replace(worker, last_error=exit_text(event.code))
    return _replace(state, workers={**state.workers, name: worker})


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
