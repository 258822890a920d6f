"""How a run's metrics went over time: read once, followed from there, thinned for a chart.

    history = History(home)
    history.metrics(run, ["mean_return_100", "policy_loss"], points=500, start=None, stop=None)

What was decoded is kept, so that the next question only reads what is new. The last record that was
read is read again each time: where it is not there any more (the bus was deleted, or made again),
all is read anew.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rookery.bus import EARLIEST, Bus, Position, Record, Subscription
from rookery.control.metric_table import LARGEST, TIME, MetricTable
from rookery.control.models import Metrics, Series
from rookery.errors import InputError, RookeryError, UnknownName
from rookery.messages import METRICS_TRAINING

if TYPE_CHECKING:
    from rookery.control.home import Home
    from rookery.control.run_state import RunState

KEPT_RUNS = 64
KEPT_BYTES = 256 << 20  # of all runs together; the one that was asked for last stays in any case
AT_ONCE = 1024  # records of one poll
SHOWN_FIRST = ("mean_return_100", "recent_steps_per_s", "lag_mean")

logger = logging.getLogger(__name__)


class History:
    """The metrics of all runs of a home, those asked for lately in memory. Safe from threads."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Followed] = OrderedDict()  # least lately asked for first

    def metrics(
        self, run: str, names: Sequence[str], points: int, start: int | None, stop: int | None
    ) -> Metrics:
        """At most `points` of each metric, from `start` to `stop` env_steps, both included.

        No names: the return, the speed, the lag and the losses. Reads the bus, so it is slow.
        """
        if points < 1:
            raise InputError(f"{points} points of each metric were asked for: ask for at least 1")
        followed = self._followed(run)
        with followed.lock:
            followed.catch_up(self._home)
            answer = _answer(followed.table, run, names, points, start, stop)
        self._let_go()
        return answer

    def warm(self, runs: Sequence[str]) -> None:
        """Read these before anyone asks; the last of them is kept the longest. Slow."""
        for run in runs:
            try:
                followed = self._followed(run)
                with followed.lock:
                    followed.catch_up(self._home)
            except (RookeryError, OSError) as error:  # whoever asks for it is told
                logger.debug("the metrics of %s cannot be read: %s", run, error)
        self._let_go()

    def _followed(self, run: str) -> _Followed:
        with self._lock:
            found = self._runs.get(run)
            if found is not None:
                self._runs.move_to_end(run)
                return found
        states = self._home.states(run)  # folds the log: not while others wait for the lock
        if run not in states:
            raise UnknownName("run", run, states, "Run `rookery runs list`.")
        with self._lock:
            found = self._runs.setdefault(run, _Followed(states[run]))
            self._runs.move_to_end(run)
            return found

    def _let_go(self) -> None:
        with self._lock:
            total = sum(followed.table.nbytes for followed in self._runs.values())
            while len(self._runs) > 1 and (len(self._runs) > KEPT_RUNS or total > KEPT_BYTES):
                _, oldest = self._runs.popitem(last=False)
                total -= oldest.table.nbytes


class _Followed:
    """A run's metrics as far as they were read. Hold `lock` to use it."""

    def __init__(self, state: RunState) -> None:
        self.lock = threading.Lock()
        self.table = MetricTable()
        self._state = state  # for the bus's config, which never changes
        self._last: Record | None = None
        self._position: Position = ()

    def catch_up(self, home: Home) -> None:
        bus = home.read_run_bus(self._state)
        if bus is None:
            self._forget()
            return
        with contextlib.closing(bus):
            if bus.trouble is not None:
                return  # what is known is better than nothing
            subscription = self._resumed(bus)
            while records := subscription.poll(0.0, limit=AT_ONCE):
                self.table.take(record.payload for record in records)
                self._last, self._position = records[-1], subscription.position()

    def _resumed(self, bus: Bus) -> Subscription:
        """A reader after the last record, if that is still there; else from the beginning."""
        last = self._last
        if last is not None and len(bus.end(METRICS_TRAINING)) == len(self._position):
            at = list(self._position)
            at[last.partition] = last.offset
            subscription = bus.subscribe(METRICS_TRAINING, tuple(at))
            if subscription.poll(0.0, limit=1) == [last]:
                return subscription
            subscription.close()
        self._forget()
        return bus.subscribe(METRICS_TRAINING, EARLIEST)

    def _forget(self) -> None:
        self.table, self._last, self._position = MetricTable(), None, ()


def _answer(
    table: MetricTable,
    run: str,
    names: Sequence[str],
    points: int,
    start: int | None,
    stop: int | None,
) -> Metrics:
    known = table.names
    chosen = list(dict.fromkeys(names)) or _shown_first(known)
    if not table.length:  # nobody can tell yet what its metrics will be
        none = [Series(name=n, steps=[], time_s=[], value=[], low=[], high=[]) for n in chosen]
        return Metrics(run=run, points=0, names=known, series=none)
    for name in chosen:
        if name not in known:
            raise UnknownName("metric", name, known, "Ask without names to see them all.")
    inside = _inside(table["env_steps"], start, stop)
    steps, time_s = table["env_steps"][inside], table[TIME][inside]
    series = [_thinned(name, table[name][inside], steps, time_s, points) for name in chosen]
    return Metrics(run=run, points=len(steps), names=known, series=series)


def _shown_first(known: Sequence[str]) -> list[str]:
    """Where nobody says what to show: how well, how fast, how stale, and what goes wrong."""
    losses = [name for name in known if name.endswith("loss") and "." not in name]
    returns = [n for n in known if n.startswith("policies.") and n.endswith(".mean_return_100")]
    return [*SHOWN_FIRST, *losses, *returns]


def _inside(env_steps: np.ndarray, start: int | None, stop: int | None) -> slice:
    first = 0 if start is None else np.searchsorted(env_steps, min(max(start, 0), LARGEST))
    if stop is None:
        return slice(int(first), None)
    return slice(int(first), int(np.searchsorted(env_steps, min(max(stop, -1), LARGEST), "right")))


def _thinned(
    name: str, values: np.ndarray, steps: np.ndarray, time_s: np.ndarray, points: int
) -> Series:
    """Stretches of equally many records: the last number in each, where it was, and the extremes.

    A stretch without a number stands where it ends.
    """
    count = len(values)
    if not count:
        return Series(name=name, steps=[], time_s=[], value=[], low=[], high=[])
    stretches = min(points, count)
    starts = np.arange(stretches) * count // stretches
    ends = np.append(starts[1:], count) - 1
    at = _last_numbers(values, starts, ends)
    return Series(
        name=name,
        steps=steps[at].astype(np.int64).tolist(),
        time_s=time_s[at].tolist(),
        value=_or_none(values[at]),
        low=_or_none(np.fmin.reduceat(values, starts)),
        high=_or_none(np.fmax.reduceat(values, starts)),
    )


def _last_numbers(values: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Where the last number of each stretch is; its end, where it has none."""
    numbers = np.flatnonzero(~np.isnan(values))
    if len(numbers) in (0, len(values)):
        return ends
    newest = numbers[np.maximum(np.searchsorted(numbers, ends, "right") - 1, 0)]
    return np.where((starts <= newest) & (newest <= ends), newest, ends)


def _or_none(values: np.ndarray) -> list[float | None]:
    return [None if math.isnan(number) else number for number in values.tolist()]
