"""A population at work: as `conductor`, but its trials are members that train for a generation at a
time, and then go on as they are or from where a better one is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rookery.config.live import live_values
from rookery.config.models import RunConfig
from rookery.control.run_state import RunState
from rookery.errors import ConfigError
from rookery.messages import ResumeRun
from rookery.tuning.conductor import Conductor
from rookery.tuning.population import (
    Member,
    Move,
    explored_keys,
    next_generation,
    read_members,
    trials_of,
)
from rookery.tuning.space import Search, Values
from rookery.tuning.spec import SweepSpec
from rookery.tuning.trials import Result, Trial, command_id, read_trials


def trials_in(
    spec: SweepSpec,
    states: Mapping[str, RunState],
    results: Mapping[str, Result],
    values_of: Callable[[Mapping[str, Any]], Values],
) -> list[Trial]:
    """Of any sweep."""
    if spec.scheduler == "pbt":
        return trials_of(spec, read_members(spec, states, results, values_of))
    return read_trials(spec, states, results, values_of)


def check_population(spec: SweepSpec, search: Search, config: RunConfig) -> None:
    """Raise where there would be nothing to breed, or nothing to compare."""
    if spec.trials < 2 or spec.seeds != 1:
        raise ConfigError(
            "scheduler=pbt has a population of --trials members, 2 or more, each with a seed of "
            "its own: leave out --seeds"
        )
    if config.stop.until_return is not None or config.stop.minutes is not None:
        raise ConfigError("scheduler=pbt compares members after the same steps: set --steps alone")
    steps = config.stop.steps or 0
    per_generation = spec.bound(steps, 1) - spec.bound(steps, 0)
    if per_generation < config.batch_rows:
        raise ConfigError(
            f"a generation of {per_generation:,} steps is shorter than a batch, which has "
            f"{config.batch_rows:,}: ask for more --steps, or fewer --generations"
        )
    live = live_values(config)
    if not explored_keys(search, live):
        raise ConfigError(
            "scheduler=pbt changes numbers while its members train: search one of "
            f"{', '.join(live)}"
        )


class PopulationConductor(Conductor):
    """Of a sweep with scheduler=pbt."""

    @property
    def members(self) -> list[Member]:
        log = self.log
        return read_members(self.spec, log.states, log.results, self.configs.values_of)

    def _read(self) -> list[Trial]:
        return trials_of(self.spec, self.members)

    def step(self) -> bool:
        return super().step() or self._is_halted()

    def _is_halted(self) -> bool:
        """Somebody has stopped a member, and the others have come as far as they can without it."""
        members = self.members
        is_stopped = any(member.status == "stopped" for member in members)
        return is_stopped and all(m.is_settled or m.status == "stopped" for m in members)

    def _begin(self) -> None:
        """Everybody at once, if nobody said how many: whoever carries the runs begins them as CPUs
        allow."""
        most = self.spec.jobs or self.spec.trials
        known = {trial.number for trial in self.trials}
        for number in range(self.spec.trials):
            if number not in known and self._at_work < most:
                self._begin_trial(number)
        plain = self.configs.plain
        explored = explored_keys(self.spec.space, live_values(plain))
        for move in next_generation(self.spec, self.members, explored, plain.seed):
            if self._at_work < most:
                self._make(move)

    @property
    def _at_work(self) -> int:
        return sum(member.attempt.is_busy for member in self.members)

    def _create(self, number: int, seed: int, values: Values) -> None:
        self._create_run(number, 0, values, self._config(number, 0, values))

    def _make(self, move: Move) -> None:
        if move.donor is not None:
            assert move.values is not None
            donor = move.donor.stages[-1].run
            config = self._config(move.number, move.generation, move.values, donor)
            self._create_run(move.number, move.generation, move.values, config)
            return
        member = next(each for each in self.members if each.number == move.number)
        if member.generation < move.generation:
            self._send(
                ResumeRun(
                    run=member.attempt.run,
                    id=command_id(self.spec.id, move.number, move.generation, "go on"),
                    author=self.spec.author,
                    steps=max(self._bound(move.generation), member.attempt.env_steps + 1),
                    reason=f"{self.spec.id}: generation {move.generation}",
                )
            )

    def _config(self, number: int, generation: int, values: Values, donor: str = "") -> RunConfig:
        steps = self._bound(generation)
        also: dict[str, Any] = {"stop": {"steps": steps}}
        if donor:
            trained = self.log.states[donor].env_steps
            also = {
                "stop": {"steps": max(steps, trained + 1)},
                "parent": {"run": donor, "version": None},
            }
        place = f"{self.spec.id}-{number}-{generation}"
        return self.configs.build(values, number, place, also)

    def _bound(self, generation: int) -> int:
        return self.spec.bound(self.configs.plain.stop.steps or 0, generation)
