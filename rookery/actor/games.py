"""Games as they end: who sat where, what each seat got, how long it took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rookery.actor.cast import Member
from rookery.codec import Arrays, Episode, Game


class GameBook:
    """Adds up every slot's game until it is over; a slot's reset says that it is."""

    def __init__(self, seats: Sequence[str], slots: int, members: Sequence[Member]) -> None:
        self.seats, self.members = tuple(seats), members
        self.totals = np.zeros((slots, len(seats)))
        self.lengths = np.zeros(slots, np.int64)
        self.missed = np.zeros((slots, len(seats)), np.int32)
        self.resigned = np.zeros((slots, len(seats)), np.bool_)
        self._games: list[Game] = []
        self._episodes: dict[str, list[Episode]] = {m.policy: [] for m in members if m.policy}

    def note(
        self, reward: np.ndarray, moved: np.ndarray, over: np.ndarray, sat: np.ndarray
    ) -> None:
        """One step: (slots, seats) rewards, slots that moved on, slots whose game it closed.

        `sat` says who sat where in the game that is over.
        """
        self.totals += reward
        self.lengths += moved
        for slot in np.flatnonzero(over):
            self._close(int(slot), sat[slot])

    def _close(self, slot: int, sat: np.ndarray) -> None:
        totals = tuple(self.totals[slot].tolist())
        length = int(self.lengths[slot])
        sitters = [self.members[number] for number in sat.tolist()]
        if length:
            for seat, member, total in zip(self.seats, sitters, totals, strict=True):
                if member.policy:
                    self._episodes[member.policy].append(Episode(seat, total, length))
            if self.resigned[slot].any():  # whoever gave up has lost, whatever the totals say
                totals = tuple(-1.0 if gave_up else 1.0 for gave_up in self.resigned[slot])
            names = tuple(member.name for member in sitters)
            if len(set(names)) > 1:
                missed = self.missed[slot]
                late = tuple(missed.tolist()) if missed.any() else ()
                self._games.append(Game(names, totals, length, late))
        self.clear(slot)

    def clear(self, slots: int | slice) -> None:
        self.totals[slots], self.lengths[slots] = 0.0, 0
        self.missed[slots], self.resigned[slots] = 0, False

    def take(self) -> tuple[tuple[Game, ...], dict[str, tuple[Episode, ...]]]:
        """What ended since the last time: games between different players, episodes by policy."""
        games, self._games = tuple(self._games), []
        episodes = {policy: tuple(found) for policy, found in self._episodes.items()}
        self._episodes = {policy: [] for policy in self._episodes}
        return games, episodes

    def save(self) -> Arrays:
        return {
            "totals": self.totals.copy(),
            "lengths": self.lengths.copy(),
            "missed": self.missed.copy(),
            "resigned": self.resigned.copy(),
        }

    def restore(self, state: Arrays) -> None:
        self.totals[:], self.lengths[:] = state["totals"], state["lengths"]
        self.missed[:], self.resigned[:] = state["missed"], state["resigned"]
