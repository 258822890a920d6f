"""The slots of a Gymnasium environment, stepped in one of two ways.

An id with a native vector environment (CartPole-v1) is stepped by it in one call; any other is
stepped as several copies in a plain loop. Both keep the NEXT_STEP convention of `rookery.envs` and
give fresh arrays at every step. This is the actor's hot path.
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
from gymnasium.vector import VectorEnv

from rookery.envs import Arrays, Picture, SeatView
from rookery.envs.action_spaces import MASK, excuse_ended, flat_mask
from rookery.envs.failures import environment_failed
from rookery.envs.gymnasium.make import Env
from rookery.envs.gymnasium.probe import Interface
from rookery.envs.gymnasium.wrapper_state import restore_copy, save_copy
from rookery.envs.saved_state import from_text, to_text
from rookery.errors import EnvironmentFailed

MOST_SEEDS = 2**31  # Atari's emulator, for one, takes no seed from here on


class Slots(Protocol):
    """The slots, however they are stepped."""

    def reset(self, seed: int) -> SeatView: ...
    def step(self, actions: np.ndarray) -> SeatView: ...
    def save(self) -> Arrays: ...
    def restore(self, state: Arrays, view: SeatView) -> None: ...
    def picture(self, slot: int) -> Picture | None: ...
    def close(self) -> None: ...


class _AnyAction:
    """Stands in for a vector environment's action space, which it asks at every step.

    At 128 slots `contains` takes a tenth of CartPole's whole step; our encoder has already checked
    the actions, so this says yes at once. Everything else is the real space's.
    """

    def __init__(self, space: Any) -> None:
        self._space = space

    def contains(self, action: Any) -> bool:
        return True

    def __contains__(self, action: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._space, name)


class VectorSlots:
    """All slots in one native vector environment."""

    def __init__(self, env: VectorEnv[Any, Any, Any], interface: Interface, slots: int) -> None:
        self._env = env
        self._env.action_space = cast(Any, _AnyAction(env.action_space))
        self._interface = interface
        self._readers = interface.readers
        self._encode = interface.writer.encoder(slots)
        self._slots = slots
        self._ended = np.zeros(slots, bool)
        self._steps = 0

    def reset(self, seed: int) -> SeatView:
        first = seed % (MOST_SEEDS - self._slots)  # a vector environment counts on from it
        try:
            observation, info = self._env.reset(seed=first)
        except Exception as error:
            raise self._failed(error, "reset") from error
        self._ended = no = np.zeros(self._slots, bool)
        reward = np.zeros(self._slots, np.float32)
        return self._view(observation, info, reward, no.copy(), no.copy(), no)

    def step(self, actions: np.ndarray) -> SeatView:
        chosen = self._encode(actions, self._ended)
        try:
            observation, reward, terminated, truncated, info = self._env.step(chosen)
        except Exception as error:
            raise self._failed(error, "step") from error
        self._steps += 1
        reset, reward = self._ended, np.array(reward, np.float32)
        if np.count_nonzero(reset):  # many times faster than any()
            reward[reset] = 0
        terminated, truncated = np.array(terminated, bool), np.array(truncated, bool)
        self._ended = terminated | truncated
        return self._view(observation, info, reward, terminated, truncated, reset)

    def _view(
        self,
        observation: Any,
        info: dict[str, Any],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        reset: np.ndarray,
    ) -> SeatView:
        leaves = {reader.leaf.path: reader.read_batch(observation) for reader in self._readers}
        mask = None
        if self._interface.mask_source != "none":
            mask = self._mask(observation, info)
        return SeatView(leaves, mask, reward, terminated, truncated, reset.copy())

    def _mask(self, observation: Any, info: dict[str, Any]) -> np.ndarray:
        shape = (self._slots, self._interface.mask_width)
        if self._interface.mask_source == "observation":
            mask = flat_mask(observation[MASK], shape[1], shape[:1])
        elif MASK in info:
            mask = flat_mask(info[MASK], shape[1], shape[:1])
            mask[~np.asarray(info.get(f"_{MASK}", np.True_)) & np.ones(shape[0], bool)] = True
        else:
            mask = np.ones(shape, bool)
        return excuse_ended(mask, self._ended)

    def _failed(self, error: Exception, doing: str) -> EnvironmentFailed:
        return environment_failed(error, self._interface.spec.id, doing, None, self._steps)

    def save(self) -> Arrays:
        return {"copies": to_text([save_copy(self._env)[0]]), "steps": np.asarray([self._steps])}

    def restore(self, state: Arrays, view: SeatView) -> None:
        restore_copy(self._env, from_text(state["copies"])[0], {})
        self._steps = int(state["steps"][0])
        self._ended = view.terminated | view.truncated

    def picture(self, slot: int) -> Picture | None:
        rendered: Any = self._env.render() if self._env.render_mode == "rgb_array" else None
        return None if rendered is None else _as_picture(rendered[slot])

    def close(self) -> None:
        self._env.close()


class LoopedSlots:
    """One single environment per slot, stepped in turn."""

    def __init__(self, envs: list[Env], interface: Interface) -> None:
        self._envs = envs
        self._interface = interface
        self._encode = interface.writer.encoder(len(envs))
        self._ended = np.zeros(len(envs), bool)
        self._steps = [0] * len(envs)

    def reset(self, seed: int) -> SeatView:
        # Not seed + slot: neighbouring seeds of two actors would share most of their episodes.
        drawn = np.random.SeedSequence(seed).generate_state(len(self._envs))
        seeds = (drawn % MOST_SEEDS).tolist()
        observations, infos = [], []
        for slot, env in enumerate(self._envs):
            try:
                observation, info = env.reset(seed=seeds[slot])
            except Exception as error:
                raise self._failed(error, "reset", slot) from error
            observations.append(observation)
            infos.append(info)
        self._ended = no = np.zeros(len(self._envs), bool)
        reward = np.zeros(len(self._envs), np.float32)
        return self._view(observations, infos, reward, no.copy(), no.copy(), no.copy())

    def step(self, actions: np.ndarray) -> SeatView:
        reset = self._ended
        chosen = self._encode(actions, reset)
        count = len(self._envs)
        reward = np.zeros(count, np.float32)
        terminated, truncated = np.zeros(count, bool), np.zeros(count, bool)
        observations, infos = [], []
        slot, begin = 0, reset.tolist()
        try:
            for slot, env in enumerate(self._envs):
                if begin[slot]:
                    observation, info = env.reset()
                else:
                    observation, reward[slot], terminated[slot], truncated[slot], info = env.step(
                        chosen[slot]
                    )
                    self._steps[slot] += 1
                observations.append(observation)
                infos.append(info)
        except Exception as error:
            raise self._failed(error, "reset" if begin[slot] else "step", slot) from error
        self._ended = terminated | truncated
        return self._view(observations, infos, reward, terminated, truncated, reset)

    def _view(
        self,
        observations: list[Any],
        infos: list[dict[str, Any]],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        reset: np.ndarray,
    ) -> SeatView:
        try:
            leaves = {r.leaf.path: r.read_rows(observations) for r in self._interface.readers}
            mask = self._mask(observations, infos)
        except (LookupError, TypeError, ValueError) as error:
            raise self._failed(error, "an observation that does not fit its space,") from error
        return SeatView(leaves, mask, reward, terminated, truncated, reset)

    def _mask(self, observations: list[Any], infos: list[dict[str, Any]]) -> np.ndarray | None:
        if self._interface.mask_source == "none":
            return None
        sources = infos if self._interface.mask_source == "info" else observations
        width = self._interface.mask_width
        mask = np.ones((len(self._envs), width), bool)
        for slot, source in enumerate(sources):
            if MASK in source:
                mask[slot] = flat_mask(source[MASK], width)
        return excuse_ended(mask, self._ended)

    def _failed(self, error: Exception, doing: str, slot: int | None = None) -> EnvironmentFailed:
        step = None if slot is None else self._steps[slot]
        return environment_failed(error, self._interface.spec.id, doing, slot, step)

    def save(self) -> Arrays:
        state: Arrays = {"steps": np.asarray(self._steps)}
        plain = []
        for slot, env in enumerate(self._envs):
            attributes, arrays = save_copy(env)
            plain.append(attributes)
            state.update({f"slot.{slot}.{name}": np.array(a) for name, a in arrays.items()})
        return {**state, "copies": to_text(plain)}

    def restore(self, state: Arrays, view: SeatView) -> None:
        for slot, (env, plain) in enumerate(
            zip(self._envs, from_text(state["copies"]), strict=True)
        ):
            prefix = f"slot.{slot}."
            arrays = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            restore_copy(env, plain, arrays)
        self._steps = [int(steps) for steps in state["steps"]]
        self._ended = view.terminated | view.truncated

    def picture(self, slot: int) -> Picture | None:
        env = self._envs[slot]
        return _as_picture(env.render()) if env.render_mode == "rgb_array" else None

    def close(self) -> None:
        for env in self._envs:
            env.close()


def _as_picture(rendered: Any) -> np.ndarray | None:
    return None if rendered is None else np.asarray(rendered, np.uint8)
