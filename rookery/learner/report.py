"""What the learner tells the world: running figures from the stream of updates."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterable

import msgspec
import numpy as np

from rookery.learner.loop import Updated
from rookery.messages import (
    LeagueMetrics,
    LedgerSummary,
    PolicyMetrics,
    TrainingMetrics,
    WeightsVersion,
)
from rookery.messages.fragment import Episode, Fragment

WINDOW_EPISODES = 100


class Window(msgspec.Struct):
    """A policy's recent episodes. Plain data, part of the checkpoint."""

    episodes: list[Episode] = []  # the last 100
    count: int = 0
    trained: int = 0  # agent steps

    def note(self, fragment: Fragment, trained: bool = True) -> None:
        ended = fragment.header.episodes
        told = [e for e in ended if math.isfinite(e.total_reward)]  # a checkpoint's JSON has no NaN
        self.episodes = [*self.episodes, *told][-WINDOW_EPISODES:]
        self.count += len(ended)
        self.trained += int(np.count_nonzero(fragment.steps.valid)) if trained else 0

    @property
    def mean_return(self) -> float | None:
        return _mean(e.total_reward for e in self.episodes)

    @property
    def min_return(self) -> float | None:
        return _of_all(min, (e.total_reward for e in self.episodes))

    @property
    def max_return(self) -> float | None:
        return _of_all(max, (e.total_reward for e in self.episodes))


class Pace:
    """Steps a second from update to update, however rarely one comes; it falls while none does."""

    def __init__(self) -> None:
        self._since: float | None = None  # the last update that was read out
        self._last, self._steps, self._newest = 0.0, 0, 0
        self._rate = 0.0

    def note(self, steps: int, now: float) -> None:
        self._newest, self._last = steps, now
        if self._since is None:
            self._since = now  # the time of the first is mostly that of compiling
        else:
            self._steps += steps

    def shift(self, seconds: float) -> None:
        """Time that did not count."""
        if self._since is not None:
            self._since += seconds
            self._last += seconds

    def read(self, now: float) -> float:
        if self._since is None:
            return 0.0
        if self._steps and self._last > self._since:
            self._rate = self._steps / (self._last - self._since)
            self._since, self._steps = self._last, 0
        waited = max(now - self._since, 1e-9)
        return min(self._rate, self._newest / waited)


class Report:
    """Folds updates into figures; `metrics` reads them out and begins a new interval.

    A run is judged by the first of its policies.
    """

    def __init__(
        self, run: str, windows: dict[str, Window], seats: int, train_s: float, device: str = ""
    ) -> None:
        self.run, self.windows, self._device = run, windows, device
        self.first = next(iter(windows))
        self._seats = seats
        self._earlier_s = train_s
        self._began: float | None = None  # of this life: when its first step was played
        self._steady_since: float | None = None  # after the first update: compiled by then
        self._steady_steps = 0
        self._steady_last = 0.0
        self._lags: list[int] = []  # of the interval; its updates are let go of: they are large
        self._found: list[dict[str, dict[str, float]]] = []  # their values by policy
        self._values: dict[str, dict[str, float | None]] = {}
        self._pace = Pace()
        self._held_since: float | None = None

    def begin(self) -> None:
        """The first environment step of this life: credits were granted, actors play."""
        if self._began is None:
            self._began = time.monotonic()

    def note(self, updated: Updated) -> None:
        self.begin()
        now = time.monotonic()
        steps = sum(fragment.header.steps for fragment in updated.fragments)
        for fragment in updated.fragments:
            policy = fragment.header.policy
            self.windows[policy].note(fragment, policy not in updated.skipped)
        if self._steady_since is None:
            self._steady_since = now
        else:
            self._steady_steps += steps
            self._steady_last = now
        self._pace.note(steps, now)
        self._lags += updated.lags
        self._found.append(updated.values)

    def hold(self, held: bool) -> None:
        """A pause is no time of training."""
        now = time.monotonic()
        if held:
            self._held_since = now
        elif self._held_since is not None:
            away, self._held_since = now - self._held_since, None
            self._began = self._began + away if self._began is not None else None
            if self._steady_since is not None:
                self._steady_since += away
                self._steady_last += away
            self._pace.shift(away)

    @property
    def train_s(self) -> float:
        """Since the first environment step, over all lives of the run."""
        if self._began is None:
            return self._earlier_s
        now = time.monotonic() if self._held_since is None else self._held_since
        return self._earlier_s + max(0.0, now - self._began)

    @property
    def steps_per_s(self) -> float:
        if self._steady_since is None or self._steady_last <= self._steady_since:
            return 0.0
        return self._steady_steps / (self._steady_last - self._steady_since)

    @property
    def mean_return(self) -> float | None:
        return self.windows[self.first].mean_return

    @property
    def window_full(self) -> bool:
        return len(self.windows[self.first].episodes) == WINDOW_EPISODES

    def metrics(
        self,
        version: WeightsVersion,
        learning_rate: float,
        ledger: LedgerSummary,
        lag_max: int,
        league: LeagueMetrics | None = None,
        bus_lag: int | None = None,
        late: Iterable[str] = (),
        actors: Iterable[str] = (),
    ) -> TrainingMetrics:
        lags, self._lags = self._lags, []
        updates, self._found = self._found, []
        for policy in self.windows:  # an interval without an update repeats what the last one said
            found = [values[policy] for values in updates if policy in values]
            if found:
                self._values[policy] = {n: _mean(v[n] for v in found) for n in found[0]}
        first = self.windows[self.first]
        return TrainingMetrics(
            run=self.run,
            policy=self.first,
            generation=version.generation,
            updates=version.number,
            env_steps=ledger.trained,
            train_s=self.train_s,
            steps_per_s=self.steps_per_s,
            recent_steps_per_s=self._pace.read(time.monotonic()),
            host=socket.gethostname(),
            device=self._device,
            episodes=first.count,
            mean_return_100=first.mean_return,
            min_return_100=first.min_return,
            max_return_100=first.max_return,
            mean_length_100=_mean(e.length for e in first.episodes),
            lag_mean=_mean(lags) or 0.0,
            lag_max=lag_max,
            bus_lag=bus_lag,
            actors=tuple(actors),
            late=tuple(late),
            ledger=ledger,
            values={**self._values.get(self.first, {}), "learning_rate": learning_rate},
            policies=self._policies() if self._seats > 1 else {},
            seats=self._by_seat() if self._seats > 1 else {},
            league=league,
        )

    def _policies(self) -> dict[str, PolicyMetrics]:
        return {
            policy: PolicyMetrics(
                trained=window.trained,
                episodes=window.count,
                mean_return_100=window.mean_return,
                min_return_100=window.min_return,
                max_return_100=window.max_return,
                values=self._values.get(policy, {}),
            )
            for policy, window in self.windows.items()
        }

    def _by_seat(self) -> dict[str, float]:
        totals: dict[str, list[float]] = {}
        for window in self.windows.values():
            for episode in window.episodes:
                totals.setdefault(episode.seat, []).append(episode.total_reward)
        return {seat: sum(found) / len(found) for seat, found in sorted(totals.items())}


def _mean(numbers: Iterable[float]) -> float | None:
    return _of_all(lambda found: sum(found) / len(found), numbers)


def _of_all(figure: Callable[[list[float]], float], numbers: Iterable[float]) -> float | None:
    """None where there is no number, or where they lead to none: one NaN is enough."""
    found = list(numbers)
    if not found or not math.isfinite(sum(found)):
        return None
    return figure(found)
