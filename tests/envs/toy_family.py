"""A toy family of environments, `toy:COUNT`: one file, as CONTRIBUTING.md says.

Its one environment asks for the parity of a counter: action 1 on odd observations is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import gymnasium
import numpy as np

from rookery.envs import BatchedEnvironment, Options
from rookery.envs.family import EnvironmentInfo, Factory, check_listed
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.envs.gymnasium.probe import probe
from rookery.spaces import EnvironmentSpec

IDS = ("toy:4", "toy:8")


class Parity(gymnasium.Env[np.ndarray, int]):
    def __init__(self, length: int) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._length, self._at = length, 0

    def reset(self, **options: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(**options)
        self._at = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(int(action) == self._at % 2)
        self._at += 1
        return self._seen(), reward, self._at >= self._length, False, {}

    def _seen(self) -> np.ndarray:
        return np.array([self._at % 2, 1], np.float32)


class ToyFamily:
    def infos(self) -> Iterable[EnvironmentInfo]:
        return [EnvironmentInfo(id, "toy", "parity of a counter") for id in IDS]

    def check(self, id: str, others: Callable[[], Iterable[str]]) -> None:
        check_listed(id, IDS)

    def owns(self, made: Any) -> bool:
        return False

    def describe(self, id: str, kwargs: Options, factory: Factory | None) -> EnvironmentSpec:
        return probe(id, kwargs, self._factory(id)).spec

    def make(
        self, id: str, slots: int, kwargs: Options, factory: Factory | None
    ) -> BatchedEnvironment:
        return GymnasiumEnvironment(id, slots, kwargs, self._factory(id))

    def compiled(self, id: str, kwargs: Options, factory: Factory | None) -> None:
        return None

    @staticmethod
    def _factory(id: str) -> Factory:
        return lambda: Parity(int(id.removeprefix("toy:")))


TOY = ToyFamily()
