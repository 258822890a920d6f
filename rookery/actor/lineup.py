"""The lineup: the players that an actor has at its tables, and who sits where in each new episode.

A member is one player that may be seated. A policy that learns is one, with the weights of the
moment; so is each script and engine; a league has a few, each a snapshot that was drawn from it. A
snapshot plays `games_per_draw` games and is then replaced, once its last game is over: nobody
changes in the middle of a game, and each draw weighs the same in games. Slots are grouped in blocks
with a few places each, so that a compiled rollout asks each slot's few snapshots, not all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from rookery.actor.loop import Admitted
from rookery.errors import CheckpointGone
from rookery.messages.frame import Arrays
from rookery.players.member import Member

ROUND_STEPS = 64  # of a rollout in which nobody learns

Load = Callable[[str], Arrays]  # a snapshot's file -> its weights


class Lineup(Protocol):
    """What a rollout needs of its players."""

    members: list[Member]
    changes: int  # grows whenever some member's weights changed
    blocks: int  # slot s plays only a league's places of block s % blocks

    def seat(self, slots: np.ndarray) -> np.ndarray:
        """(episodes, seats) numbers of members, for a new episode in each of these slots."""
        ...

    def began(self, sitting: np.ndarray) -> None:
        """These episodes, rows of `seat`, have begun."""
        ...

    def refresh(self, admitted: Admitted, sitting: np.ndarray) -> bool:
        """Between fragments: draw new snapshots for those that have played enough.

        `sitting` (slots, seats) says who is in the middle of a game. True if there are new members.
        """
        ...

    def save(self) -> Arrays: ...

    def restore(self, state: Arrays) -> None: ...


class SnapshotPlaces:
    """A league's places at the tables: each holds a snapshot for a number of games."""

    def __init__(
        self, members: Sequence[tuple[int, Member]], games_per_draw: int, least_open: int = 1
    ) -> None:
        self._least_open = least_open
        self.numbers = [number for number, _ in members]
        self.members = [member for _, member in members]
        self.served = [0] * len(members)
        self.filled = [0] * len(members)  # in which order
        self._games_per_draw = games_per_draw

    @property
    def open(self) -> list[int]:
        """Numbers of the members that may begin a game: those that have not played enough.

        A few always may, those filled last, while the others play their last games.
        """
        filled = [i for i, member in enumerate(self.members) if member.name]
        fresh = [i for i in filled if self.served[i] < self._games_per_draw]
        if len(fresh) < self._least_open:
            fresh = sorted(filled, key=lambda i: -self.filled[i])[: self._least_open]
        return [self.numbers[i] for i in fresh]

    def count(self, sitting: np.ndarray) -> None:
        """These episodes have begun."""
        for place, number in enumerate(self.numbers):
            self.served[place] += int((sitting == number).any(-1).sum())

    def vacate(self, sitting: np.ndarray) -> list[int]:
        """SnapshotPlaces that may be filled anew: empty, or done and in no game."""
        busy = set(np.unique(sitting).tolist()) if sitting.size else set()
        return [
            i
            for i, member in enumerate(self.members)
            if not member.name
            or (self.served[i] >= self._games_per_draw and self.numbers[i] not in busy)
        ]

    def fill(self, place: int, name: str, file: str, load: Load) -> bool:
        """False: it was dropped from its league since we were told of it; who sits there stays
        until newer pools come."""
        member = self.members[place]
        try:
            arrays = load(file)
        except CheckpointGone:
            if not member.name:
                raise
            return False
        member.name, member.file, member.arrays = name, file, arrays
        self.served[place], self.filled[place] = 0, max(self.filled) + 1
        return True

    def save(self) -> list[list[int]]:
        return [self.served, self.filled]

    def restore(self, saved: list[list[int]]) -> None:
        self.served, self.filled = (list(numbers) for numbers in saved)


class FixedLineup:
    """The same members in the same seats in every game."""

    def __init__(self, sitting: Sequence[Member]) -> None:
        self.members: list[Member] = []
        for member in sitting:
            if not any(member is known for known in self.members):
                self.members.append(member)
        numbers = {id(member): number for number, member in enumerate(self.members)}
        self._row = np.array([numbers[id(member)] for member in sitting], np.int32)
        self.changes, self.blocks = 0, 1

    def seat(self, slots: np.ndarray) -> np.ndarray:
        return np.tile(self._row, (len(slots), 1))

    def began(self, sitting: np.ndarray) -> None:
        """Nobody is replaced, so nothing is counted."""

    def refresh(self, admitted: Admitted, sitting: np.ndarray) -> bool:
        return False

    def save(self) -> Arrays:
        return {}

    def restore(self, state: Arrays) -> None:
        """There is nothing to go on from."""


def recall(members: Sequence[Member], names: Sequence[tuple[str, str]], load: Load) -> None:
    for member, (name, file) in zip(members, names, strict=True):
        member.name, member.file = name, file
        if file:
            member.arrays = load(file)
