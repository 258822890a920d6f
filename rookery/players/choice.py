"""A uniform choice among the best actions: how every rule breaks its ties."""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.players import Decision
from rookery.players.policy import draw_jax, draw_numpy


def gumbel(xp: Any, key: Any, shape: tuple[int, ...]) -> Any:
    """Noise whose argmax is a uniform choice, from a numpy Generator or from a JAX key."""
    return (draw_numpy if xp is np else draw_jax)(key, "gumbel", shape)


def choose(xp: Any, best: Any, legal: Any, state: dict[str, Any], key: Any) -> Decision:
    """One of the `best` (lanes, actions) in each lane; where none is, one of the `legal`.

    A rule finds nothing best where the game is over, or where it isn't its turn: it must answer
    all the same, because all lanes answer together.
    """
    best = xp.where((best & legal).any(-1, keepdims=True), best & legal, legal)
    action = xp.where(best, gumbel(xp, key, best.shape), -np.inf).argmax(-1).astype(np.int32)
    count = xp.maximum(best.sum(-1), 1)
    return Decision(action, action, -xp.log(count.astype(np.float32)), state)
