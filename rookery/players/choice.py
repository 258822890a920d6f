"""What rules share: a uniform choice among the best actions, and finding their game's board."""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.errors import InputError
from rookery.players import Decision
from rookery.players.actions import told
from rookery.players.kinds import Wanted
from rookery.players.policy import draw_jax, draw_numpy
from rookery.spaces import Categorical


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


def board_leaf(wanted: Wanted, game: str, board: tuple[int, ...], actions: int) -> str:
    """Where the game's board is in an observation; a seat of another game is refused."""
    leaves, space = wanted.spec.observation, wanted.spec.action
    counted = isinstance(space, Categorical) and space.n == actions
    if counted and len(leaves) == 1 and leaves[0].shape == board:
        return leaves[0].path
    shapes = " and ".join(str(leaf.shape) for leaf in leaves)
    raise InputError(
        f"{wanted.name.base} plays {game} only: environment {wanted.environment_id} has {shapes} "
        f"observations and {told(space)}, not a {board} board and {actions} actions"
    )
