"""Actions of any space: blank ones, what a player's answer is read as, and how a space is told."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from rookery.spaces import ActionSpace, Categorical, Continuous, MultiCategorical, SeatSpec


def blank_actions(spec: SeatSpec, slots: int) -> np.ndarray:
    """As the environment takes them, for slots where nobody acts."""
    if isinstance(spec.action, Continuous):
        return np.zeros((slots, *spec.action.shape), spec.action.dtype)
    if isinstance(spec.action, MultiCategorical):
        return np.zeros((slots, len(spec.action.sizes)), np.int32)
    return np.zeros(slots, np.int32)


def read_action(space: ActionSpace, given: Any, mask: Any) -> np.ndarray:
    """What a player gave, as the environment takes it; ValueError says what is wrong with it."""
    match space:
        case Categorical(n=n):
            return np.asarray(_choice(given, n, mask), np.int32)
        case MultiCategorical(sizes=sizes):
            parts = list(given) if hasattr(given, "__len__") else []
            if len(parts) != len(sizes):
                raise ValueError(f"returned {_kind(given)}, not {len(sizes)} numbers of actions")
            masks = [None] * len(sizes) if mask is None else np.split(mask, np.cumsum(sizes)[:-1])
            chosen = [_choice(*part) for part in zip(parts, sizes, masks, strict=True)]
            return np.asarray(chosen, np.int32)
        case Continuous(shape=shape):
            try:
                numbers = np.asarray(given, np.float32).reshape(1, -1)
            except (TypeError, ValueError):
                numbers = np.full((1, 1), np.nan, np.float32)
            if numbers.shape[1] != len(space.low) or not np.isfinite(numbers).all():
                raise ValueError(f"returned {_kind(given)}, not finite numbers of shape {shape}")
            return bounded(space, numbers).reshape(shape)


def bounded(space: Continuous, rows: np.ndarray) -> np.ndarray:
    """(lanes, numbers) as actions, cut to the bounds."""
    low, high = np.asarray(space.low, np.float32), np.asarray(space.high, np.float32)
    found: np.ndarray = np.clip(rows, low, high).reshape(len(rows), *space.shape)
    return found.astype(space.dtype)


def told(space: ActionSpace) -> str:
    """A space in a message."""
    match space:
        case Categorical(n=n):
            return f"{n} actions"
        case MultiCategorical(sizes=sizes):
            return f"{len(sizes)} actions at a time"
        case Continuous(shape=shape):
            return f"real actions of shape {shape}"


def _choice(given: Any, n: int, mask: Any) -> int:
    """A legal whole number of any make; True and False are no actions."""
    try:
        if isinstance(given, bool):
            raise TypeError(given)
        action = operator.index(given)
    except TypeError as error:
        raise ValueError(f"returned {_kind(given)}, not the number of an action") from error
    if not 0 <= action < n or (mask is not None and not mask[action]):
        raise ValueError(f"chose action {action}, which is not legal")
    return action


def _kind(given: Any) -> str:
    return f"a {type(given).__name__}"
