"""Evaluation: fresh episodes with a fixed policy, on seeds that training never uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery import seeds
from rookery.codec import Arrays
from rookery.config import RunConfig
from rookery.control.home import Home
from rookery.envs import SOLO_SEAT, BatchedEnvironment
from rookery.envs.registry import make
from rookery.errors import InputError, UnknownName
from rookery.frozen import load_frozen
from rookery.players import Player
from rookery.players.policy import PolicyPlayer
from rookery.players.script import RandomPlayer

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
    if len(spec.seats) > 1:
        raise InputError(
            f"{spec.id} has {len(spec.seats)} seats: use `rookery match {spec.id} {run} "
            "script:random` to see how a policy plays there"
        )
    arrays: Arrays = {}
    if player == "script:random":
        players: dict[str, Player] = {"sampled": RandomPlayer(next(iter(spec.seats.values())))}
        name, env_steps = player, 0
    elif player == "policy":
        frozen = load_frozen(home, run)
        players = {
            "greedy": PolicyPlayer(frozen.network, greedy=True),
            "sampled": PolicyPlayer(frozen.network),
        }
        arrays, name, env_steps = frozen.arrays, frozen.checkpoint, frozen.env_steps
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
        played = _play(config, chosen, arrays, episodes, (seed, index))
        result[kind] = played.summary()
    return result


def _play(
    config: RunConfig, player: Player, arrays: Arrays, episodes: int, place: tuple[int, int]
) -> Episodes:
    env = make(config.environment.id, min(episodes, MAX_SLOTS), config.environment.kwargs)
    try:
        seed = seeds.number(config.seed, "evaluation", *place, 0)
        rng = seeds.generator(config.seed, "evaluation", *place, 1)
        return play_episodes(env, player, arrays, episodes, seed, rng)
    finally:
        env.close()
