"""Episodes and games as they end: who sat where, what each seat got, how long it took."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rookery.messages.fragment import Episode, Game
from rookery.messages.frame import Arrays
from rookery.players.member import Member


class EpisodeCounter:
    """Adds up each lane's raw reward and length until its episode ends."""

    def __init__(self, seat: str, lanes: int) -> None:
        self.seat = seat
        self.totals = np.zeros(lanes, np.float64)
        self.lengths = np.zeros(lanes, np.int64)

    def fold(self, reward: np.ndarray, ended: np.ndarray, valid: np.ndarray) -> tuple[Episode, ...]:
        """Take (T, B) rows in order and return the episodes that ended in them."""
        episodes = []
        for t in range(len(reward)):
            self.totals += reward[t]
            self.lengths += valid[t]
            if ended[t].any():
                for lane in np.flatnonzero(ended[t]):
                    total, length = float(self.totals[lane]), int(self.lengths[lane])
                    episodes.append(Episode(self.seat, total, length))
                self.clear(ended[t])
        return tuple(episodes)

    def clear(self, lanes: np.ndarray | slice) -> None:
        self.totals[lanes] = 0.0
        self.lengths[lanes] = 0

    def save(self) -> Arrays:
        return {"totals": self.totals.copy(), "lengths": self.lengths.copy()}

    def restore(self, state: Arrays) -> None:
        self.totals[:], self.lengths[:] = state["totals"], state["lengths"]


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
        slots = np.flatnonzero(over)
        if len(slots):
            self.close(slots, sat[slots].tolist())

    def close(self, slots: np.ndarray, sat: list[list[int]]) -> None:
        """What these slots' games came to, who sat where in them; what follows is counted anew."""
        totals, lengths = self.totals[slots].tolist(), self.lengths[slots].tolist()
        missed, resigned = self.missed[slots].tolist(), self.resigned[slots].tolist()
        for i, numbers in enumerate(sat):
            if not lengths[i]:
                continue
            for seat, number in enumerate(numbers):
                policy = self.members[number].policy
                if policy:
                    ended = Episode(self.seats[seat], totals[i][seat], lengths[i])
                    self._episodes.setdefault(policy, []).append(ended)
            names = tuple([self.members[number].name for number in numbers])
            if names.count(names[0]) < len(names):  # a game against oneself says nothing
                if any(resigned[i]):  # whoever gave up has lost, whatever the totals say
                    totals[i] = [-1.0 if gave_up else 1.0 for gave_up in resigned[i]]
                by_fallback = tuple(missed[i]) if any(missed[i]) else ()
                self._games.append(Game(names, tuple(totals[i]), lengths[i], by_fallback))
        self.clear(slots)

    def clear(self, slots: np.ndarray | slice) -> None:
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
