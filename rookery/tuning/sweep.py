"""Sweeps as people use them: begin one, carry it, stop it, go on, and see what came out.

sweep = begin(home, base, settings)     # checked, and written down
sweep.carry(progress)                   # to its end, or until somebody stops it
sweep.best.config; sweep.table()
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rookery.config.code import refuse_while_imported
from rookery.config.live import live_values
from rookery.config.models import RunConfig
from rookery.config.reading import build, merged_layers, placed
from rookery.control.check import check_config
from rookery.control.create import author, local_service
from rookery.control.fork import pinned
from rookery.control.home import Home
from rookery.control.local_log import LocalLog, run_here
from rookery.control.run_state import ACTIVE, PAUSED, RUNNING
from rookery.control.service import Check
from rookery.errors import ConfigError, InputError, MissingExtra
from rookery.launchers.ray.link import Links
from rookery.messages import StopRun
from rookery.tuning.carrier import Carrier, cpus_here, run_cost
from rookery.tuning.conductor import Conductor, check_room
from rookery.tuning.configs import Configs
from rookery.tuning.log import SweepLog
from rookery.tuning.population import changes_of, explored_keys
from rookery.tuning.population_conductor import PopulationConductor, check_population, trials_in
from rookery.tuning.proposals import Told, make_study, proposer
from rookery.tuning.space import Search
from rookery.tuning.spec import SweepFiles, SweepSettings, SweepSpec, new_id, write_whole
from rookery.tuning.text import write_mapping
from rookery.tuning.trials import Stage, Trial
from rookery.tuning.tune_conductor import FarTune, Tune, TuneConductor, check_tune

Status = Literal["running", "finished", "stopped", "interrupted"]
Progress: TypeAlias = Callable[[SweepSpec, list[Trial]], None]
"""Called many times a second with the trials as they are."""

STOP_S = 90.0  # that runs have for a last checkpoint
LEAST_TOLD = 4  # trials before anything can be said of a key's importance


@dataclass(frozen=True)
class Best:
    """The trial that plays best."""

    trial: Trial
    config: RunConfig

    @property
    def value(self) -> float:
        assert self.trial.value is not None
        return self.trial.value

    @property
    def runs(self) -> tuple[str, ...]:
        return tuple(attempt.run for attempt in self.trial.attempts)


class Sweep:
    """A sweep of a home: what it is, its trials, what it found."""

    def __init__(self, home: Home, spec: SweepSpec) -> None:
        self._home, self.spec, self.id = home, spec, spec.id
        self._files = SweepFiles(home)
        self._configs: Configs | None = None

    def __repr__(self) -> str:
        return f"Sweep({self.id!r}, status={self.status!r})"

    # --- what it is ------------------------------------------------------------------------------

    @property
    def configs(self) -> Configs:
        if self._configs is None:
            base = placed(self.spec.base, self._home.server_launcher())
            self._configs = Configs(base, self.spec.space)
        return self._configs

    @property
    def environment(self) -> str:
        return _environment(self.spec.base) or self.configs.plain.environment.id

    @property
    def run_cost(self) -> int:
        """CPUs of one run."""
        return run_cost(self.configs.plain)

    @property
    def trials(self) -> list[Trial]:
        """As the log has them now."""
        log = SweepLog(self._home, self.spec)
        return trials_in(self.spec, log.states, log.results, self.configs.values_of)

    @property
    def status(self) -> Status:
        return self.status_of(self.trials)

    def status_of(self, trials: list[Trial]) -> Status:
        if self._files.is_carried(self.id):
            return "running"
        if len(trials) == self.spec.trials and all(trial.is_over for trial in trials):
            return "finished"
        is_stopped = self._files.is_asked_to_stop(self.id)
        return (
            "stopped"
            if is_stopped or any(t.status == "stopped" for t in trials)
            else ("interrupted")
        )

    @property
    def best(self) -> Best:
        found = self.best_of(self.trials)
        if found is None:
            raise InputError(f"sweep {self.id} has no trial that is done yet")
        return found

    def best_of(self, trials: list[Trial]) -> Best | None:
        done = [trial for trial in trials if trial.value is not None]
        if not done:
            return None
        trial = max(done, key=lambda each: each.value or 0.0)
        is_member = bool(trial.stages)
        return Best(trial, self._replayed(trial) if is_member else self.configs.build(trial.values))

    def _replayed(self, member: Trial) -> RunConfig:
        """What a member of a population was from its first step on, with what changed when."""
        plain = self.configs.plain
        explored = explored_keys(self.spec.space, live_values(plain))
        changes = changes_of(self.spec, member.stages, explored, plain.stop.steps or 0)
        also = {"changes": changes}
        first = member.stages[0]
        return self.configs.build(first.values, first.member, also=also)

    def table(self) -> list[dict[str, Any]]:
        """A row for each trial, the best first."""
        return table_of(self.trials)

    def importance(self) -> dict[str, float]:
        """How much of a trial's success each key explains, the most important first (PED-ANOVA)."""
        return importance_of(self.spec.space, self.trials)

    def show(self) -> dict[str, Any]:
        """What `rookery sweep show --json` prints."""
        trials = self.trials
        best = self.best_of(trials)
        return {
            "sweep": self.id,
            "status": self.status_of(trials),
            "environment": self.environment,
            **self.spec.model_dump(
                include={"trials", "seeds", "sampler", "scheduler", "episodes", "created_s"}
            ),
            "search": write_mapping(self.spec.space),
            "best": None
            if best is None
            else {
                "trial": best.trial.number,
                "value": best.value,
                "values": best.trial.values,
                "runs": best.runs,
                "file": str(self._files.best_file(self.id)),
            },
            "importance": importance_of(self.spec.space, trials),
            "table": table_of(trials),
        }

    def best_yaml(self) -> str:
        """The best config, for `rookery train --config`."""
        return _yaml(self.best.config)

    def plot(self, out: str | Path = "sweep.png") -> None:
        """Parallel coordinates, and a slice for each key, as a PNG."""
        from rookery.tuning.pictures import draw

        draw(self.spec, self.trials, self.importance(), str(out))

    # --- what is done with it --------------------------------------------------------------------

    def carry(
        self,
        progress: Progress | None = None,
        *,
        tune: Tune | None = None,
        rungs: Sequence[int] | None = None,
    ) -> Status:
        """To its end in this process; Ctrl-C stops it after a checkpoint of every run.

        `tune`: Ray Tune that is here already, and at which `rungs` it wants to hear of runs.
        """
        refuse_while_imported("a sweep")
        self._home.check_writable()
        with self._files.carrying(self.id), _interrupts() as asked:
            self._files.ask_to_stop(self.id, False)
            with closing(Links()) as links:
                conductor = self._conductor(links, tune, rungs)
                cpus = max(self._cpus(links), conductor.jobs * self.run_cost)
                with (
                    closing(conductor),
                    closing(Carrier(self._home, conductor.log.is_mine, cpus, links)) as carrier,
                ):
                    self._conduct(conductor, carrier, progress, asked)
                    carrier.leave()
            self._keep_best(conductor.trials)
        return self.status

    def _cpus(self, links: Links) -> int:
        """That its runs share where no server carries them."""
        settings, launcher = self._home.settings, self.configs.plain.launcher
        if launcher != "ray" or settings.cpus or self._home.has_server():
            return cpus_here(self._home)
        links.to(settings.ray.here()).wait()
        return links.cpus(launcher, settings.ray.here())

    def _conductor(self, links: Links, tune: Tune | None, rungs: Sequence[int] | None) -> Conductor:
        if tune is None and not is_on_tune(self.spec, self.configs.plain):
            return conductor_of(self._home, self.spec, self.configs)
        tune = tune or FarTune(links.to(self._home.settings.ray.here()))
        return TuneConductor(self._home, self.spec, self.configs, tune, rungs=rungs)

    def _conduct(
        self,
        conductor: Conductor,
        carrier: Carrier,
        progress: Progress | None,
        asked: Callable[[], bool],
    ) -> None:
        deadline: float | None = None
        over = False
        while not over:
            carrier.step()
            if deadline is None and (asked() or self._files.is_asked_to_stop(self.id)):
                self._files.ask_to_stop(self.id, True)
                deadline = time.monotonic() + STOP_S
            if deadline is None:
                over = conductor.step()
            else:
                over = conductor.stop() or time.monotonic() >= deadline
            if progress is not None:
                progress(self.spec, conductor.trials)
            if not over:
                carrier.wait()

    def _keep_best(self, trials: list[Trial]) -> None:
        best = self.best_of(trials)
        if best is not None:
            write_whole(self._files.best_file(self.id), _yaml(best.config))

    def resume(self, progress: Progress | None = None) -> Status:
        """Go on where it was; what is over stays as it is."""
        return self.carry(progress)

    def stop(self) -> None:
        """Whoever carries it stops its runs, after a checkpoint; where nobody does, they are
        stopped here."""
        self._files.ask_to_stop(self.id, True)
        if self._files.is_carried(self.id):
            return
        reason = f"{self.id} was stopped"
        service = local_service(self._home, LocalLog(self._home))
        for attempt in (attempt for trial in self.trials for attempt in trial.attempts):
            if attempt.run and self._home.state(attempt.run).desired in (RUNNING, PAUSED):
                stop = StopRun(run=attempt.run, author=author(), reason=reason)
                run_here(service.submit(stop))


def begin(home: Home, base: Mapping[str, Any], settings: SweepSettings) -> Sweep:
    """A new sweep, once it is known that its first trial can run; nothing is written before."""
    home.check_writable()
    base = _pinned(home, base)
    made = {
        **settings.model_dump(),
        "id": new_id(_environment(base)),
        "author": author(),
        "created_s": time.time(),
        "base": _even(base) if settings.scheduler == "pbt" else dict(base),
    }
    sweep = Sweep(home, SweepSpec.model_validate(made))
    spec = sweep.spec
    proposer(spec.sampler, 0)  # what it needs is installed
    if is_on_tune(spec, sweep.configs.plain):
        check_tune(home.settings.ray.here())
    _check_bounds(spec, sweep.configs.plain)
    for config in sweep.configs.extremes():
        check_room(home, config)
    conductor = conductor_of(home, spec, sweep.configs)
    config = sweep.configs.build(next(conductor.proposals(0)))
    check_config(home, config)
    SweepFiles(home).write(spec)
    return sweep


def is_on_tune(spec: SweepSpec, config: RunConfig) -> bool:
    """Whether Ray Tune schedules it. A population breeds by forks, which Tune knows nothing of."""
    return config.launcher == "ray" and spec.scheduler != "pbt"


def conductor_of(
    home: Home, spec: SweepSpec, configs: Configs, check: Check | None = None
) -> Conductor:
    kind = PopulationConductor if spec.scheduler == "pbt" else Conductor
    return kind(home, spec, configs, check)


def find(home: Home, name: str) -> Sweep:
    """By its id, a unique prefix of it, or `last`."""
    return Sweep(home, SweepFiles(home).find(name))


def all_sweeps(home: Home) -> list[Sweep]:
    """The oldest first."""
    return [Sweep(home, spec) for spec in SweepFiles(home).all()]


def _check_bounds(spec: SweepSpec, config: RunConfig) -> None:
    """Raise where runs cannot be compared on their way."""
    if spec.scheduler == "none":
        return
    if config.stop.steps is None:
        raise ConfigError(
            f"scheduler={spec.scheduler} compares runs at the same number of steps: set --steps"
        )
    if spec.scheduler == "pbt":
        check_population(spec, spec.space, config)
    elif config.bus.one_process:
        raise ConfigError(
            f"scheduler={spec.scheduler} reads what runs report: bus.kind={config.bus.kind} keeps "
            "that in their memory"
        )


def _pinned(home: Home, base: Mapping[str, Any]) -> Mapping[str, Any]:
    """All trials begin with the same checkpoint, if with one at all."""
    if not base.get("parent"):
        return base
    parent = build(base).parent
    if not parent.run:
        return base
    found = pinned(home, parent)
    if home.state(found["run"]).status in ACTIVE:
        raise InputError(
            f"run {found['run']} still trains, and lets go of the checkpoint that each trial is to "
            "begin with: stop it first"
        )
    return merged_layers(base, {"parent": found})


def _even(base: Mapping[str, Any]) -> dict[str, Any]:
    """A rate that falls with a run's own end would fall in every generation anew."""
    asked = base.get("algorithm")
    if isinstance(asked, Mapping) and asked.get("schedule") == "linear":
        raise ConfigError("scheduler=pbt makes the schedule itself: leave out algorithm.schedule")
    return merged_layers(base, {"algorithm": {"schedule": "constant"}})


def _environment(base: Mapping[str, Any]) -> str:
    part = base.get("environment")
    return str(part.get("id", "")) if isinstance(part, Mapping) else ""


def table_of(trials: list[Trial]) -> list[dict[str, Any]]:
    ranked = sorted(
        trials, key=lambda t: (t.value is None, -(t.value or 0.0), t.env_steps == 0, t.number)
    )
    return [
        {
            "trial": trial.number,
            "status": trial.status,
            "value": trial.value,
            "by_seed": [attempt.value for attempt in trial.attempts],
            "env_steps": trial.env_steps,
            "values": trial.values,
            "runs": [attempt.run for attempt in trial.attempts if attempt.run],
            "why": trial.why,
            **({"stages": [_stage(stage) for stage in trial.stages]} if trial.stages else {}),
        }
        for trial in ranked
    ]


def _stage(stage: Stage) -> dict[str, Any]:
    shown = ("member", "generation", "run", "parent", "value", "values")
    return {name: getattr(stage, name) for name in shown}


def importance_of(search: Search, trials: list[Trial]) -> dict[str, float]:
    """Empty where too little is known, values changed on the way, or Optuna is not installed."""
    done = [trial for trial in trials if trial.value is not None and not trial.stages]
    if len(done) < LEAST_TOLD or len({trial.value for trial in done}) == 1:
        return {}
    told = [Told(trial.values, "done", trial.value) for trial in done]
    try:
        study = make_study(search, told)
        from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    except MissingExtra:
        return {}
    keys = [key for key in search.keys if all(key in trial.values for trial in done)]
    varied = [key for key in keys if len({str(trial.values[key]) for trial in done}) > 1]
    if not varied:
        return {}
    found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator(), params=varied)
    return {key: float(share) for key, share in found.items()}


def _yaml(config: RunConfig) -> str:
    import yaml

    text: str = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    return text


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Yields whether Ctrl-C was pressed; a second one is a KeyboardInterrupt."""
    asked = False

    def note(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        yield lambda: False
        return
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
