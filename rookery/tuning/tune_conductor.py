"""A sweep on a Ray cluster: as `conductor`, but Ray Tune says when there is room for another trial,
and which are ended early.

What Tune knows is told anew to each life of it, from the log: a trial that was there before is
offered again, with all that came of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import msgspec

from rookery.control.home import Home
from rookery.control.service import Check
from rookery.errors import InputError, MissingExtra, RookeryError
from rookery.launchers.ray.connect import CLIENT
from rookery.launchers.ray.link import Link, LinkDown
from rookery.launchers.ray.settings import RaySettings
from rookery.launchers.ray.words import Offer, Pruned, Tell, Told, TrialReport, TuneOrder
from rookery.tuning.carrier import run_cost
from rookery.tuning.conductor import Conductor
from rookery.tuning.configs import Configs
from rookery.tuning.curves import Curves
from rookery.tuning.spec import SweepSpec
from rookery.tuning.text import write_value
from rookery.tuning.trials import Trial

TELL_S = 0.5  # between two words with Tune
LAST_WORDS_S = 5.0  # that it has to end


def check_tune(settings: RaySettings) -> None:
    """Raise where there can be no Tune."""
    if find_spec("ray") is None or find_spec("pyarrow") is None:
        raise MissingExtra("a sweep with launcher=ray", "ray-tune")
    if settings.address.startswith(CLIENT):
        raise InputError(
            f"Ray Tune wants a node of the cluster, and this machine is a client "
            f"({settings.address}): begin the sweep on a node, or as a Ray job"
        )


class Tune(Protocol):
    """Ray Tune, wherever it is."""

    @property
    def life(self) -> int:
        """Another one knows nothing yet."""

    @property
    def cpus(self) -> int: ...

    def tell(self, word: Tell) -> Told | None:
        """None: it is not there now."""


class FarTune:
    """In the driver of a link."""

    def __init__(self, link: Link) -> None:
        check_tune(link.settings)
        self._link = link

    @property
    def life(self) -> int:
        return self._link.lives

    @property
    def cpus(self) -> int:
        return max(1, int(self._link.wait().cpus))

    def tell(self, word: Tell) -> Told | None:
        self._link.open()
        try:
            return msgspec.convert(self._link.ask(word), Told)
        except LinkDown:
            return None


class TuneConductor(Conductor):
    """Of a sweep with launcher=ray."""

    def __init__(
        self,
        home: Home,
        spec: SweepSpec,
        configs: Configs,
        tune: Tune,
        check: Check | None = None,
        rungs: Sequence[int] | None = None,
    ) -> None:
        """`rungs`: at which Tune hears of runs, where the sweep's scheduler does not say it."""
        self._tune = tune
        super().__init__(home, spec, configs, check)
        if rungs is not None:
            self._curves = Curves(home, rungs)
        if spec.jobs is None:
            self._jobs = max(1, tune.cpus // run_cost(configs.plain))
        self._order = TuneOrder(
            spec.id,
            spec.trials,
            self._jobs,
            spec.scheduler,
            configs.plain.stop.steps or 0,
            tuple(self._curves.rungs),
        )
        self._life = -1
        self._reported: dict[int, int] = {}  # trials that were offered, and how much was told
        self._ended: set[int] = set()  # of which nothing more is told
        self._tell_at = 0.0

    def step(self) -> bool:
        is_over = super().step()
        if not is_over and time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL_S
            self._talk()
        return is_over

    def close(self) -> None:
        """Tune hears how the last trials ended, and ends with them."""
        deadline = time.monotonic() + LAST_WORDS_S
        is_over = len(self.trials) == self.spec.trials and all(t.is_at_rest for t in self.trials)
        while is_over and time.monotonic() < deadline:
            told = self._talk()
            if told is None or told.is_over:
                break
            time.sleep(TELL_S)
        super().close()

    def _begin(self) -> None:
        """Further seeds of trials that are there; new trials when Tune asks."""
        for _ in range(self._jobs - len(self._busy())):
            if all(trial.next_seed is None for trial in self.trials) or not self._begin_one():
                return

    def _prune(self) -> None:
        """Tune does."""

    def _talk(self) -> Told | None:
        if self._tune.life != self._life:
            self._reported, self._ended, self._life = {}, set(), self._tune.life
        offers = [t for t in self.trials if t.number not in self._reported]
        self._reported |= {trial.number: 0 for trial in offers}
        reports = [report for trial in self.trials for report in self._news(trial)]
        told = self._tune.tell(Tell(self._order, [offer_of(t) for t in offers], reports))
        if told is None:
            self._life = -1  # whether it heard that is not known
            return None
        if told.error:
            raise RookeryError(f"Ray Tune ended: {told.error}; rookery sweep resume {self.spec.id}")
        for pruned in told.pruned:
            self._end_trial(pruned)
        if told.wants and len(self._busy()) < self._jobs:
            self._begin_one()
        return told

    def _news(self, trial: Trial) -> list[TrialReport]:
        """What came of it since it was last told."""
        number = trial.number
        if number in self._ended:
            return []
        curve = self._curve(trial)
        rungs = sorted(curve)[self._reported[number] :]
        self._reported[number] += len(rungs)
        found = [TrialReport(number, rung, curve[rung]) for rung in rungs]
        if trial.is_at_rest:
            self._ended.add(number)
            found.append(last_report(trial, curve))
        return found

    def _end_trial(self, pruned: Pruned) -> None:
        self._ended.add(pruned.number)
        reason = f"pruned by Ray Tune at {pruned.steps:,} steps: a return of {pruned.value:.1f}"
        trial = next(t for t in self.trials if t.number == pruned.number)
        for attempt in trial.attempts:
            if attempt.status == "going":
                self._end(attempt, reason)


def offer_of(trial: Trial) -> Offer:
    return Offer(trial.number, {key: _plain(value) for key, value in trial.values.items()})


def _plain(value: Any) -> Any:
    """As Tune shows it."""
    return value if isinstance(value, int | float) else str(write_value(value))


def last_report(trial: Trial, curve: dict[int, float]) -> TrialReport:
    """Of a trial that is over, or stopped: Tune goes on with another."""
    number, steps = trial.number, trial.env_steps
    if trial.value is not None:
        return TrialReport(number, steps, trial.value, over=True)
    if trial.status == "pruned" and curve:
        return TrialReport(number, steps, curve[max(curve)], over=True)
    return TrialReport(number, steps, 0.0, over=True, error=trial.why or trial.status)
