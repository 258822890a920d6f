"""Evaluation: fresh episodes with a fixed policy, on seeds that training never uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery import seeds
from rookery.algorithms.networks import Network
from rookery.codec import Arrays
from rookery.config import RunConfig
from rookery.control.home import Home
from rookery.envs import SOLO_SEAT, BatchedEnvironment
from rookery.envs.registry import make
from rookery.errors import InputError, UnknownName
from rookery.learner.checkpoint import acting_arrays, newest_checkpoint
from rookery.learner.store import open_store
from rookery.players import Player
from rookery.players.policy import PolicyPlayer
from rookery.players.script import RandomPlayer
from rookery.spaces import EnvironmentSpec

MAX_SLOTS = 128


@dataclass(frozen=True)
class Episodes:
    """What was played: one entry per episode."""

    returns: np.ndarray
    lengths: np.ndarray

    def summary(self) -> dict[str, float]:
        return {
            "mean": float(self.returns.mean()),
            "std": float(self.returns.std()),
            "min": float(self.returns.min()),
            "max": float(self.returns.max()),
            "length": float(self.lengths.mean()),
        }


def play_episodes(
    env: BatchedEnvironment,
    player: Player,
    arrays: Arrays,
    episodes: int,
    seed: int,
    rng: np.random.Generator,
) -> Episodes:
    """Play exactly `episodes`, a fixed number in each slot.

    Taking the first to finish instead would favour short episodes.
    """
    quota = np.full(env.slots, episodes // env.slots)
    quota[: episodes % env.slots] += 1
    totals, lengths = np.zeros(env.slots), np.zeros(env.slots, np.int64)
    found: list[tuple[float, int]] = []
    view = env.reset(seed)[SOLO_SEAT]
    state = player.initial_state(env.slots)
    while quota.any():
        decision = player.act(arrays, view.observation, view.mask, state, rng)
        state = decision.state
        view = env.step({SOLO_SEAT: decision.to_environment})[SOLO_SEAT]
        totals += view.reward
        lengths += ~view.reset
        for slot in np.flatnonzero(view.terminated | view.truncated):
            if quota[slot]:
                quota[slot] -= 1
                found.append((float(totals[slot]), int(lengths[slot])))
            totals[slot], lengths[slot] = 0.0, 0
    return Episodes(np.array([r for r, _ in found]), np.array([n for _, n in found]))


def evaluate_run(
    home: Home, run: str, episodes: int, seed: int = 0, player: str = "policy"
) -> dict[str, Any]:
    """Greedy and sampled play of the newest checkpoint; the object of `rookery eval --json`."""
    state = home.state(run)
    config, spec = home.config(state), home.spec(state)
    network = Network(spec.seats[SOLO_SEAT], config.network)
    arrays: Arrays = {}
    if player == "script:random":
        players: dict[str, Player] = {"sampled": RandomPlayer(spec.seats[SOLO_SEAT])}
        name, env_steps = player, 0
    elif player == "policy":
        players = {
            "greedy": PolicyPlayer(network, greedy=True),
            "sampled": PolicyPlayer(network),
        }
        arrays, name, env_steps = _newest_arrays(home, run, config, network)
    else:
        raise UnknownName("player", player, ["policy", "script:random"])
    result: dict[str, Any] = {
        "run": run,
        "checkpoint": name,
        "env_steps": env_steps,
        "episodes": episodes,
        "seed": seed,
    }
    for index, (kind, chosen) in enumerate(players.items()):
        played = _play(config, spec, chosen, arrays, episodes, (seed, index))
        result[kind] = played.summary()
    return result


def _play(
    config: RunConfig,
    spec: EnvironmentSpec,
    player: Player,
    arrays: Arrays,
    episodes: int,
    place: tuple[int, int],
) -> Episodes:
    env = make(config.environment.id, min(episodes, MAX_SLOTS), config.environment.kwargs)
    try:
        seed = seeds.number(config.seed, "evaluation", *place, 0)
        rng = seeds.generator(config.seed, "evaluation", *place, 1)
        return play_episodes(env, player, arrays, episodes, seed, rng)
    finally:
        env.close()


def _newest_arrays(
    home: Home, run: str, config: RunConfig, network: Network
) -> tuple[Arrays, str, int]:
    checkpoint = newest_checkpoint(open_store(home.checkpoint_uri(run, config)))
    if checkpoint is None:
        raise InputError(f"run {run} has no checkpoint yet: train it for some seconds first")
    arrays = acting_arrays(network, checkpoint.arrays)
    return arrays, checkpoint.name, checkpoint.manifest.ledger.trained
