"""Environments whose every number is known beforehand, for tests of anything that plays.

Each works by name: `rookery.testing.envs:CountingEnv`.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from rookery.envs import SOLO_SEAT, CompiledStep
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec

End = Literal["terminated", "truncated"]
Info = dict[str, Any]
Step = tuple[Any, float, bool, bool, Info]


class _Counted(gymnasium.Env[Any, Any]):
    """Counts the steps of an episode."""

    count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.count = 0
        return self._told()

    def _told(self) -> tuple[Any, Info]:
        """What is seen now, and what else is said."""
        raise NotImplementedError


class CountingEnv(_Counted):
    """Observes how many steps were played, one-hot; reward 1; ends after `length` steps."""

    def __init__(self, length: int = 5, end: End = "terminated", actions: int = 2) -> None:
        self.length = length
        self.end = end
        self.observation_space = spaces.Box(0.0, 1.0, (length + 1,), np.float32)
        self.action_space = spaces.Discrete(actions)

    def step(self, action: np.int64) -> Step:
        if self.count >= self.length:
            raise RuntimeError("a step after the episode has ended")
        self.count += 1
        ended, terminates = self.count == self.length, self.end == "terminated"
        observation, info = self._told()
        return observation, 1.0, ended and terminates, ended and not terminates, info

    def _told(self) -> tuple[np.ndarray, Info]:
        observation = np.zeros(self.length + 1, np.float32)
        observation[self.count] = 1
        return observation, {}

    def save_state(self) -> dict[str, np.ndarray]:
        """How a user's own environment lets its state be saved."""
        return {"count": np.asarray(self.count)}

    def restore_state(self, state: dict[str, np.ndarray]) -> None:
        """Continue from `save_state`."""
        self.count = int(state["count"])


class MaskedEnv(_Counted):
    """At step t only the actions a with (a + t) even are legal; an illegal one raises.

    The mask of the final observation allows nothing, as in a finished game.
    """

    def __init__(
        self,
        actions: int = 4,
        length: int = 8,
        mask_in: Literal["info", "observation"] = "info",
    ) -> None:
        self.length = length
        self.mask_in = mask_in
        self.action_space = spaces.Discrete(actions)
        board = spaces.Box(0.0, float(length), (1,), np.float32)
        mask = spaces.MultiBinary(actions)
        in_observation = spaces.Dict({"action_mask": mask, "board": board})
        self.observation_space = board if mask_in == "info" else in_observation

    def legal(self) -> np.ndarray:
        """Which actions may be played now."""
        actions = np.arange(int(self.action_space.n))  # type: ignore[attr-defined]
        return np.asarray(((actions + self.count) % 2 == 0) & (self.count < self.length), np.int8)

    def step(self, action: np.int64) -> Step:
        if not self.legal()[action]:
            raise ValueError(f"illegal action {action} at step {self.count}")
        self.count += 1
        observation, info = self._told()
        return observation, 1.0, self.count == self.length, False, info

    def _told(self) -> tuple[Any, Info]:
        board = np.asarray([self.count], np.float32)
        if self.mask_in == "info":
            return board, {"action_mask": self.legal()}
        return {"action_mask": self.legal(), "board": board}, {}


class NestedEnv(_Counted):
    """Every observation space inside Dict and Tuple, and several choices with starts of their own.

    Reward is 1 when the action repeats `pair` as it was observed, else 0.
    """

    def __init__(self, length: int = 6) -> None:
        self.length = length
        self.observation_space = spaces.Dict(
            {
                "arm": spaces.Dict(
                    {
                        "angle": spaces.Box(-np.pi, np.pi, (2,), np.float64),
                        "on": spaces.MultiBinary(3),
                    }
                ),
                "camera": spaces.Box(0, 255, (3, 8, 9), np.uint8),
                "pair": spaces.Tuple(
                    (spaces.Discrete(5, start=2), spaces.MultiDiscrete([3, 2], start=[1, -1]))
                ),
            }
        )
        self.action_space = spaces.MultiDiscrete([3, 2], start=[1, -1])

    def step(self, action: np.ndarray) -> Step:
        right = self.action_space.contains(action) and bool(np.all(action == self._pair()))
        self.count += 1
        observation, info = self._told()
        return observation, float(right), False, self.count == self.length, info

    def _pair(self) -> np.ndarray:
        return np.asarray([1 + self.count % 3, -1 + self.count % 2])

    def _told(self) -> tuple[Any, Info]:
        camera = np.full((3, 8, 9), self.count, np.uint8)
        camera[1] += 100  # the second channel, to tell the axes apart
        on = np.asarray([self.count % 2, 1, 0], np.int8)
        seen = {
            "arm": {"angle": np.asarray([0.25, -0.5]) * self.count, "on": on},
            "camera": camera,
            "pair": (np.int64(2 + self.count % 5), self._pair()),
        }
        return seen, {}


class FailingEnv(CountingEnv):
    """Raises at the N-th step or reset of its life, counted from 1."""

    def __init__(
        self, at: int = 3, where: Literal["step", "reset"] = "step", length: int = 5
    ) -> None:
        super().__init__(length)
        self.at = at
        self.where = where
        self.calls = {"step": 0, "reset": 0}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        self._fail("reset")
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> Step:
        self._fail("step")
        return super().step(action)

    def _fail(self, where: str) -> None:
        self.calls[where] += 1
        if where == self.where and self.calls[where] == self.at:
            raise RuntimeError(f"this environment fails at {where} {self.at}")


class HangingEnv(CountingEnv):
    """Sleeps in the N-th step of its life, counted from 1."""

    def __init__(self, at: int = 3, seconds: float = 3600.0, length: int = 5) -> None:
        super().__init__(length)
        self.at = at
        self.seconds = seconds
        self.steps = 0

    def step(self, action: np.int64) -> Step:
        self.steps += 1
        if self.steps == self.at:
            time.sleep(self.seconds)
        return super().step(action)


class PacedEnv(CountingEnv):
    """Takes its time: at most `1 / step_s` steps a second, whatever the machine could do."""

    def __init__(self, step_s: float = 0.001, length: int = 50) -> None:
        super().__init__(length)
        self._step_s, self._due = step_s, 0.0

    def step(self, action: np.int64) -> Step:
        now = time.monotonic()
        self._due = max(self._due, now - 1.0) + self._step_s
        if self._due > now:
            time.sleep(self._due - now)
        return super().step(action)


class FramesEnv(CountingEnv):
    """Observes four frames as of a video game, whose pixels are how many steps were played."""

    def __init__(self, length: int = 50, shape: tuple[int, ...] = (84, 84, 4)) -> None:
        super().__init__(length)
        self.observation_space = spaces.Box(0, 255, tuple(shape), np.uint8)

    def _told(self) -> tuple[np.ndarray, Info]:
        return np.full(self.observation_space.shape or (), self.count, np.uint8), {}


class ContinuousBandit(gymnasium.Env[np.ndarray, np.ndarray]):
    """One step an episode: the reward is minus the squared distance of the action to a target."""

    def __init__(self, target: float = 0.5, size: int = 1) -> None:
        self.target = target
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (size,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: np.ndarray) -> Step:
        reward = -float(np.sum((np.asarray(action) - self.target) ** 2))
        return np.ones(1, np.float32), reward, True, False, {}


class CountingCompiled:
    """`CountingEnv` as pure functions of JAX; its state is (steps played, whether it ended)."""

    def __init__(self, length: int = 5, end: End = "terminated", actions: int = 2) -> None:
        self.length = length
        self.end = end
        leaf = Leaf("", "box", (length + 1,), "float32", low=0, high=1)
        self.spec = EnvironmentSpec(
            "rookery.testing.envs:CountingCompiled",
            {SOLO_SEAT: SeatSpec((leaf,), Categorical(actions))},
            compiled=True,
            can_save=True,
        )

    def reset(self, key: Any) -> tuple[Any, CompiledStep]:
        """Begin at zero."""
        import jax.numpy as jnp

        count, no = jnp.zeros((), jnp.int32), jnp.zeros((), bool)
        return (count, no), self._told(count, jnp.zeros((), jnp.float32), no, no)

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, CompiledStep]:
        """Count one, or begin anew."""
        import jax.numpy as jnp

        count, ended = state
        count = jnp.where(ended, 0, count + 1)
        now_ended = count == self.length
        reward = jnp.where(ended, 0.0, 1.0).astype(jnp.float32)
        return (count, now_ended), self._told(count, reward, now_ended, ended)

    def _told(self, count: Any, reward: Any, ended: Any, reset: Any) -> CompiledStep:
        import jax.numpy as jnp

        observation = (jnp.arange(self.length + 1) == count).astype(jnp.float32)
        no = jnp.zeros((), bool)
        terminated, truncated = (ended, no) if self.end == "terminated" else (no, ended)
        return CompiledStep({"": observation}, reward, terminated, truncated, reset)
