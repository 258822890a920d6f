"""Ray Tune over Rookery's runs: a plain `ray.tune.Tuner`, whose trials are runs of this home.

    tuner = rookery.ray.tuner("CartPole-v1", search={"algorithm.gamma": "0.9..0.999"}, steps=50_000)
    tuner.fit().get_best_result().config

Its trials are those of a sweep (`rookery sweep show last`), which goes on after a kill with
`rookery sweep resume`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rookery.errors import InputError, MissingExtra
from rookery.launchers.ray.settings import ADDRESS_VARIABLE
from rookery.launchers.ray.words import Tell, Told, TuneOrder

if TYPE_CHECKING:
    from ray.tune import Tuner
    from ray.tune.schedulers import TrialScheduler

    from rookery.launchers.ray.tune import Tuning
    from rookery.tuning.sweep import Sweep

STOP_S = 90.0  # that runs have for a last checkpoint
REPORTS = 20  # of a run on its way, where Tune's scheduler is the caller's


def tuner(
    environment: str,
    *,
    search: Mapping[str, Any],
    scheduler: str | TrialScheduler = "none",
    **options: Any,
) -> Tuner:
    """A Tuner of so many trials; `fit()` runs them on the cluster that this process is on.

    `search` and `options` are those of `rookery.sweep`. `scheduler`: none, asha, median, or one of
    Ray Tune's that ends trials by `return` over `env_steps`. A result has the trial's number and
    values in its config; its last `return` is that of fresh greedy episodes.
    """
    try:
        import ray
        from ray.tune.schedulers import PopulationBasedTraining

        from rookery.launchers.ray.tune import Tuning
    except ImportError as error:
        raise MissingExtra("rookery.ray.tuner", "ray-tune") from error
    if scheduler == "pbt" or isinstance(scheduler, PopulationBasedTraining):
        raise InputError(
            "a population breeds by forks of runs, which Tune cannot make: use rookery.sweep(..., "
            "scheduler='pbt', launcher='ray')"
        )
    if not ray.is_initialized():
        ray.init()
    os.environ[ADDRESS_VARIABLE] = ray.get_runtime_context().gcs_address  # of the runs' driver
    from rookery.api import sweep

    named = scheduler if isinstance(scheduler, str) else "none"
    made = sweep(
        environment,
        search=search,
        scheduler=named,
        carry=False,
        **{"launcher": "ray", **options},
    )
    rungs = _rungs(made, scheduler)
    beside = Beside(made, rungs)
    jobs = made.spec.jobs or max(1, beside.cpus // made.run_cost)
    steps = made.configs.plain.stop.steps or 0
    order = TuneOrder(made.id, made.spec.trials, jobs, named, steps, rungs)
    own = None if isinstance(scheduler, str) else scheduler
    beside.tuning = Tuning(order, own, beside.begin, beside.end)
    return beside.tuning.tuner


def _rungs(made: Sweep, scheduler: str | TrialScheduler) -> tuple[int, ...]:
    from rookery.tuning.pruning import rungs_of

    steps = made.configs.plain.stop.steps
    if isinstance(scheduler, str):
        return rungs_of(scheduler, steps or 0)
    if steps is None:
        raise InputError("a scheduler of Tune's compares runs on their way: set steps")
    return tuple(max(1, steps * (i + 1) // (REPORTS + 1)) for i in range(REPORTS))


class Beside:
    """Who conducts the sweep while Tune is at work in this process: a thread."""

    life = 1

    def __init__(self, made: Sweep, rungs: tuple[int, ...]) -> None:
        self._sweep, self._rungs = made, rungs
        self.tuning: Tuning | None = None
        self._thread: threading.Thread | None = None
        self._error = ""

    @property
    def cpus(self) -> int:
        import ray

        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def begin(self) -> None:
        """When Tune first asks for a trial, and whenever it asks: where it ended, Tune is told."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._carry, name="sweep", daemon=True)
            self._thread.start()
        elif self._error:
            raise RuntimeError(self._error)

    def end(self) -> None:
        """What Tune has ended is stopped in good order."""
        if self._thread is not None:
            self._thread.join(STOP_S)

    def tell(self, word: Tell) -> Told:
        assert self.tuning is not None
        return self.tuning.tell(word)

    def _carry(self) -> None:
        from rookery.errors import RookeryError

        try:
            self._sweep.carry(tune=self, rungs=self._rungs)
        except (RookeryError, OSError) as error:
            self._error = str(error)
