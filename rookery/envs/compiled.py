"""JAX-native environments: their pytrees, and stepping them from Python.

Training compiles the whole rollout and uses a `CompiledEnvironment` directly; evaluation and tests
step one like any other environment, through `SteppedCompiled`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import jax
import numpy as np

from rookery.envs import SOLO_SEAT, Arrays, CompiledEnvironment, CompiledStep, SeatView
from rookery.envs.failures import environment_failed
from rookery.envs.saving import check_header, header_text
from rookery.errors import ConfigError, InputError


def register_pytrees() -> None:
    """Teach JAX that `CompiledStep` is a pytree; calling it again does nothing."""
    example = CompiledStep({}, 0, 0, 0, 0)
    if jax.tree_util.all_leaves([example]):
        names = [field.name for field in fields(CompiledStep)]
        jax.tree_util.register_dataclass(CompiledStep, data_fields=names, meta_fields=[])


class SteppedCompiled:
    """Any JAX-native environment with one seat as a batched environment."""

    def __init__(self, env: CompiledEnvironment, slots: int) -> None:
        if slots < 1:
            raise ConfigError(f"environment {env.spec.id} needs at least 1 slot, not {slots}")
        register_pytrees()
        self.spec = env.spec
        self.slots = slots
        self._played: Any = None  # (key, state, step): all there is to save
        self._calls = 0

        def reset(key: Any) -> Any:
            keys = jax.random.split(key, slots + 1)
            return keys[0], *jax.vmap(env.reset)(keys[1:])

        def step(key: Any, state: Any, actions: Any) -> Any:
            keys = jax.random.split(key, slots + 1)
            return keys[0], *jax.vmap(env.step)(keys[1:], state, actions)

        self._reset = jax.jit(reset)
        self._step = jax.jit(step)

    def reset(self, seed: int) -> dict[str, SeatView]:
        """Begin a new episode in every slot."""
        self._played = self._run("reset", self._reset, _key(seed))
        return self._views()

    def step(self, actions: dict[str, np.ndarray]) -> dict[str, SeatView]:
        """Play one action per slot; a slot whose episode has ended begins a new one instead."""
        key, state, _ = self._played
        self._played = self._run("step", self._step, key, state, actions[SOLO_SEAT])
        self._calls += 1
        return self._views()

    def _run(self, doing: str, function: Any, *arguments: Any) -> Any:
        try:
            return jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
        except Exception as error:
            raise environment_failed(error, self.spec.id, doing, step=self._calls) from error

    def _views(self) -> dict[str, SeatView]:
        step: CompiledStep = self._played[2]
        view = SeatView(
            {path: np.array(leaf) for path, leaf in step.observation.items()},
            None if step.mask is None else np.array(step.mask, bool),
            np.array(step.reward, np.float32),
            np.array(step.terminated, bool),
            np.array(step.truncated, bool),
            np.array(step.reset, bool),
        )
        return {SOLO_SEAT: view}

    def save(self) -> Arrays:
        """The exact state: random key, environment states and last step, leaf by leaf."""
        if self._played is None:
            raise RuntimeError("save before the first reset")
        leaves = {f"leaf.{i}": _to_numpy(x) for i, x in enumerate(jax.tree.leaves(self._played))}
        return {"header": header_text(self._header()), "steps": np.asarray(self._calls), **leaves}

    def restore(self, state: Arrays) -> dict[str, SeatView]:
        """Continue from `save`, in this object or in a new one."""
        check_header(state, self._header())
        templates, structure = jax.tree.flatten(jax.eval_shape(self._reset, _key(0)))
        leaves = [_from_numpy(state.get(f"leaf.{i}"), t) for i, t in enumerate(templates)]
        self._played = jax.tree.unflatten(structure, leaves)
        self._calls = int(state["steps"])
        return self._views()

    def _header(self) -> dict[str, Any]:
        return {"id": self.spec.id, "slots": self.slots}

    def close(self) -> None:
        """Nothing to close."""


def _key(seed: int) -> Any:
    # Folded to 32 bits by numpy, so that any non-negative seed is accepted.
    return jax.random.key(int(np.random.SeedSequence(seed).generate_state(1)[0]))


def _is_key(leaf: Any) -> bool:
    return bool(jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _to_numpy(leaf: Any) -> np.ndarray:
    return np.array(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _from_numpy(saved: np.ndarray | None, template: Any) -> Any:
    """A saved leaf back on the device; refused when it is not what the environment has."""
    is_key = _is_key(template)
    if saved is None or (not is_key and (saved.shape, saved.dtype) != template_type(template)):
        raise InputError("this state does not fit the environment: it was made by another version")
    # jnp.array copies: device_put may alias the caller's numpy memory.
    array = jax.numpy.array(saved)
    return jax.random.wrap_key_data(array) if is_key else array


def template_type(template: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array that does not exist yet."""
    return tuple(template.shape), np.dtype(template.dtype)
