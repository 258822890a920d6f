"""Events: what became of each command, and what happened. Controller, workers -> everyone."""

from __future__ import annotations

from typing import Any

import msgspec

from rookery.messages.json_records import JsonRecord


class _Event(JsonRecord, frozen=True, kw_only=True):
    run: str


class CommandAccepted(_Event, frozen=True, kw_only=True, tag="command_accepted"):
    command: str


class CommandRejected(_Event, frozen=True, kw_only=True, tag="command_rejected"):
    command: str
    why: str


class RunOwned(_Event, frozen=True, kw_only=True, tag="run_owned"):
    """A controller took the run's lease."""

    pid: int
    by: str = "terminal"  # or "server", which goes on with it after its own death
    again: bool = False  # it had the lease already, and was asked to start what it carries


class WorkerStarting(_Event, frozen=True, kw_only=True, tag="worker_starting"):
    """Written before the process exists, so that an incarnation is never used twice."""

    kind: str  # "actor" or "learner"
    index: int
    incarnation: int


class WorkerWaiting(_Event, frozen=True, kw_only=True, tag="worker_waiting"):
    """Its launcher has no place for it yet: it begins when there is one."""

    kind: str
    index: int
    incarnation: int
    why: str  # what it waits for, in a few words


class WorkerStarted(_Event, frozen=True, kw_only=True, tag="worker_started"):
    kind: str
    index: int
    incarnation: int
    pid: int
    host: str = ""  # the node that it lives on; empty: its owner's machine


class WorkerFailed(_Event, frozen=True, kw_only=True, tag="worker_failed"):
    """A worker's own account of what went wrong, written by itself before it exits."""

    kind: str
    index: int
    incarnation: int
    error: str  # one line
    detail: str = ""  # the traceback of the user's own code, where there is one
    final: bool = False  # another try can't help


class WorkerExited(_Event, frozen=True, kw_only=True, tag="worker_exited"):
    kind: str
    index: int
    incarnation: int
    code: int  # negative: the signal that ended it
    expected: bool = False
    reason: str = ""  # what its launcher knows of it


class CheckpointSaved(_Event, frozen=True, kw_only=True, tag="checkpoint_saved"):
    name: str
    env_steps: int
    updates: int | None = None  # None in older messages
    mean_return_100: float | None = None
    train_s: float | None = None


class MatchPlayed(_Event, frozen=True, kw_only=True, tag="match_played"):
    """Games outside training between frozen players, for the ladder."""

    players: tuple[str, str]
    wins: int  # of the first
    draws: int
    losses: int


class HyperparametersChanged(_Event, frozen=True, kw_only=True, tag="hyperparameters_changed"):
    """The learner took up what was set: from this update on, and all that was set before."""

    update: int  # the first that trains with them
    env_steps: int
    values: dict[str, float]


class UpdateSkipped(_Event, frozen=True, kw_only=True, tag="update_skipped"):
    """An update would have made weights that are not finite: they stayed as they were."""

    update: int
    env_steps: int
    why: str
    count: int  # how many the learner has skipped since it began


class TrainingHeld(_Event, frozen=True, kw_only=True, tag="training_held"):
    """The learner paused, or went on."""

    held: bool
    update: int
    env_steps: int


class JobStarted(_Event, frozen=True, kw_only=True, tag="job_started"):
    command: str
    pid: int


class JobDone(_Event, frozen=True, kw_only=True, tag="job_done"):
    """An evaluation or a match has its result, or failed."""

    command: str
    result: dict[str, Any] = msgspec.field(default_factory=dict)
    error: str = ""


class CheckpointDamaged(_Event, frozen=True, kw_only=True, tag="checkpoint_damaged"):
    name: str
    why: str


class RunEnded(_Event, frozen=True, kw_only=True, tag="run_ended"):
    """The learner or the controller says how this stretch of the run ended.

    The learner knows how far it came; whoever says it in its place leaves that open.
    """

    status: str  # solved, finished, limited, stopped, failed
    reason: str
    env_steps: int | None = None
    updates: int | None = None
    mean_return_100: float | None = None
    train_s: float | None = None


Event = (
    CommandAccepted
    | CommandRejected
    | RunOwned
    | WorkerStarting
    | WorkerWaiting
    | WorkerStarted
    | WorkerFailed
    | WorkerExited
    | CheckpointSaved
    | CheckpointDamaged
    | HyperparametersChanged
    | TrainingHeld
    | UpdateSkipped
    | JobStarted
    | JobDone
    | MatchPlayed
    | RunEnded
)
