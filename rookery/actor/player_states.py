"""What players carry from one step of an episode to the next, at every seat of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rookery.messages.frame import Arrays
from rookery.players.member import Member


def choose(xp: Any, lanes: Any, new: Any, old: Any) -> Any:
    """Rows of `new` in these lanes, of `old` in the others."""
    return xp.where(lanes.reshape(-1, *[1] * (old.ndim - 1)), new, old)


class PlayerStates:
    """A state for each member and (slot, seat); it begins anew with every episode there."""

    def __init__(self, members: Sequence[Member], slots: int, seats: int) -> None:
        self._members, self._shape = members, (slots, seats)
        self._kept: dict[int, Arrays] = {}  # member -> leaf -> (slots, seats, ...)

    def take(self, member: int, rows: np.ndarray) -> Arrays:
        """A member's state at these (slot, seat) rows."""
        if member not in self._kept:
            self._kept[member] = self._first(member)
        return {leaf: x[rows[:, 0], rows[:, 1]] for leaf, x in self._kept[member].items()}

    def put(self, member: int, rows: np.ndarray, state: Arrays) -> None:
        for leaf, x in state.items():
            self._kept[member][leaf][rows[:, 0], rows[:, 1]] = x

    def restart(self, slots: np.ndarray | slice) -> None:
        """New episodes begin in these slots."""
        for member, kept in self._kept.items():
            if kept:
                for leaf, x in self._first(member).items():
                    kept[leaf][slots] = x[slots]

    def _first(self, member: int) -> Arrays:
        player: Any = self._members[member].player
        state = player.initial_state(self._shape[0] * self._shape[1])
        return {leaf: np.array(x).reshape(*self._shape, *x.shape[1:]) for leaf, x in state.items()}

    def save(self) -> Arrays:
        return {
            f"{member}/{leaf}": x.copy()
            for member, kept in self._kept.items()
            for leaf, x in kept.items()
        }

    def restore(self, state: Arrays) -> None:
        self._kept = {}
        for name, array in state.items():
            member, _, leaf = name.partition("/")
            self._kept.setdefault(int(member), {})[leaf] = np.array(array)
