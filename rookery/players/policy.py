"""Policies, snapshots and leagues: networks that act, in numpy or inside a compiled rollout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.algorithms.networks import Network
from rookery.players import Decision
from rookery.players.kinds import PlayerKind, Wanted, always
from rookery.players.member import Member
from rookery.players.names import is_snapshot

Noise = Callable[[Any, str, tuple[int, ...]], Any]  # (key, "gumbel" or "normal", shape) -> array


@dataclass(frozen=True)
class PolicyPlayer:
    """Acts with `params`: the weights' arrays, parameters and statistics in one mapping."""

    network: Network
    xp: Any = np
    draw: Noise | None = None  # None: numpy's
    greedy: bool = False
    kind: str = "policy"

    def initial_state(self, lanes: int) -> dict[str, Any]:
        return {}

    def act(
        self,
        params: Mapping[str, Any],
        observation: dict[str, Any],
        mask: Any,
        state: dict[str, Any],
        key: Any,
    ) -> Decision:
        xp, network, arrays = self.xp, self.network, dict(params)
        features = network.encode(xp, arrays, arrays, observation)
        theta, extra = network.policy(xp, arrays, features), arrays.get("log_std")
        act = network.distribution
        if self.greedy:
            action = act.mode(xp, theta, mask)
            log_prob = act.log_prob(xp, theta, extra, mask, action)
        else:
            noise = (self.draw or draw_numpy)(key, act.noise, theta.shape)
            action, log_prob = act.sample(xp, theta, extra, mask, noise)
        return Decision(action, act.to_environment(xp, action), log_prob, state)


def draw_numpy(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    if kind == "normal":
        return rng.standard_normal(shape, dtype=np.float32)
    exponential = rng.standard_exponential(shape, dtype=np.float32)
    return -np.log(np.maximum(exponential, np.finfo(np.float32).tiny))


def draw_jax(key: Any, kind: str, shape: tuple[int, ...]) -> Any:
    import jax

    return jax.random.normal(key, shape) if kind == "normal" else jax.random.gumbel(key, shape)


def _make(wanted: Wanted) -> Member:
    found = wanted.weights(wanted.name, wanted.seat, wanted.spec)
    draw = None if wanted.xp is np else draw_jax
    kind = "policy" if found.policy else "snapshot"
    player = PolicyPlayer(found.network, wanted.xp, draw, wanted.greedy, kind)
    return Member(wanted.name.text, player, found.name, found.arrays, found.policy)


POLICY = PlayerKind(
    "main",
    "a policy of this run, with its newest weights",
    _make,
    form="a policy's name is of letters, digits and . _ -",
    compilable=always,
    outside="nothing",
)
LEAGUE = PlayerKind(
    "league:main",
    "whom the league of a policy picks, game by game",
    _make,
    form="write league:POLICY",
    compilable=always,
    drawn=True,
    outside="nothing",
)
SNAPSHOT = PlayerKind(
    "snapshot:RUN@340",
    "a version of a run's weights that was kept",
    _make,
    form="write snapshot:RUN@NUMBER",
    takes=is_snapshot,
    compilable=always,
    outside="nothing",
)
