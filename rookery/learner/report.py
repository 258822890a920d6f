"""What the learner tells the world: running figures from the stream of updates."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable

from rookery.codec import Episode
from rookery.learner.loop import Updated
from rookery.messages import LedgerSummary, TrainingMetrics, WeightsVersion

WINDOW_EPISODES = 100


class Report:
    """Folds updates into figures; `metrics` reads them out and begins a new interval."""

    def __init__(
        self, run: str, policy: str, episodes: Iterable[Episode], episode_count: int, train_s: float
    ) -> None:
        self.run, self.policy = run, policy
        self.episodes: deque[Episode] = deque(episodes, maxlen=WINDOW_EPISODES)
        self.episode_count = episode_count
        self._earlier_s = train_s
        self._began: float | None = None  # of this life: when its first step was played
        self._steady_since: float | None = None  # after the first update: compiled by then
        self._steady_steps = 0
        self._steady_last = 0.0
        self._interval: list[Updated] = []
        self._values: dict[str, float | None] = {}
        self._interval_since = time.monotonic()

    def begin(self) -> None:
        """The first environment step of this life: credits were granted, actors play."""
        if self._began is None:
            self._began = time.monotonic()

    def note(self, updated: Updated) -> None:
        self.begin()
        now = time.monotonic()
        steps = sum(fragment.header.steps for fragment in updated.fragments)
        for fragment in updated.fragments:
            self.episodes.extend(fragment.header.episodes)
            self.episode_count += len(fragment.header.episodes)
        if self._steady_since is None:
            self._steady_since = now
        else:
            self._steady_steps += steps
            self._steady_last = now
        self._interval.append(updated)

    @property
    def train_s(self) -> float:
        """Since the first environment step, over all lives of the run."""
        return self._earlier_s + (time.monotonic() - self._began if self._began else 0.0)

    @property
    def steps_per_s(self) -> float:
        if self._steady_since is None or self._steady_last <= self._steady_since:
            return 0.0
        return self._steady_steps / (self._steady_last - self._steady_since)

    @property
    def mean_return(self) -> float | None:
        if not self.episodes:
            return None
        return sum(e.total_reward for e in self.episodes) / len(self.episodes)

    @property
    def window_full(self) -> bool:
        return len(self.episodes) == WINDOW_EPISODES

    def metrics(
        self, version: WeightsVersion, learning_rate: float, ledger: LedgerSummary, lag_max: int
    ) -> TrainingMetrics:
        now = time.monotonic()
        updates, self._interval = self._interval, []
        elapsed, self._interval_since = now - self._interval_since, now
        steps = sum(f.header.steps for u in updates for f in u.fragments)
        lags = [lag for u in updates for lag in u.lags]
        if updates:  # an interval without an update repeats what the last one said
            self._values = {n: _mean(u.values[n] for u in updates) for n in updates[0].values}
        lengths = [e.length for e in self.episodes]
        return TrainingMetrics(
            run=self.run,
            policy=self.policy,
            generation=version.generation,
            updates=version.number,
            env_steps=ledger.trained,
            train_s=self.train_s,
            steps_per_s=self.steps_per_s,
            recent_steps_per_s=steps / elapsed if elapsed > 0 else 0.0,
            episodes=self.episode_count,
            mean_return_100=self.mean_return,
            mean_length_100=_mean(lengths),
            lag_mean=_mean(lags) or 0.0,
            lag_max=lag_max,
            ledger=ledger,
            values={**self._values, "learning_rate": learning_rate},
        )


def _mean(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    if not found:
        return None
    mean = sum(found) / len(found)
    return mean if math.isfinite(mean) else None
