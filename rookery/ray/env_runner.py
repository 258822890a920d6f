"""EnvRunner: a plain class that plays an environment and hands out what it played.

    runner = EnvRunner("CartPole-v1", seed=1)
    sample = runner.sample(num_steps=512)
    runner.set_weights(weights)
    runner.stop()

It is an actor's rollout without an actor's bus and credits: who calls decides when is played, with
which weights, and what becomes of it. It needs no Ray; `ray.remote(EnvRunner)` places it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rookery.actor.build import build_rollout
from rookery.actor.fragments import fragments_of
from rookery.actor.loop import Admitted, Played
from rookery.actor.rollouts.stepped import SteppedRollout
from rookery.actor.rollouts.table_rollout import TableRollout
from rookery.algorithms.policies import initial_weights
from rookery.checkpoints.policies import FindRun, FrozenPolicy, RunFiles
from rookery.config.models import RunConfig
from rookery.config.reading import build, load_yaml
from rookery.envs.registry import describe
from rookery.errors import InputError
from rookery.messages import ActorId
from rookery.messages.frame import Arrays
from rookery.messages.weights import Weights
from rookery.players.seat_map import Seating
from rookery.ray.sample import Sample, one_of
from rookery.ray.weights import RunnerWeights, check_fit, home_at
from rookery.spaces import SeatSpec
from rookery.worker.policies import is_solo, networks, policy_setups
from rookery.worker.xla import prepare_xla

JAX_NATIVE = ("gymnax:", "pgx:")
LOOK_ROWS = 16  # played at a time while episodes are counted


@dataclass(frozen=True)
class _ToPlay:
    """As `actor.build.RunToPlay`: no run, only what one would play."""

    files: RunFiles
    seating: Seating
    find: FindRun


class EnvRunner:
    """Plays `actors.envs_per_actor` slots of an environment, whoever sits in its seats."""

    def __init__(
        self,
        config: str | Path | Mapping[str, Any] | RunConfig,
        seed: int = 0,
        home: str | Path | None = None,
    ) -> None:
        """`config` is an environment's id, the path of a YAML file, a mapping as in one, or a
        RunConfig. `seed` tells runners apart: what they play, not what they begin with, which is
        the config's own seed. `home` is where runs are that its seats name, like snapshot:RUN@340.
        """
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"seed={seed!r}: use a whole number of at least 0")
        self.config = _playable(read_config(config))
        self._actor = ActorId(seed, 0)
        named = self.config.environment
        if named.id.startswith(JAX_NATIVE) and "jax" not in sys.modules:
            prepare_xla(self.config.learner.threads, "auto")  # on what is for the caller to say
        spec = describe(named.id, named.kwargs)
        self._seating = seating = Seating.of(self.config, spec)
        _refuse_leagues(seating)
        files = RunFiles("", self.config, spec, "", "file:.")  # no league: nothing is read there
        played = _ToPlay(files, seating, lambda run: home_at(home).find_files(run))
        setups, nets = policy_setups(self.config, seating), networks(self.config, seating)
        begun = initial_weights(list(setups.values()), self.config.seed)
        arrays = {policy: nets[policy].acting_arrays(*begun[policy]) for policy in setups}
        self._weights = RunnerWeights.of(arrays)
        self._rollout = build_rollout(played, self._actor)
        self._solo = is_solo(seating)
        held = {seat for policy in self.config.learning for seat in seating.live[policy]}
        lanes = len(held) if spec.simultaneous else 1
        self._steps_a_row = self.config.actors.envs_per_actor * lanes  # at most
        self._samples = self._agent_steps = 0
        self._since = _Counts()
        self._stopped = False

    # --- playing --------------------------------------------------------------------------------

    def sample(self, num_steps: int | None = None, num_episodes: int | None = None) -> Sample:
        """Go on playing for at least so many agent steps, or until at least so many episodes ended.

        Steps are rounded up to whole rows: every slot plays as many environment steps. Episodes
        are counted every 16 rows. With neither, `actors.rollout_steps` rows are played. A
        JAX-native environment (`gymnax:`, `pgx:`) is one compiled call of `actors.rollout_steps`
        rows, so there everything is rounded up to those.

        Every step is in one sample and no other; one whose seat has not had its next turn yet is
        in a later one.
        """
        self._check_running()
        _check_asked(num_steps, num_episodes)
        weights = self._weights.policies
        version = weights[self.config.learning[0]].header.version
        admitted = Admitted(version, {policy: w.arrays for policy, w in weights.items()})
        parts: list[Played] = []
        steps = episodes = 0
        while not parts or steps < (num_steps or 0) or episodes < (num_episodes or 0):
            self._resize(num_steps and num_steps - steps, num_episodes)
            parts.append(played := self._rollout(admitted))
            steps += sum(int(rows.valid.sum()) for rows in played.steps.values())
            episodes += sum(len(ended) for ended in played.episodes.values())
        fragments = fragments_of(
            one_of(parts, self._solo),
            version,
            run="",
            actor=str(self._actor),
            learning=self.config.learning,
            seats=tuple(self._seating.spec.seats),
            sequence=self._samples * len(self.config.learning),
            first_step=self._agent_steps,
        )
        sample = Sample(fragments)
        self._samples += 1
        self._agent_steps += sample.steps
        self._since.add(sample)
        return sample

    def _resize(self, steps_left: int | None, num_episodes: int | None) -> None:
        if not isinstance(self._rollout, SteppedRollout | TableRollout):
            return  # compiled for a number of rows
        rows = self.config.actors.rollout_steps
        if steps_left is not None:
            rows = math.ceil(steps_left / self._steps_a_row)
        elif num_episodes is not None:
            rows = min(rows, LOOK_ROWS)
        self._rollout.resize(rows)

    # --- weights --------------------------------------------------------------------------------

    def get_weights(self) -> RunnerWeights:
        """Those that it plays with."""
        return self._weights

    def set_weights(
        self, weights: RunnerWeights | FrozenPolicy | Weights | Mapping[str, Arrays]
    ) -> None:
        """Play with these from the next sample on; policies that are not among them keep theirs.

        Across processes pass RunnerWeights, or an ObjectRef of them: anything else would be
        pickled by Ray.
        """
        self._check_running()
        given = RunnerWeights.of(weights)
        check_fit(given, {policy: self._weights[policy] for policy in self._weights.policies})
        self._weights = RunnerWeights({**self._weights.policies, **given.policies})

    # --- what it is, and how it is doing --------------------------------------------------------

    def get_spaces(self) -> dict[str, SeatSpec]:
        """What each policy sees and may do."""
        return dict(self._seating.spaces)

    def get_metrics(self) -> dict[str, float | None]:
        """Since the last call; means are None where nothing ended."""
        counts, self._since = self._since, _Counts()
        return {**counts.means(), "agent_steps_total": self._agent_steps}

    def stop(self) -> None:
        """Close the environment and end its players; it plays no more."""
        if not self._stopped:
            self._stopped = True
            self._rollout.close()
            if isinstance(self._rollout, SteppedRollout | TableRollout):
                self._rollout.close_environment()

    def _check_running(self) -> None:
        if self._stopped:
            raise InputError("this EnvRunner was stopped: make a new one")


class _Counts:
    """Of the samples since somebody asked."""

    def __init__(self) -> None:
        self._samples = self._agent_steps = 0
        self._returns: list[float] = []
        self._lengths: list[int] = []

    def add(self, sample: Sample) -> None:
        self._samples += 1
        self._agent_steps += sample.steps
        self._returns += [episode.total_reward for episode in sample.episodes]
        self._lengths += [episode.length for episode in sample.episodes]

    def means(self) -> dict[str, float | None]:
        count = len(self._returns)
        return {
            "samples": self._samples,
            "agent_steps": self._agent_steps,
            "episodes": count,
            "mean_return": sum(self._returns) / count if count else None,
            "mean_length": sum(self._lengths) / count if count else None,
        }


def read_config(config: str | Path | Mapping[str, Any] | RunConfig) -> RunConfig:
    """An environment's id, the path of a YAML file, a mapping as in one, or a config as it is."""
    if isinstance(config, RunConfig):
        return config
    if isinstance(config, Mapping):
        return build(config)
    if isinstance(config, Path) or config.endswith((".yaml", ".yml")):
        return build(load_yaml(config))
    return build({"environment": {"id": config}})


def _playable(config: RunConfig) -> RunConfig:
    """Without rating games, which belong to a league; one that plays nothing is refused."""
    if config.replay.run:
        raise InputError(f"replay.run={config.replay.run}: an EnvRunner plays, and replays nothing")
    league = config.league.model_copy(update={"rating_every": 0})
    return config.model_copy(update={"league": league})


def _refuse_leagues(seating: Seating) -> None:
    named = [text for text in seating.map.options if text.startswith("league:")]
    if named:
        raise InputError(
            f"seats name {named[0]}, and an EnvRunner has no league: seat main, script:random or "
            "snapshot:RUN@NUMBER"
        )


def _check_asked(num_steps: int | None, num_episodes: int | None) -> None:
    if num_steps is not None and num_episodes is not None:
        raise InputError("sample takes num_steps or num_episodes, not both")
    for name, asked in (("num_steps", num_steps), ("num_episodes", num_episodes)):
        if asked is not None and (not isinstance(asked, int) or asked < 1):
            raise InputError(f"{name}={asked!r}: use a whole number of at least 1")
