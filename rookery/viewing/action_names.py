"""What people call the actions of well-known environments; the others have numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
