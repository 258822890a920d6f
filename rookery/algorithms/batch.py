"""Batches on the host: fragments side by side, and the blank one that shapes are read from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rookery.algorithms.networks import Network
from rookery.messages.fragment import Fragment
from rookery.messages.steps import Steps, each
from rookery.spaces import stored_action


class Batch(NamedTuple):
    """Fragments side by side along the lane axis, and the minibatches of an update; a pytree."""

    steps: Steps
    order: Any  # int32, (gradient steps, ...): what goes into each, as `make_order` says


def stack(fragments: Sequence[Fragment], order: np.ndarray) -> Batch:
    """Fragments side by side; a single one is passed on without a copy."""
    parts = [fragment.steps for fragment in fragments]
    if len(parts) == 1:
        return Batch(parts[0], order)
    return Batch(each(lambda *arrays: np.concatenate(arrays, axis=1), *parts), order)


def blank(network: Network, steps: int, lanes: int) -> Steps:
    """Rows of this shape of which none is valid."""
    spec = network.spec
    flags = np.zeros((steps, lanes), np.bool_)
    numbers = np.zeros((steps, lanes), np.float32)
    indices = np.zeros((steps, lanes), np.uint8)
    shape, dtype = stored_action(spec.action)
    mask = None
    if spec.masked:  # every action is legal in padding, so that no arithmetic meets an empty choice
        mask = np.ones((steps + 1, lanes, network.distribution.parameters), np.bool_)
    return Steps(
        observation={
            leaf.path: np.zeros((steps + 1, lanes, *leaf.shape), leaf.dtype)
            for leaf in spec.observation
        },
        action=np.zeros((steps, lanes, *shape), dtype),
        reward=numbers,
        terminated=flags,
        truncated=flags,
        valid=flags,
        log_prob=numbers,
        seat=indices,
        player=indices,
        behind=indices,
        mask=mask,
    )


def has_trained_rows(fragments: Sequence[Fragment], needs_log_prob: bool = True) -> bool:
    """Whether there is anything to learn from; `objective.trained_rows`, asked on the host."""
    parts = [fragment.steps for fragment in fragments]
    return any(bool((s.known if needs_log_prob else s.valid).any()) for s in parts)
