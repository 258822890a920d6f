"""What a rollout hands over, and the count of its episodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rookery.messages.fragment import Episode, Game
from rookery.messages.frame import Arrays


class Experience(NamedTuple):
    """A fragment without its header; shapes as in `codec.Fragment`."""

    observation: Arrays
    action: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    valid: np.ndarray
    log_prob: np.ndarray
    mask: np.ndarray | None
    state: Arrays
    episodes: tuple[Episode, ...]
    seat: np.ndarray | None = None  # (T, B) uint8, in the environment's order; None: all of one
    behind: np.ndarray | None = None  # (T, B) uint8; None: all 0


class Played(NamedTuple):
    """What one turn of the playing loop brought."""

    experience: dict[str, Experience]  # of each policy that learns
    games: tuple[Game, ...] = ()  # of several seats, ended in it


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
