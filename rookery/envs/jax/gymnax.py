"""Gymnax environments as compiled environments.

Gymnax resets inside the step that ended an episode; this adapter is built on its `step_env` and
`reset_env` instead, so that the final observation is kept and the slot begins anew on the step
after, with time limits and natural ends apart.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from gymnasium import spaces

from rookery.envs import NO_OPTIONS, SOLO_SEAT, CompiledStep, Options
from rookery.envs.action_spaces import write_space
from rookery.envs.gymnasium.make import unknown_option
from rookery.envs.jax.environment import register_pytrees, template_type
from rookery.envs.observation_spaces import LeafReader, read_space, travel_dtype
from rookery.errors import ConfigError, InputError, MissingExtra, UnknownName
from rookery.spaces import Continuous, EnvironmentSpec, SeatSpec

PREFIX = "gymnax:"


class GymnaxEnvironment:
    """`gymnax:NAME`; options are the environment's parameters or its constructor's arguments."""

    def __init__(self, id: str, kwargs: Options = NO_OPTIONS) -> None:
        register_pytrees()
        self._env, self._params = _make(id, kwargs)
        self._readers = _readers(id, self._env, self._params)
        action_space = _gymnasium_space(self._env.action_space(self._params), f"{id}: the action")
        self._head = write_space(action_space, f"{id}: the action space").head
        limit = getattr(self._params, "max_steps_in_episode", None)
        leaves = tuple(reader.leaf for reader in self._readers)
        self.spec = EnvironmentSpec(
            id,
            {SOLO_SEAT: SeatSpec(leaves, self._head)},
            compiled=True,
            can_save=True,
            max_episode_steps=limit if isinstance(limit, int) else None,
        )
        # The state's types as `reset` makes them, so that a scan's carry never changes type.
        self._state_types = jax.eval_shape(self._reset_inner, jax.random.key(0))[1]

    def reset(self, key: Any) -> tuple[Any, CompiledStep]:
        """A new episode; the state is (the environment's state, whether its episode has ended)."""
        observation, inner = self._reset_inner(key)
        no = jnp.zeros((), bool)
        step = CompiledStep(self._leaves(observation), jnp.zeros((), jnp.float32), no, no, no)
        return (self._settle(inner), no), step

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, CompiledStep]:
        """One step, or the beginning of a new episode where the last one has ended."""
        inner, ended = state
        step_key, reset_key = jax.random.split(key)
        observation, played, reward, terminated, _ = self._env.step_env(
            step_key, inner, self._action(action), self._params
        )
        truncated = self._env.is_truncated(played, self._params)
        first_observation, fresh = self._reset_inner(reset_key)

        def choose(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(ended, a, b), new, old)

        terminated = jnp.asarray(terminated, bool) & ~ended
        truncated = jnp.asarray(truncated, bool) & ~ended
        out = CompiledStep(
            choose(self._leaves(first_observation), self._leaves(observation)),
            jnp.where(ended, 0, jnp.asarray(reward, jnp.float32).reshape(())),
            terminated,
            truncated,
            ended,
        )
        return (choose(self._settle(fresh), self._settle(played)), terminated | truncated), out

    def _reset_inner(self, key: Any) -> Any:
        return self._env.reset_env(key, self._params)

    def _action(self, action: Any) -> Any:
        if not isinstance(self._head, Continuous):
            return action
        shape = self._head.shape
        low, high = np.reshape(self._head.low, shape), np.reshape(self._head.high, shape)
        return jnp.clip(jnp.reshape(action, shape), low, high).astype(self._head.dtype)

    def _leaves(self, observation: Any) -> dict[str, Any]:
        return {
            reader.leaf.path: reader.convert(
                jnp.asarray(reader.dig(observation)).astype(reader.leaf.dtype), jnp
            )
            for reader in self._readers
        }

    def _settle(self, inner: Any) -> Any:
        """Give Python scalars and weakly typed values the types that the state began with."""
        return jax.tree.map(
            lambda x, t: jax.lax.convert_element_type(x, t.dtype), inner, self._state_types
        )


def _make(id: str, kwargs: Options) -> tuple[Any, Any]:
    """The environment and its parameters, with each option given to the one it belongs to."""
    try:
        import gymnax
    except ImportError as error:
        raise MissingExtra(f"environment {id}", "gymnax") from error
    name = id.removeprefix(PREFIX)
    if name not in gymnax.registered_envs:
        known = [PREFIX + known for known in gymnax.registered_envs]
        raise UnknownName("environment", PREFIX + name, known, "run `rookery envs gymnax`")
    env, params = _construct(id, gymnax, name, {})
    arguments = list(inspect.signature(type(env)).parameters)
    construction = {k: v for k, v in kwargs.items() if k in arguments}
    if construction:
        env, params = _construct(id, gymnax, name, construction)
    known = [field.name for field in dataclasses.fields(params)]
    changes = {}
    for option, value in kwargs.items():
        if option in construction:
            continue
        if option not in known:
            raise unknown_option(id, option, known + arguments)
        changes[option] = _like(id, option, value, getattr(params, option))
    return env, params.replace(**changes)


def _construct(id: str, gymnax: Any, name: str, arguments: dict[str, Any]) -> Any:
    try:
        return gymnax.make(name, **arguments)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"environment {id} cannot be made: {reason}") from error


def _like(id: str, option: str, value: Any, default: Any) -> Any:
    """The value in its parameter's type, or a ConfigError that names the type."""
    wanted: str = type(default).__name__
    if isinstance(default, bool):
        fits = isinstance(value, bool)
    elif isinstance(default, int):
        fits = isinstance(value, int) and not isinstance(value, bool)
    elif isinstance(default, float):
        fits = isinstance(value, int | float) and not isinstance(value, bool)
        value = float(value) if fits else value
    elif hasattr(default, "shape"):
        wanted = f"array of shape {tuple(default.shape)}"
        fits = np.shape(value) == tuple(default.shape)
        value = jnp.asarray(value, default.dtype) if fits else value
    else:
        fits = True
    if not fits:
        raise ConfigError(f"environment {id}: option {option!r} is {value!r}, not of type {wanted}")
    return value


def _readers(id: str, env: Any, params: Any) -> tuple[LeafReader, ...]:
    space = _gymnasium_space(env.observation_space(params), f"{id}: the observation")
    readers = read_space(space, f"{id}: the observation space")
    if id.endswith("-MinAtar"):
        # Planes of 0 and 1 that Gymnax gives as float32: a byte each is enough.
        readers = tuple(
            dataclasses.replace(r, leaf=msgspec.structs.replace(r.leaf, dtype="uint8"))
            for r in readers
        )
    shapes = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    for reader in readers:
        given = template_type(reader.dig(shapes))[0]
        if given != reader.raw_shape:
            raise InputError(
                f"{id}: it observes the shape {given}, but its space says {reader.raw_shape}"
            )
    return readers


def _gymnasium_space(space: Any, where: str) -> Any:
    """A Gymnax space as Gymnasium's, with its bounds spread over its shape."""
    kind = type(space).__name__
    if kind == "Discrete":
        return spaces.Discrete(int(space.n))
    if kind == "Box":
        dtype = np.dtype(travel_dtype(np.dtype(space.dtype)))
        low, high = (
            np.broadcast_to(np.asarray(bound, dtype), space.shape)
            for bound in (space.low, space.high)
        )
        return spaces.Box(low, high, dtype=dtype.type)
    if kind == "Dict":
        return spaces.Dict({k: _gymnasium_space(s, where) for k, s in space.spaces.items()})
    if kind == "Tuple":
        return spaces.Tuple([_gymnasium_space(s, where) for s in space.spaces])
    raise InputError(f"{where} space has a {kind}, which is not supported")
