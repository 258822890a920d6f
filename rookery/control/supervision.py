"""When a worker that died is started again, when one that lives has to be ended, and when a run is
given up. Without I/O.

A worker that reports its own failure earns a strike that only a long life redeems; one that was
killed from outside, or ended because it made no progress, earns a strike that any training progress
redeems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from rookery.config.models import RestartConfig
from rookery.worker.progress import Progress

REDEEMED_AFTER_S = 300.0
LONG_S = 1800.0  # a large network compiles, a large checkpoint is written
ASLEEP_S = 4.0  # between two looks of a watcher that looks about every second


class Allowance(NamedTuple):
    """How long a worker may give no sign of life, and how long it may be at the same thing."""

    silent_s: float
    same_s: float


def allowance(doing: str, silent_s: float, deadline_s: float) -> Allowance:
    """Code of environments and players may hold everything up: theirs is the deadline, and a
    little more, as the worker itself has better words for it."""
    match doing:
        case "step" | "reset":
            return Allowance(deadline_s + silent_s, deadline_s + silent_s)
        case "starting" | "making the environment":
            return Allowance(LONG_S, LONG_S)
        case "waiting" | "sending" | "full bus" | "owning" | "out of reach":
            return Allowance(silent_s, math.inf)
        case "training" | "saving":
            return Allowance(silent_s, LONG_S)
        case _:
            return Allowance(deadline_s + silent_s, LONG_S)


class Silence(NamedTuple):
    """A worker without progress."""

    word: str  # frozen, or hung
    seconds: float
    due: bool  # to be ended now

    def __str__(self) -> str:
        return f"{self.word} for {self.seconds:.0f} s"


class Vigil:
    """Looks at workers again and again, by the clock that it is given.

    Whoever looks may have been asleep, stopped or held up itself: then everybody has their time
    again, from that moment.
    """

    def __init__(self, silent_s: float, deadline_s: float) -> None:
        self._silent_s, self._deadline_s = silent_s, deadline_s
        self._looked: float | None = None
        self._awake_since = -math.inf

    def wake(self, now: float) -> bool:
        """Before each round of looking; whether there was none for long."""
        slept = self._looked is None or now - self._looked > ASLEEP_S
        if slept:
            self._awake_since = now
        self._looked = now
        return slept

    def judge(self, progress: Progress, stopped: bool, now: float) -> Silence | None:
        """What is wrong with a worker, if anything is; `stopped`: the system says so."""
        allowed = allowance(progress.doing, self._silent_s, self._deadline_s)
        silent = now - max(progress.beat, self._awake_since)
        silent_s = self._silent_s if stopped else allowed.silent_s
        if stopped or silent >= silent_s / 2:
            return Silence("frozen", now - progress.beat, silent >= silent_s)
        same = now - max(progress.since, self._awake_since)
        return Silence("hung", now - progress.since, True) if same >= allowed.same_s else None


@dataclass
class RestartHistory:
    """One worker's deaths."""

    strikes: int = 0
    reported_strikes: int = 0
    started_s: float = 0.0
    start_at: float = 0.0  # not before this time
    steps_at_death: int = -1


class Supervisor:
    """Decides by the clock that it is given."""

    def __init__(self, config: RestartConfig) -> None:
        self._config = config
        self._records: dict[str, RestartHistory] = {}

    def may_start(self, worker: str, now: float) -> bool:
        return now >= self._record(worker).start_at

    def started(self, worker: str, now: float) -> None:
        self._record(worker).started_s = now

    def died(self, worker: str, now: float, reported: bool, env_steps: int) -> bool:
        """Note a death; False if the worker should not be started again."""
        record = self._record(worker)
        if now - record.started_s > REDEEMED_AFTER_S:
            record.strikes = record.reported_strikes = 0
        elif env_steps > record.steps_at_death:
            record.strikes = record.reported_strikes
        record.steps_at_death = env_steps
        record.strikes += 1
        record.reported_strikes += reported
        backoff = self._config.backoff_s * 2.0 ** min(record.strikes - 1, 64)
        record.start_at = now + min(backoff, self._config.max_backoff_s)
        return record.strikes <= self._config.max_restarts

    def _record(self, worker: str) -> RestartHistory:
        return self._records.setdefault(worker, RestartHistory())
