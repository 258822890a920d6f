"""A sweep without workers: an owner that answers, ends and judges runs as a test says.

with scripted_sweep(path, search=..., trials=6) as sweep:
    sweep.to_its_end()
    sweep.again()           # the process that conducted it has died: another begins
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rookery.checkpoints.policies import RunFiles
from rookery.config.models import RunConfig
from rookery.control.home import Home
from rookery.control.run_log import RunLog
from rookery.control.run_state import ACTIVE, STOPPED, RunState
from rookery.envs.registry import describe
from rookery.errors import InputError
from rookery.messages import CheckpointSaved, Evaluate, JobDone, RunEnded
from rookery.spaces import EnvironmentSpec, spec_to_json
from rookery.tuning.conductor import Conductor
from rookery.tuning.configs import Configs
from rookery.tuning.spec import SweepFiles, SweepSpec
from rookery.tuning.sweep import Sweep, conductor_of

Score = Callable[[Mapping[str, Any]], float]
MOST_STEPS = 2000  # of a sweep, before it counts as stuck


@functools.cache
def cartpole() -> dict[str, Any]:
    return spec_to_json(describe("CartPole-v1", {}))


def learning_rate(config: Mapping[str, Any]) -> float:
    """Best at 1e-3, with a little of the seed in it."""
    found: float = config["algorithm"]["learning_rate"]
    return -abs(found - 1e-3) * 1e3 + 0.001 * config["seed"]


class ScriptedOwner:
    """Answers every command; what should run ends at once, what is asked for is judged at once."""

    def __init__(self, home: Home, score: Score, ends: Callable[[RunState], str]) -> None:
        self._home, self._score, self._ends = home, score, ends
        self._log = RunLog(home)

    def step(self) -> None:
        self._log.read()
        for run in list(self._log.states):
            self._log.answer(run)
            state = self._log.states[run]
            if state.desired == STOPPED and state.status in ACTIVE:
                self._home.record(RunEnded(run=run, status="stopped", reason="asked to stop"))
            elif state.status in ACTIVE and (status := self._ends(state)):
                steps = (state.stop or state.config["config"]["stop"])["steps"]
                self._home.record(RunEnded(run=run, status=status, reason=status, env_steps=steps))
            for job in state.jobs.values():
                self._home.record(self._judged(state, job))
        self._log.read()

    def _judged(self, state: RunState, job: Any) -> JobDone:
        assert isinstance(job, Evaluate)
        mean = self._score(state.config["config"])
        result = {"greedy": {"mean": mean, "std": 0.0}, "sampled": {"mean": 0.0, "std": 0.0}}
        return JobDone(run=state.id, command=job.id, result=result)


class ScriptedFork(NamedTuple):
    """Of a run that has no checkpoint; it stays where its parent is."""

    run: str
    version: int
    spec: EnvironmentSpec
    summary: str = "a fork"

    def begin(self, child: RunFiles) -> CheckpointSaved:
        saved = {"env_steps": self.version, "updates": self.version}
        return CheckpointSaved(run=child.run, name="scripted", **saved)


@contextmanager
def scripted_forks(home: Home) -> Iterator[None]:
    """A run's version is how many steps it has."""

    def opened(files: RunFiles, version: Any, config: RunConfig, spec: EnvironmentSpec) -> Any:
        steps = home.state(files.run).env_steps
        assert config.stop.steps is not None and config.stop.steps > steps
        return ScriptedFork(files.run, steps if version is None else version, spec)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rookery.control.fork.open_fork", opened)
        yield


class ScriptedSweep:
    def __init__(self, home: Home, spec: SweepSpec, score: Score, ends: Any) -> None:
        self.home, self.spec = home, spec
        self.owner = ScriptedOwner(home, score, ends)
        self.configs = Configs(spec.base, spec.space)
        self.can_be_made: Callable[[Mapping[str, Any]], bool] = lambda config: True
        self.make: Callable[..., Conductor] = conductor_of
        self.conductor = self.again()

    def again(self) -> Conductor:
        async def check(order: Mapping[str, Any]) -> dict[str, Any]:
            if not self.can_be_made(order["config"]):
                raise InputError("this machine is too small for it")
            return cartpole()

        self.conductor = self.make(self.home, self.spec, self.configs, check)
        return self.conductor

    def step(self) -> bool:
        self.owner.step()
        return self.conductor.step()

    def to_its_end(self) -> None:
        for _ in range(MOST_STEPS):
            if self.step():
                return
        raise AssertionError(f"stuck: {self.conductor.trials}")

    @property
    def result(self) -> Sweep:
        return Sweep(self.home, self.spec)

    @property
    def created(self) -> list[str]:
        """The commands that created the home's runs."""
        return [state.created_by for state in self.home.states().values()]

    @property
    def judgements(self) -> list[str]:
        """The evaluations that were asked for, in the order of the log."""
        messages = self.conductor.log.log("commands", None, -1, 100_000)
        return [message.run for message in messages if message.kind == "evaluate"]


@contextmanager
def scripted_sweep(
    path: Path,
    search: Mapping[str, Any] | None = None,
    score: Score = learning_rate,
    ends: Callable[[RunState], str] = lambda state: "finished",
    base: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[ScriptedSweep]:
    home = Home(path)
    spec = SweepSpec(
        id="sweep-cartpole-abcde",
        author="ann",
        created_s=time.time(),
        base={
            "environment": {"id": "CartPole-v1"},
            "launcher": "inline",
            "stop": {"steps": 1000},
            **(base or {}),
        },
        search=dict(search or {"algorithm.learning_rate": "log:1e-5..1e-1"}),
        **{"jobs": 2, **settings},
    )
    SweepFiles(home).write(spec)
    sweep = ScriptedSweep(home, spec, score, ends)
    try:
        with scripted_forks(home):
            yield sweep
    finally:
        sweep.conductor.close()
        home.close()
