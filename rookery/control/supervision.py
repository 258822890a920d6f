"""When a worker that died is started again, and when a run is given up. Without I/O.

A worker that reports its own failure earns a strike that only a long life redeems; one that was
killed from outside earns a strike that any training progress redeems.
"""

from __future__ import annotations

from dataclasses import dataclass

from rookery.config.models import RestartConfig

REDEEMED_AFTER_S = 300.0


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
