"""Environments behind one batched, many-seat interface.

    views = env.reset(seed=0)
    while True:
        actions = {seat: choose(view) for seat, view in views.items()}
        views = env.step(actions)

Every adapter resets a slot on the step *after* its episode ended (Gymnasium's NEXT_STEP): the view
that ends an episode carries the true final observation, and the following step ignores the slot's
action, gives reward 0 and has `reset` set. Rows with `reset` are never experience.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rookery.spaces import EnvironmentSpec, SeatSpec

Arrays = dict[str, np.ndarray]
Options = Mapping[str, Any]  # what a person set under `env.`, for the environment's constructor
NO_OPTIONS: Options = types.MappingProxyType({})

Picture = np.ndarray | str  # (height, width, 3) uint8, or SVG text

SOLO_SEAT = "player_0"  # the one seat of a single-agent environment


@dataclass(frozen=True, slots=True)
class SeatView:
    """What one seat learns from one step, for every slot. Arrays lead with the slot axis."""

    observation: Arrays  # leaf path -> (slots, ...); fresh arrays, never reused by the environment
    mask: np.ndarray | None  # (slots, actions) bool, True where legal; None when all are
    reward: np.ndarray  # (slots,) float32
    terminated: np.ndarray  # (slots,) bool
    truncated: np.ndarray  # (slots,) bool
    reset: np.ndarray  # (slots,) bool: this step only began a new episode; not experience
    turn: np.ndarray | None = None  # (slots,) bool: this seat is to act now; None: it always is
    final: np.ndarray | None = None  # (slots,) bool: if truncated, its own last sight; None: yes


class BatchedEnvironment(Protocol):
    """Several copies ("slots") of an environment, stepped together from Python.

    With several seats, every step returns a view for each of them. A seat's observation and mask
    mean something only in the slots where it has the `turn`, and, where it was `truncated`, the
    observation is its final one. Its reward is what this step gave it, whoever acted. `terminated`
    or `truncated` is set once per episode for each seat that took part, at the step that ended its
    part; after that it has no turn and no reward until the slot begins anew, on the step after the
    last seat's end, with `reset` set in every seat's view. Actions of seats without the turn are
    ignored.
    """

    spec: EnvironmentSpec
    slots: int

    def reset(self, seed: int) -> dict[str, SeatView]:
        """Begin a new episode in every slot; rewards are 0 and no flag is set."""
        ...

    def step(
        self, actions: dict[str, np.ndarray], advance: np.ndarray | None = None
    ) -> dict[str, SeatView]:
        """Play one action per seat and slot, counted from 0 as the policy counts them.

        Slots outside `advance` (all when None) stay as they are: the same observation, mask and
        turn again, no reward, no flag. Environments with one seat need not support it.
        """
        ...

    def save(self) -> Arrays:
        """The exact state, random generators included; only where `spec.can_save`."""
        ...

    def restore(self, state: Arrays) -> dict[str, SeatView]:
        """Continue from `save`; returns the views as they stood."""
        ...

    def picture(self, slot: int) -> Picture | None:
        """The slot as it stands; None where it was not made to be drawn, or can't be."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class CompiledStep:
    """One step of one slot of a JAX-native environment; a pytree of scalars and leaves.

    With several seats (in turns; all with the same spaces) `observation` and `mask` are those of
    `seat`, whose turn it is, `reward` has an entry per seat, and the flags are the game's. Where it
    is truncated, only that seat has a last sight: the others' last steps are left out.
    """

    observation: dict[str, Any]
    reward: Any
    terminated: Any
    truncated: Any
    reset: Any
    mask: Any = None
    seat: Any = None  # int32: number of the seat that is to act, in the order of the spec's seats


class CompiledEnvironment(Protocol):
    """A JAX-native environment: pure functions of one slot, batched by the caller with vmap.

    `state` is a pytree of arrays. The functions keep the NEXT_STEP convention themselves.
    """

    spec: EnvironmentSpec

    def reset(self, key: Any) -> tuple[Any, CompiledStep]: ...

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, CompiledStep]: ...


__all__ = [
    "NO_OPTIONS",
    "SOLO_SEAT",
    "Arrays",
    "BatchedEnvironment",
    "CompiledEnvironment",
    "CompiledStep",
    "EnvironmentSpec",
    "Options",
    "Picture",
    "SeatSpec",
    "SeatView",
]
