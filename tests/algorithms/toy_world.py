"""A world that is learned in seconds: one step, right if the action is the one that is shown."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Shown(gymnasium.Env[np.ndarray, np.int64]):
    def __init__(self) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(3)
        self.shown = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(3))
        return np.eye(3, dtype=np.float32)[self.shown], {}

    def step(self, action: np.int64) -> Any:
        return np.zeros(3, np.float32), float(action == self.shown), True, False, {}
