"""The `script` players that know no game: random and first-legal.

Like every rule they run step by step in numpy or, with `xp` jax.numpy, inside a compiled rollout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.algorithms.distributions import distribution_for
from rookery.errors import InputError
from rookery.players import Decision
from rookery.players.actions import told
from rookery.players.choice import gumbel
from rookery.players.kinds import PlayerKind, Wanted, always
from rookery.players.member import Member
from rookery.players.scripts import Rule
from rookery.spaces import Continuous, SeatSpec


@dataclass(frozen=True)
class RandomPlayer(Rule):
    """Uniform over the legal actions; over the bounds where they are real numbers."""

    spec: SeatSpec
    xp: Any = np

    def decide(self, observation: dict[str, Any], mask: Any, key: Any) -> Decision:
        xp, lanes = self.xp, _lanes(observation)
        act = distribution_for(self.spec.action, "clipped")
        shape = (lanes, act.parameters)
        if isinstance(self.spec.action, Continuous):
            action = _uniform(xp, key, shape)
            unknown = xp.full(lanes, np.nan, np.float32)
            return Decision(action, act.to_environment(xp, action), unknown, {})
        noise = gumbel(xp, key, shape)
        action, log_prob = act.sample(xp, xp.zeros(shape, np.float32), None, mask, noise)
        return Decision(action, act.to_environment(xp, action), log_prob, {})


@dataclass(frozen=True)
class FirstLegalPlayer(Rule):
    """The legal action with the smallest number: the same game every time, good for tests."""

    spec: SeatSpec  # with discrete actions
    xp: Any = np
    kind: str = "script"

    def decide(self, observation: dict[str, Any], mask: Any, key: Any) -> Decision:
        xp, lanes = self.xp, _lanes(observation)
        act = distribution_for(self.spec.action, "clipped")
        # all alike: of equals, argmax takes the first
        action = act.mode(xp, xp.zeros((lanes, act.parameters), np.float32), mask)
        certain = xp.zeros(lanes, np.float32)
        return Decision(action, act.to_environment(xp, action), certain, {})


def _lanes(observation: dict[str, Any]) -> int:
    return len(next(iter(observation.values())))


def _uniform(xp: Any, key: Any, shape: tuple[int, ...]) -> Any:
    """Uniform in (-1, 1)."""
    if xp is np:
        return key.uniform(-1, 1, shape).astype(np.float32)
    import jax

    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


def _make_random(wanted: Wanted) -> Member:
    return wanted.member(RandomPlayer(wanted.spec, wanted.xp))


def _make_first_legal(wanted: Wanted) -> Member:
    if isinstance(wanted.spec.action, Continuous):
        raise InputError(
            f"script:first-legal needs actions that can be counted: "
            f"environment {wanted.environment_id} has {told(wanted.spec.action)}"
        )
    return wanted.member(FirstLegalPlayer(wanted.spec, wanted.xp))


RANDOM = PlayerKind(
    "script:random",
    "any legal action, all equally likely",
    _make_random,
    compilable=always,
    outside="nothing",
)
FIRST_LEGAL = PlayerKind(
    "script:first-legal",
    "the first legal action",
    _make_first_legal,
    compilable=always,
    outside="nothing",
)
