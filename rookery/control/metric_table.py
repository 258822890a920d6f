"""A run's training metrics as columns of numbers, by the names that people ask for.

    table = MetricTable()
    table.take([record.payload for record in records])
    table["policies.main.policy_loss"]          # float64, NaN where a record said nothing

Names: the numbers of every run as they are (`mean_return_100`), losses and diagnostics without
`values.`, and `policies.NAME.X`, `seats.SEAT`, `ledger.X`, `ledger.dropped.REASON`, `league.X`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from rookery.messages import SCHEMA, decode_or_none

KEPT_RECORDS = 100_000  # the newest: as many as a learner leaves on its bus
SLACK_RECORDS = 25_000  # on top, so that the oldest are not let go of one by one
MOST_COLUMNS = 512  # a metric beyond these is not kept: names are the learner's, and are bounded
LARGEST = 2**53  # count that a float holds exactly

TIME = "time_s"  # a column, but no metric
TOP = (
    "mean_return_100",
    "min_return_100",
    "max_return_100",
    "mean_length_100",
    "recent_steps_per_s",
    "steps_per_s",
    "lag_mean",
    "lag_max",
    "bus_lag",
    "episodes",
    "updates",
    "env_steps",
    "train_s",
)
LEDGER = ("trained", "pending", "duplicates", "gaps", "damaged")
LEAGUE = ("rating", "uncertainty")
POLICY = ("mean_return_100", "min_return_100", "max_return_100", "trained", "episodes")

Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Values = dict[str, float | None]
Columns = dict[str, list[Any]]  # numbers, and None where nothing was said


class _Ledger(msgspec.Struct, gc=False):
    trained: Count
    dropped: dict[str, Count]
    pending: Count
    duplicates: Count = 0
    gaps: Count = 0
    damaged: Count = 0


class _Policy(msgspec.Struct, gc=False):
    values: Values
    mean_return_100: float | None = None
    min_return_100: float | None = None
    max_return_100: float | None = None
    trained: Count | None = None
    episodes: Count | None = None


class _League(msgspec.Struct, gc=False):
    rating: float | None = None
    uncertainty: float | None = None


class _Sample(msgspec.Struct, gc=False, kw_only=True, tag="training"):
    """The numbers of a TrainingMetrics; what is not named here is skipped, not decoded."""

    schema: int = SCHEMA
    time_s: float
    updates: Count
    env_steps: Count
    train_s: float
    steps_per_s: float
    recent_steps_per_s: float
    episodes: Count
    mean_return_100: float | None
    min_return_100: float | None = None
    max_return_100: float | None = None
    mean_length_100: float | None
    lag_mean: float
    lag_max: Count
    bus_lag: Count | None = None
    ledger: _Ledger
    values: Values
    policies: dict[str, _Policy] = {}
    seats: dict[str, float] = {}
    league: _League | None = None


_NO_POLICY, _NO_LEAGUE = _Policy(values={}), _League()


class MetricTable:
    """Columns of one length that grow at the end, in the order of `updates` and of `env_steps`."""

    def __init__(self) -> None:
        self.length = 0
        self._columns: dict[str, np.ndarray] = {}
        self._room = 0

    def __getitem__(self, name: str) -> np.ndarray:
        return self._columns[name][: self.length]

    @property
    def names(self) -> list[str]:
        """Those of every run, then those of this one."""
        return [*TOP, *sorted(self._columns.keys() - {*TOP, TIME})]

    @property
    def nbytes(self) -> int:
        return len(self._columns) * self._room * 8

    def take(self, payloads: Iterable[bytes]) -> None:
        """Add what the learner said next; what is no TrainingMetrics is passed over.

        A run that goes on from a checkpoint counts from there again: what it does over is taken
        back. In updates, as everywhere, and in steps, as a batch done over may hold fewer.
        """
        decoded = [decode_or_none(payload, _Sample) for payload in payloads]
        samples: list[_Sample] = []
        updates = env_steps = LARGEST  # the least from here to the end
        for sample in reversed([sample for sample in decoded if sample is not None]):
            if sample.updates <= updates and sample.env_steps <= env_steps:
                samples.append(sample)
            updates, env_steps = min(updates, sample.updates), min(env_steps, sample.env_steps)
        if samples:
            self._cut_back(updates, env_steps)
            self._append(_columns(samples[::-1]), len(samples))

    def _cut_back(self, updates: int, env_steps: int) -> None:
        if self.length:
            kept = np.searchsorted(self["updates"], updates, side="right")
            self.length = int(min(kept, np.searchsorted(self["env_steps"], env_steps, "right")))

    def _append(self, columns: Columns, count: int) -> None:
        self._make_room(count)
        end = self.length + count
        for name in columns:
            if name not in self._columns and len(self._columns) < MOST_COLUMNS:
                self._columns[name] = np.full(self._room, np.nan)
        for name, column in self._columns.items():
            # None becomes NaN; no other can be, and no infinity: JSON has none
            column[self.length : end] = np.array(columns.get(name, np.nan), dtype=np.float64)
        self.length = end

    def _make_room(self, count: int) -> None:
        over = self.length + count - KEPT_RECORDS
        gone = over if over > SLACK_RECORDS else 0
        if not gone and self.length + count <= self._room:
            return
        kept = self.length - gone
        self._room = max(256, 2 * kept, kept + count)
        for name, column in self._columns.items():
            self._columns[name] = np.full(self._room, np.nan)
            self._columns[name][:kept] = column[gone : self.length]
        self.length = kept


def _columns(samples: list[_Sample]) -> Columns:
    """What the samples say, by name. The names of every run are taken, whatever a value is called,
    and come first, so that no others can crowd them out."""
    found: Columns = {name: _fields(samples, name) for name in (*TOP, TIME)}
    ledgers = [sample.ledger for sample in samples]
    found |= {f"ledger.{name}": _fields(ledgers, name) for name in LEDGER}
    found["ledger.dropped"] = [sum(one.dropped.values()) for one in ledgers]
    if any(sample.league for sample in samples):
        leagues = [sample.league or _NO_LEAGUE for sample in samples]
        found |= {f"league.{name}": _fields(leagues, name) for name in LEAGUE}
    for policy in sorted({name for sample in samples for name in sample.policies}):
        parts = [sample.policies.get(policy, _NO_POLICY) for sample in samples]
        for name in POLICY:
            found[f"policies.{policy}.{name}"] = _fields(parts, name)
        _spread(found, f"policies.{policy}.", [part.values for part in parts])
    _spread(found, "", [sample.values for sample in samples])
    _spread(found, "seats.", [sample.seats for sample in samples])
    _spread(found, "ledger.dropped.", [one.dropped for one in ledgers])
    return found


def _fields(structs: Sequence[msgspec.Struct], name: str) -> list[Any]:
    return list(map(operator.attrgetter(name), structs))


def _spread(found: Columns, prefix: str, bags: Sequence[Mapping[str, Any]]) -> None:
    """A column for each key of the bags, unless its name is taken."""
    for key in sorted(set().union(*bags)):
        if prefix + key not in found:
            found[prefix + key] = [bag.get(key) for bag in bags]
