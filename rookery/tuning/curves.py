"""The returns of runs on their way, at certain numbers of steps, read from their buses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.bus import EARLIEST, Bus, Subscription
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.messages import METRICS_TRAINING, TrainingMetrics, decode_or_none


class Curves:
    """Of each run: the mean return of its last 100 episodes when it first had so many steps."""

    def __init__(self, home: Home, rungs: Sequence[int]) -> None:
        self._home, self.rungs = home, rungs
        self._readers: dict[str, tuple[Bus, Subscription]] = {}
        self._whole: set[str] = set()  # runs that have ended, and were read to their end
        self.found: dict[str, dict[int, float]] = {}  # run -> rung -> return

    def read(self, state: RunState, has_ended: bool) -> Mapping[int, float]:
        """What is known of a run now."""
        curve = self.found.setdefault(state.id, {})
        if not self.rungs or state.id in self._whole:
            return curve
        reader = self._reader(state)
        while reader is not None and (records := reader.poll(0.0, limit=1024)):
            for record in records:
                metrics = decode_or_none(record.payload, TrainingMetrics)
                if metrics is not None and metrics.mean_return_100 is not None:
                    self._note(curve, metrics.env_steps, metrics.mean_return_100)
        if has_ended:
            self._whole.add(state.id)
            self._close(state.id)
        return curve

    def _note(self, curve: dict[int, float], steps: int, value: float) -> None:
        for rung in self.rungs:
            if rung <= steps:
                curve.setdefault(rung, value)

    def _reader(self, state: RunState) -> Subscription | None:
        if state.id not in self._readers:
            bus = self._home.read_run_bus(state)
            if bus is None:
                return None
            self._readers[state.id] = bus, bus.subscribe(METRICS_TRAINING, EARLIEST)
        return self._readers[state.id][1]

    def _close(self, run: str) -> None:
        bus, _ = self._readers.pop(run, (None, None))
        if bus is not None:
            bus.close()

    def close(self) -> None:
        for run in list(self._readers):
            self._close(run)
