"""The `script` players: rules that need no weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.algorithms.distributions import distribution_for
from rookery.players import Decision
from rookery.players.policy import draw_numpy
from rookery.spaces import Continuous, SeatSpec


@dataclass(frozen=True)
class RandomPlayer:
    """Uniform over the legal actions; over the bounds where they are real numbers."""

    spec: SeatSpec
    kind: str = "script"

    def initial_state(self, lanes: int) -> dict[str, Any]:
        return {}

    def act(
        self,
        params: Mapping[str, Any],
        observation: dict[str, Any],
        mask: Any,
        state: dict[str, Any],
        key: np.random.Generator,
    ) -> Decision:
        lanes = len(next(iter(observation.values())))
        act = distribution_for(self.spec.action, "clipped")
        shape = (lanes, act.parameters)
        unknown = np.full(lanes, np.nan, np.float32)
        if isinstance(self.spec.action, Continuous):
            action = key.uniform(-1, 1, shape).astype(np.float32)
            return Decision(action, act.to_environment(np, action), unknown, state)
        noise = draw_numpy(key, act.noise, shape)
        action, log_prob = act.sample(np, np.zeros(shape, np.float32), None, mask, noise)
        return Decision(action, act.to_environment(np, action), log_prob, state)
