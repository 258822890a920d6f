"""Ray Tune, for whoever conducts a sweep: it asks for trials, sees how they do, and ends some.

    tuning = Tuning(order)
    tuning.start()                                  # or tuning.tuner.fit()
    told = tuning.tell(Tell(offers, reports))       # what Tune wants, and whom it has ended

A trial of Tune's is a handle without a CPU, on this node: it waits for what is told of its runs,
which are none of Tune's business. Nothing that Tune keeps is read again: its directory is removed,
and whoever begins anew tells it all from the log.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import ray
from ray import tune
from ray.exceptions import RayError
from ray.tune.error import TuneError
from ray.tune.schedulers import (
    AsyncHyperBandScheduler,
    FIFOScheduler,
    MedianStoppingRule,
    TrialScheduler,
)
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rookery.launchers.ray.link import PREFIX
from rookery.launchers.ray.words import Offer, Pruned, Tell, Told, TrialReport, TuneOrder

METRIC, STEPS, TRIAL, OVER = "return", "env_steps", "trial", "over"
CLOSE_S = 3.0
KEPT = 3  # of so many at a rung one goes on
MEDIAN_FROM = 4  # trials
SETTINGS = {
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}

_report = msgspec.msgpack.Decoder(TrialReport)


class Desk:
    """An actor: what was told of each trial, for its handle to take when it comes."""

    def __init__(self) -> None:
        self._told: dict[int, list[bytes]] = {}
        self._news = asyncio.Condition()

    async def tell(self, trial: int, report: bytes) -> None:
        async with self._news:
            self._told.setdefault(trial, []).append(report)
            self._news.notify_all()

    async def next(self, trial: int, seen: int) -> bytes:
        """The report after so many, as soon as there is one."""
        async with self._news:
            await self._news.wait_for(lambda: len(self._told.get(trial, ())) > seen)
            return self._told[trial][seen]


class Handle(tune.Trainable):  # type: ignore[misc]
    """A trial, as Tune has it."""

    def setup(self, config: dict[str, Any], desk: Any = None) -> None:
        self._desk = desk
        self.reset_config(config)

    def reset_config(self, config: dict[str, Any]) -> bool:
        """The next trial in the same process."""
        self._trial, self._seen = config[TRIAL], 0
        return True

    def step(self) -> dict[str, Any]:
        report = _report.decode(ray.get(self._desk.next.remote(self._trial, self._seen)))
        self._seen += 1
        if report.error:
            raise RuntimeError(report.error)
        found = {METRIC: report.value, STEPS: report.steps, OVER: report.over}
        return {**found, "done": report.over}

    def save_checkpoint(self, directory: str) -> None:
        """Its runs have their own."""

    def load_checkpoint(self, checkpoint: Any) -> None: ...


class Asking(Searcher):  # type: ignore[misc]
    """Tune's side of the offers."""

    def __init__(self, on_ask: Callable[[], None] | None = None) -> None:
        super().__init__(metric=METRIC, mode="max")
        self._on_ask = on_ask
        self.offers: deque[Offer] = deque()
        self.is_asked = self.is_closed = False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self.is_closed:
            return str(Searcher.FINISHED)
        if self._on_ask is not None:
            self._on_ask()
        if not self.offers:
            self.is_asked = True
            return None
        offer = self.offers.popleft()
        return {TRIAL: offer.number, **offer.values}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]:
        return Asking, ()  # Tune keeps what it was made of, and nobody reads that

    def save(self, path: str) -> None:
        """Nothing: see above."""

    def restore(self, path: str) -> None: ...


class Ends(tune.Callback):  # type: ignore[misc]
    """Whom Tune has ended, and not their runs."""

    def __init__(self, on_end: Callable[[], None] | None) -> None:
        self.pruned: deque[Pruned] = deque()
        self._on_end = on_end

    def on_experiment_end(self, trials: Any, **_: Any) -> None:
        if self._on_end is not None:
            self._on_end()

    def __reduce__(self) -> tuple[Any, ...]:
        return Ends, (None,)

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **_: Any) -> None:
        result = trial.last_result
        if not result.get(OVER):
            self.pruned.append(Pruned(trial.config[TRIAL], result[STEPS], result[METRIC]))


class Tuning:
    """One experiment of Tune's; `tell` from any thread."""

    def __init__(
        self,
        order: TuneOrder,
        scheduler: TrialScheduler | None = None,
        on_ask: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """`on_ask`: whenever Tune wants a trial; `on_end`: when it is through with all of them."""
        os.environ.update({name: os.environ.get(name, value) for name, value in SETTINGS.items()})
        context = ray.get_runtime_context()
        here = NodeAffinitySchedulingStrategy(context.get_node_id(), soft=False)
        self._desk = (
            ray.remote(num_cpus=0, max_concurrency=1000)(Desk)
            .options(scheduling_strategy=here)
            .remote()
        )
        self._search, self._ends = Asking(on_ask), Ends(on_end)
        directory = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-tune-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        node = {"CPU": 0, f"node:{ray.util.get_node_ip_address()}": 0.001}
        handle = tune.with_resources(
            tune.with_parameters(Handle, desk=self._desk), tune.PlacementGroupFactory([node])
        )
        self.tuner = tune.Tuner(
            handle,
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode="max",
                search_alg=self._search,
                scheduler=scheduler or make_scheduler(order),
                num_samples=order.trials,
                max_concurrent_trials=order.jobs,
                reuse_actors=True,
            ),
            run_config=tune.RunConfig(
                name=order.sweep,
                storage_path=directory,
                callbacks=[self._ends],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                verbose=0,
            ),
        )
        self.error = ""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """In a thread of its own; what went wrong is in `error`."""
        self._thread = threading.Thread(target=self._fit, name="tune", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tune ends without its trials, and in good order."""
        self._search.is_closed = True
        if self._thread is not None and self._thread.is_alive():
            ray.kill(self._desk)
            self._thread.join(CLOSE_S)

    def _fit(self) -> None:
        try:
            self.tuner.fit()
        except (RayError, TuneError, RuntimeError, ValueError, OSError) as error:
            self.error = " ".join(str(error).split())[:300] or type(error).__name__

    def tell(self, word: Tell) -> Told:
        for report in word.reports:
            self._desk.tell.remote(report.number, msgspec.msgpack.encode(report))
        self._search.offers.extend(word.offers)
        wants = self._search.is_asked and not self._search.offers
        self._search.is_asked = False
        pruned = [self._ends.pruned.popleft() for _ in range(len(self._ends.pruned))]
        is_over = self._thread is not None and not self._thread.is_alive()
        return Told(wants, pruned, is_over, self.error)


def make_scheduler(order: TuneOrder) -> TrialScheduler:
    if order.scheduler == "asha":
        return AsyncHyperBandScheduler(
            time_attr=STEPS,
            max_t=max(order.rungs[-1] + 1, order.steps),
            grace_period=order.rungs[0],
            reduction_factor=KEPT,
        )
    if order.scheduler == "median":
        return MedianStoppingRule(
            time_attr=STEPS, grace_period=order.rungs[0], min_samples_required=MEDIAN_FROM
        )
    return FIFOScheduler()


def start(order: TuneOrder) -> Tuning:
    os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # nobody reads those here
    tuning = Tuning(order)
    tuning.start()
    return tuning
