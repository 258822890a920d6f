"""The sweep at work: reads what its runs have come to, and asks for what comes next.

    conductor = Conductor(home, spec)
    while not conductor.step(): ...

It keeps nothing that the log does not have. What it sends is named by the sweep, the trial and the
seed (`trials.command_id`), so that one who begins in the middle sends nothing twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from rookery.config.models import RunConfig
from rookery.config.reading import placed
from rookery.control.create import checked_here
from rookery.control.home import Home
from rookery.control.local_log import run_here
from rookery.control.queue import cpus_of
from rookery.control.run_state import ACTIVE
from rookery.control.service import Check, Service
from rookery.control.settings import Allow
from rookery.errors import ConfigError, InputError, RookeryError
from rookery.messages import Evaluate, ResumeRun, StartRun, StopRun
from rookery.tuning.carrier import cpus_here, run_cost
from rookery.tuning.configs import Configs
from rookery.tuning.curves import Curves
from rookery.tuning.log import SweepLog
from rookery.tuning.proposals import Propose, Told, proposer
from rookery.tuning.pruning import is_beaten, rungs_of
from rookery.tuning.space import Values
from rookery.tuning.spec import SweepSpec
from rookery.tuning.trials import Attempt, Trial, command_id, read_trials

EVALUATION_SEED = 1  # not the one of `rookery eval`, which so has fresh episodes
TRIES = 100  # of proposals, until one makes a config that is valid as a whole
LOOK_S = 1.0  # at the curves of runs that go on


def labels_of(spec: SweepSpec, trial: int, seed: int) -> dict[str, Any]:
    """By which people find the runs of a sweep; the one place that says so."""
    names = ("member", "generation") if spec.scheduler == "pbt" else ("trial", "seed")
    return {"name": f"{names[0]} {trial} {names[1]} {seed}", "group": spec.id}


class Conductor:
    """Of one sweep; one thread's."""

    def __init__(
        self,
        home: Home,
        spec: SweepSpec,
        configs: Configs | None = None,
        check: Check | None = None,
        propose: Propose | None = None,
    ) -> None:
        """`check` looks at a config before there is a run, here unless it is said otherwise."""
        self.home, self.spec = home, spec
        self.configs = configs or Configs(placed(spec.base, home.server_launcher()), spec.space)
        self._propose = propose or proposer(spec.sampler, self.configs.plain.seed)
        self.log = SweepLog(home, spec)
        self._service = Service(home, self.log, check or checked_here(home), Allow(), carries=False)
        self._curves = Curves(home, rungs_of(spec.scheduler, self.configs.plain.stop.steps or 0))
        self._jobs = spec.jobs or max(1, cpus_here(home) // run_cost(self.configs.plain))
        self._look_at = 0.0
        self._pruned: set[tuple[int, int]] = set()
        self.trials: list[Trial] = self._read()
        self._started_again = False

    @property
    def jobs(self) -> int:
        """Runs at a time."""
        return self._jobs

    def step(self) -> bool:
        """See to whatever there is to do; True: nothing is left. A run that somebody else stopped
        stays so until the sweep is resumed."""
        is_new = self.log.read()
        if not self._started_again:
            self._started_again = is_new = True
            self.trials = self._read()
            self._start_stopped()
        if is_new:
            self.trials = self._read()
            self._judge()
            self._begin()
        if self._curves.rungs and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            self._prune()
        return len(self.trials) == self.spec.trials and all(t.is_at_rest for t in self.trials)

    def stop(self) -> bool:
        """Have every run stop that goes on; True: none does any more."""
        self.log.read()
        for attempt in self._busy():
            state = self.log.states[attempt.run]
            is_asked = any(isinstance(command, StopRun) for command in state.commands.values())
            if state.desired in ("running", "paused") and not is_asked:
                reason = f"{self.spec.id} was stopped"
                self._send(StopRun(run=attempt.run, author=self.spec.author, reason=reason))
        self.trials = self._read()
        return not any(self.log.states[a.run].status in ACTIVE for a in self._busy())

    def close(self) -> None:
        self._curves.close()

    # --- looking ---------------------------------------------------------------------------------

    def _read(self) -> list[Trial]:
        return read_trials(self.spec, self.log.states, self.log.results, self.configs.values_of)

    def _busy(self) -> list[Attempt]:
        return [a for trial in self.trials for a in trial.attempts if a.is_busy]

    def told(self) -> list[Told]:
        """What is known, for whoever proposes."""
        return [_told(trial, self._curve(trial)) for trial in self.trials]

    def _curve(self, trial: Trial) -> dict[int, float]:
        """The mean over its runs, as far as all of them came."""
        if not self._curves.rungs:
            return {}
        states = [self.log.states[a.run] for a in trial.attempts if a.run]
        curves = [self._curves.read(state, state.status not in ACTIVE) for state in states]
        shared = set.intersection(*(set(curve) for curve in curves)) if curves else set()
        return {rung: sum(c[rung] for c in curves) / len(curves) for rung in sorted(shared)}

    # --- asking ----------------------------------------------------------------------------------

    def _start_stopped(self) -> None:
        """What was stopped with the sweep goes on with it."""
        for trial in self.trials:
            for attempt in trial.attempts:
                if attempt.status == "stopped":
                    reason = f"{self.spec.id} goes on"
                    self._send(StartRun(run=attempt.run, author=self.spec.author, reason=reason))

    def _judge(self) -> None:
        """Fresh episodes for every run that has trained to its end."""
        for attempt in self._busy():
            if attempt.status == "trained":
                self._send(
                    Evaluate(
                        run=attempt.run,
                        id=command_id(self.spec.id, attempt.trial, attempt.seed, "evaluate"),
                        author=self.spec.author,
                        episodes=self.spec.episodes,
                        seed=EVALUATION_SEED,
                        reason=f"judged for {self.spec.id}",
                    )
                )

    def _begin(self) -> None:
        """More runs, as long as there is room."""
        for _ in range(self._jobs - len(self._busy())):
            if not self._begin_one():
                return

    def _begin_one(self) -> bool:
        open_trial = next((t for t in self.trials if t.next_seed is not None), None)
        if open_trial is not None and open_trial.next_seed is not None:
            self._create(open_trial.number, open_trial.next_seed, open_trial.values)
            return True
        known = {trial.number for trial in self.trials}
        number = next((n for n in range(self.spec.trials) if n not in known), None)
        if number is None:
            return False
        self._begin_trial(number)
        return True

    def _begin_trial(self, number: int) -> None:
        """With the first proposal of which a run can be made."""
        error: InputError | None = None
        for values in self.proposals(number):
            try:
                self._create(number, 0, values)
                return
            except InputError as caught:
                error = caught
        raise ConfigError(f"of {TRIES} proposals in a row no run can be made: {error}")

    def proposals(self, number: int) -> Iterator[Values]:
        """Those that make a valid config, as a space may have corners that do not; each is a better
        try than the one before was."""
        told, error, found = self.told(), ConfigError("nothing was tried"), False
        for again in range(TRIES):
            values = self._propose(self.spec.space, told, number + again * self.spec.trials)
            told.append(Told(values, "failed"))
            try:
                self.configs.build(values)
            except ConfigError as caught:
                error = caught
                continue
            found = True
            yield values
        if not found:
            raise ConfigError(f"{TRIES} proposals in a row make no valid config: {error}")

    def _create(self, number: int, seed: int, values: Values) -> None:
        place = f"{self.spec.id}-{number}-{seed}"
        self._create_run(number, seed, values, self.configs.build(values, seed, place))

    def _create_run(self, number: int, seed: int, values: Values, config: RunConfig) -> None:
        run_here(
            self._service.create(
                config,
                author=self.spec.author,
                id=command_id(self.spec.id, number, seed),
                reason=f"{self.spec.id}: {shown(values)}",
                labels=labels_of(self.spec, number, seed),
                wait_s=0.0,
            )
        )
        self.trials = self._read()

    def _send(self, command: Evaluate | StartRun | StopRun | ResumeRun) -> None:
        run_here(self._service.submit(command, wait_s=0.0))

    def _prune(self) -> None:
        """End runs that others beat at the last rung that they came to."""
        for trial in self.trials:
            self._curve(trial)
        found = self._curves.found
        for attempt in self._busy():
            place = (attempt.trial, attempt.seed)
            curve: Mapping[int, float] = found.get(attempt.run, {})
            if attempt.status != "going" or not curve or place in self._pruned:
                continue
            rung = max(curve)
            others = [c[rung] for run, c in found.items() if run != attempt.run and rung in c]
            if is_beaten(self.spec.scheduler, curve[rung], others):
                self._pruned.add(place)
                self._end(attempt, f"pruned at {rung:,} steps: a return of {curve[rung]:.1f}")

    def _end(self, attempt: Attempt, reason: str) -> None:
        id = command_id(self.spec.id, attempt.trial, attempt.seed, "prune")
        author = self.spec.author
        try:
            self._send(StopRun(run=attempt.run, id=id, author=author, reason=reason))
        except RookeryError:
            if self.log.states[attempt.run].status in ACTIVE:  # else it has just ended by itself
                raise


def check_room(home: Home, config: RunConfig) -> None:
    """Raise where not even one trial finds its CPUs. A cluster elsewhere may grow."""
    if config.actors.auto:
        raise ConfigError("trials share CPUs: give --actors a number")
    cpus, actors = cpus_here(home), config.actors.count
    ours = config.launcher == "ray" and not home.settings.ray.here().address
    if (config.launcher == "local" or ours) and cpus_of(config.model_dump(), 0, actors) > cpus:
        raise ConfigError(
            f"there is no room for a single trial: it has {actors} actors, and there are "
            f"{cpus} CPUs; lower --actors"
        )


def shown(values: Values) -> str:
    """In a line for people."""
    from rookery.tuning.text import write_value

    return " ".join(f"{key}={_short(value, write_value)}" for key, value in values.items())


def _short(value: Any, write: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(write(value))


def _told(trial: Trial, curve: dict[int, float]) -> Told:
    status = trial.status
    known = "going" if status in ("to do", "going", "stopped") else status
    return Told(trial.values, known, trial.value, curve)  # type: ignore[arg-type]
