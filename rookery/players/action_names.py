"""What people call the actions of well-known environments; the others have numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from rookery.players import chess_actions

_NAMES = {
    "CartPole": ("left", "right"),
    "Acrobot": ("turn back", "nothing", "turn on"),
    "MountainCar": ("left", "nothing", "right"),
    "LunarLander": ("nothing", "left engine", "main engine", "right engine"),
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
    "Blackjack": ("stick", "hit"),
    "connect_four": tuple(f"column {column}" for column in range(1, 8)),
    "tic_tac_toe": tuple(
        f"{row} {column}"
        for row in ("top", "middle", "bottom")
        for column in ("left", "centre", "right")
    ),
}
_VERSION = re.compile(r"[-_]v\d+\Z")


def action_names(environment: str) -> Sequence[str]:
    """By the environment's id, whichever library it is from; empty: nobody named them."""
    base = _VERSION.sub("", environment.rpartition(":")[2])
    return _NAMES.get(base, ())


def action_name(environment: str, position: str | None, action: Any) -> str:
    """Of one legal action in a position, such as `e2e4` or `column 3`; "": it has none."""
    if environment == chess_actions.ENVIRONMENT and position is not None:
        return chess_actions.uci_of(int(action), position)
    names = action_names(environment)
    return names[int(action)] if names else ""


def legal_names(environment: str, position: str | None, mask: Any) -> dict[int, str]:
    """Of all legal actions; empty where actions have no names."""
    legal = np.flatnonzero(mask).tolist() if mask is not None else _all(environment)
    named = {action: action_name(environment, position, action) for action in legal}
    return named if all(named.values()) else {}


def _all(environment: str) -> range:
    return range(len(action_names(environment)))
