"""JAX-native environments: their pytrees, and stepping them from Python.

Training compiles the whole rollout and uses a `CompiledEnvironment` directly; evaluation, leagues
and tests step one like any other environment, through `SteppedCompiled`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np

from rookery.envs import Arrays, CompiledEnvironment, CompiledStep, Picture, SeatView
from rookery.envs.action_spaces import check_legal
from rookery.envs.failures import environment_failed
from rookery.envs.saved_state import check_header, header_text
from rookery.errors import ConfigError, InputError


def register_pytrees() -> None:
    """Teach JAX that `CompiledStep` is a pytree; calling it again does nothing."""
    example = CompiledStep({}, 0, 0, 0, 0)
    if jax.tree_util.all_leaves([example]):
        names = [field.name for field in fields(CompiledStep)]
        jax.tree_util.register_dataclass(CompiledStep, data_fields=names, meta_fields=[])


class SteppedCompiled:
    """Any JAX-native environment as a batched environment.

    With several seats, which act in turns, all views of a step share one array per leaf: what the
    seat that is to act sees.
    """

    def __init__(self, env: CompiledEnvironment, slots: int) -> None:
        if slots < 1:
            raise ConfigError(f"environment {env.spec.id} needs at least 1 slot, not {slots}")
        register_pytrees()
        self.spec = env.spec
        self.slots = slots
        self._seats = list(env.spec.seats)
        self._played: Any = None  # (key, state, step): all there is to save
        self._ended = np.zeros(slots, bool)  # these slots begin anew at their next step
        self._views: dict[str, SeatView] = {}
        self._calls = 0
        self._draw = getattr(env, "picture", None)
        self._reset, self._step, self._step_some = _batched(env, slots)

    def reset(self, seed: int) -> dict[str, SeatView]:
        """Begin a new episode in every slot."""
        self._played = self._run("reset", self._reset, _key(seed))
        self._ended = np.zeros(self.slots, bool)
        return self._show()

    def step(
        self, actions: dict[str, np.ndarray], advance: np.ndarray | None = None
    ) -> dict[str, SeatView]:
        """Play one action per slot; a slot whose episode has ended begins a new one instead."""
        key, state, last = self._played
        chosen = self._chosen(actions, advance)
        if advance is None and len(self._seats) == 1:
            self._played = self._run("step", self._step, key, state, chosen)
        else:
            # One program for several seats, advance or not: a large game takes long to compile.
            some = np.ones(self.slots, bool) if advance is None else advance
            self._played = self._run("step", self._step_some, key, state, last, chosen, some)
        self._calls += 1
        step: CompiledStep = self._played[2]
        ended = np.asarray(step.terminated) | np.asarray(step.truncated)
        self._ended = ended if advance is None else np.where(advance, ended, self._ended)
        return self._show()

    def position(self, slot: int) -> str | None:
        """A slot's board as text; no JAX-native environment tells it."""
        return None

    def _chosen(self, actions: dict[str, np.ndarray], advance: np.ndarray | None) -> Any:
        """The action of whichever seat has the turn, by slot."""
        if len(self._seats) == 1:
            self._check(self._seats[0], actions[self._seats[0]], ~self._ended, advance)
            return actions[self._seats[0]]
        chosen = np.zeros(self.slots, np.int32)
        for seat, view in self._views.items():
            assert view.turn is not None
            if view.turn.any():
                self._check(seat, actions[seat], view.turn, advance)
                chosen[view.turn] = np.asarray(actions[seat])[view.turn]
        return chosen

    def _check(
        self, seat: str, actions: np.ndarray, turn: np.ndarray, advance: np.ndarray | None
    ) -> None:
        mask = self._views[seat].mask
        if mask is not None:
            rows = np.flatnonzero(turn if advance is None else turn & advance)
            check_legal(seat, self.spec.seats[seat].action, mask, actions, rows)

    def _run(self, doing: str, function: Any, *arguments: Any) -> Any:
        try:
            return jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
        except Exception as error:
            seat = self._seats[0] if len(self._seats) == 1 else None
            raise environment_failed(
                error, self.spec.id, doing, step=self._calls, seat=seat
            ) from error

    def _show(self) -> dict[str, SeatView]:
        step: CompiledStep = self._played[2]
        observation = {path: np.array(leaf) for path, leaf in step.observation.items()}
        mask = None if step.mask is None else np.array(step.mask, bool)
        reward = np.asarray(step.reward, np.float32).reshape(self.slots, -1)
        several = len(self._seats) > 1
        self._views = {
            seat: SeatView(
                observation,
                mask,
                reward[:, number].copy(),
                np.array(step.terminated, bool),
                np.array(step.truncated, bool),
                np.array(step.reset, bool),
                (np.asarray(step.seat) == number) & ~self._ended if several else None,
                np.asarray(step.seat) == number if several else None,
            )
            for number, seat in enumerate(self._seats)
        }
        return dict(self._views)

    def save(self) -> Arrays:
        """The exact state: random key, environment states and last step, leaf by leaf."""
        if self._played is None:
            raise RuntimeError("save before the first reset")
        leaves = {f"leaf.{i}": _to_numpy(x) for i, x in enumerate(jax.tree.leaves(self._played))}
        return {
            "header": header_text(self._header()),
            "steps": np.asarray(self._calls),
            "ended": self._ended.copy(),
            **leaves,
        }

    def restore(self, state: Arrays) -> dict[str, SeatView]:
        """Continue from `save`, in this object or in a new one."""
        check_header(state, self._header())
        templates, structure = jax.tree.flatten(jax.eval_shape(self._reset, _key(0)))
        leaves = [_from_numpy(state.get(f"leaf.{i}"), t) for i, t in enumerate(templates)]
        self._played = jax.tree.unflatten(structure, leaves)
        self._calls = int(state["steps"])
        step: CompiledStep = self._played[2]
        # States from before slots could wait do not say it: there the last step ended them.
        self._ended = np.array(state.get("ended", step.terminated | step.truncated))
        return self._show()

    def _header(self) -> dict[str, Any]:
        return {"id": self.spec.id, "slots": self.slots}

    def picture(self, slot: int) -> Picture | None:
        """What the environment draws of its state, if it has a `picture` for that."""
        if self._draw is None:
            return None
        state = jax.tree.map(lambda x: x[slot], self._played[1])
        drawn: Picture | None = self._draw(state)
        return drawn

    def close(self) -> None:
        """Nothing to close."""


def _batched(env: CompiledEnvironment, slots: int) -> tuple[Any, Any, Any]:
    """`reset`, `step` and a `step` that leaves some slots as they are, for all slots, compiled."""

    def reset(key: Any) -> Any:
        keys = jax.random.split(key, slots + 1)
        return keys[0], *jax.vmap(env.reset)(keys[1:])

    def step(key: Any, state: Any, actions: Any) -> Any:
        keys = jax.random.split(key, slots + 1)
        return keys[0], *jax.vmap(env.step)(keys[1:], state, actions)

    def step_one(key: Any, state: Any, last: CompiledStep, action: Any, go: Any) -> Any:
        new = env.step(key, state, action)
        # What a slot that stays has to tell: the same sight again, and that nothing happened.
        nothing: Any = {n: jax.numpy.zeros_like(getattr(last, n)) for n in _HAPPENINGS}
        still = replace(last, **nothing)
        return jax.tree.map(lambda a, b: jax.numpy.where(go, a, b), new, (state, still))

    def step_some(key: Any, state: Any, last: Any, actions: Any, go: Any) -> Any:
        keys = jax.random.split(key, slots + 1)
        return keys[0], *jax.vmap(step_one)(keys[1:], state, last, actions, go)

    return jax.jit(reset), jax.jit(step), jax.jit(step_some)


_HAPPENINGS = ("reward", "terminated", "truncated", "reset")


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
