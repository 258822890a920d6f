"""Batches on the host: fragments side by side, and the blank one that shapes are read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rookery.algorithms.networks import Network
from rookery.messages.fragment import Fragment
from rookery.spaces import Categorical, Continuous, MultiCategorical, SeatSpec

_PLAIN = ("action", "reward", "terminated", "truncated", "valid", "log_prob")


class Batch(NamedTuple):
    """Fragments side by side along the lane axis; a pytree. Shapes as in a fragment's."""

    observation: dict[str, Any]
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any
    log_prob: Any
    mask: Any  # or None
    order: Any  # int32, (gradient steps, ...): what goes into each, as `make_order` says


def stack(fragments: Sequence[Fragment], order: np.ndarray) -> Batch:
    """Fragments side by side; a single one is passed on without a copy."""

    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)

    first = fragments[0]
    return Batch(
        observation={
            leaf: join([f.observation[leaf] for f in fragments]) for leaf in first.observation
        },
        mask=None if first.mask is None else join([f.mask for f in fragments]),  # type: ignore[misc]
        order=order,
        **{name: join([getattr(f, name) for f in fragments]) for name in _PLAIN},
    )


def blank(network: Network, steps: int, lanes: int, order: np.ndarray) -> Batch:
    """A batch of this shape without a valid row."""
    spec = network.spec
    flags = np.zeros((steps, lanes), np.bool_)
    numbers = np.zeros((steps, lanes), np.float32)
    mask = None
    if spec.masked:
        mask = np.zeros((steps + 1, lanes, network.distribution.parameters), np.bool_)
    observation = {
        leaf.path: np.zeros((steps + 1, lanes, *leaf.shape), leaf.dtype)
        for leaf in spec.observation
    }
    shape, dtype = _action(spec)
    actions: np.ndarray = np.zeros((steps, lanes, *shape), dtype)
    return Batch(observation, actions, numbers, flags, flags, flags, numbers, mask, order)


def has_trained_rows(fragments: Sequence[Fragment], needs_log_prob: bool = True) -> bool:
    """Whether there is anything to learn from; `objective.trained_rows`, asked on the host."""
    return any(
        bool((f.valid & ~np.isnan(f.log_prob) if needs_log_prob else f.valid).any())
        for f in fragments
    )


def _action(spec: SeatSpec) -> tuple[tuple[int, ...], type]:
    match spec.action:
        case Categorical():
            return (), np.int32
        case MultiCategorical(sizes=sizes):
            return (len(sizes),), np.int32
        case Continuous(shape=shape):
            return (int(np.prod(shape)),), np.float32
