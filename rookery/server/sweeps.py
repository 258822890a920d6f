"""Sweeps as a server tells of them, from the log that it follows anyway.

`rookery sweep show` reads the home's log from its beginning. A page asks every few seconds: here
results are read once and then as far as the log goes on, and what the options of a search come to
in a config is found out once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rookery.control.home import Home
from rookery.control.models import (
    SearchedKey,
    SweepBest,
    SweepDetail,
    SweepRow,
    Sweeps,
    SweepTrial,
)
from rookery.control.run_state import RunState
from rookery.server.feed.memo import Memo
from rookery.tuning.log import Results
from rookery.tuning.population_conductor import trials_in
from rookery.tuning.space import Choice, Dimension, Values
from rookery.tuning.spec import SweepFiles, SweepSpec
from rookery.tuning.sweep import Sweep, importance_of, table_of
from rookery.tuning.text import write_condition, write_mapping
from rookery.tuning.trials import Result

if TYPE_CHECKING:
    from rookery.server.feed.follower import Follower

YOUNG_S = 1.0  # how old an answer may be that others got too


class SweepLook:
    """Safe from threads. Slow, where a sweep is asked for the first time."""

    def __init__(self, home: Home, follower: Follower) -> None:
        self._home, self._follower = home, follower
        self._files = SweepFiles(home)
        self._results = Results(home)
        self._reading = threading.Lock()
        self._known: dict[str, Sweep] = {}
        self._details: Memo[SweepDetail] = Memo(YOUNG_S)

    def list(self, limit: int) -> Sweeps:
        """The newest first."""
        specs = self._files.all()[::-1]
        states, results = self._read(specs)
        rows = [self._row(spec, states, results) for spec in specs[:limit]]
        return Sweeps(sweeps=rows, total=len(specs))

    def show(self, name: str, limit: int) -> SweepDetail:
        """`limit`: trials in its table. At most YOUNG_S old."""
        spec = self._files.find(name)
        states = self._follower.states
        return self._details.get((spec.id, limit), (states,), lambda: self._detail(spec, limit))

    def _read(
        self, specs: Sequence[SweepSpec]
    ) -> tuple[Mapping[str, RunState], Mapping[str, Result]]:
        """What the log says now. The end is taken first: the states are never behind it."""
        with self._reading:
            for spec in specs:
                self._results.want(spec)
            end = self._follower.end("events")
            states = self._follower.states
            if specs:
                self._results.read(self._follower.log, states, end)
            return states, dict(self._results.found)

    def _row(
        self, spec: SweepSpec, states: Mapping[str, RunState], results: Mapping[str, Result]
    ) -> SweepRow:
        sweep = self._sweep(spec)
        trials = trials_in(spec, states, results, _no_values)
        return SweepRow(
            sweep=spec.id,
            environment=sweep.environment,
            status=sweep.status_of(trials),
            trials=spec.trials,
            over=sum(trial.is_over for trial in trials),
            best=max((trial.value for trial in trials if trial.value is not None), default=None),
            created_s=spec.created_s,
        )

    def _detail(self, spec: SweepSpec, limit: int) -> SweepDetail:
        sweep = self._sweep(spec)
        states, results = self._read([spec])
        trials = trials_in(spec, states, results, sweep.configs.values_of)
        table = [SweepTrial(**row) for row in table_of(trials)]
        return SweepDetail(
            sweep=spec.id,
            status=sweep.status_of(trials),
            environment=sweep.environment,
            **spec.model_dump(
                include={"trials", "seeds", "sampler", "scheduler", "episodes", "created_s"}
            ),
            over=sum(trial.is_over for trial in trials),
            search=write_mapping(spec.space),
            keys=[_searched(dimension) for dimension in spec.space.dimensions],
            best=_best(table),
            importance=importance_of(spec.space, trials),
            table=table[:limit],
            begun=len(table),
        )

    def _sweep(self, spec: SweepSpec) -> Sweep:
        """With what was found out about its configs."""
        known = self._known.get(spec.id)
        if known is None or known.spec != spec:
            known = self._known[spec.id] = Sweep(self._home, spec)
        return known


def _no_values(config: Mapping[str, Any]) -> Values:
    """A list shows none, and reading them out of a config takes building some."""
    return {}


def _best(table: Sequence[SweepTrial]) -> SweepBest | None:
    """The first of the table, where it is done."""
    if not table or table[0].value is None:
        return None
    return SweepBest(**table[0].model_dump(include={"trial", "value", "values", "runs"}))


def _searched(dimension: Dimension) -> SearchedKey:
    domain, condition = dimension.domain, write_condition(dimension)
    if isinstance(domain, Choice):
        ends: dict[str, Any] = {"options": list(domain.options), "low": None, "high": None}
        return SearchedKey(key=dimension.key, **ends, log=False, condition=condition)
    ends = {"options": [], "low": domain.low, "high": domain.high}
    return SearchedKey(key=dimension.key, **ends, log=domain.log, condition=condition)
