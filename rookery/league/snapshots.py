"""A policy's past selves: when one is taken, what it is called, and which are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec


class Snapshot(msgspec.Struct, frozen=True):
    """Weights that will not change any more."""

    policy: str
    generation: int
    number: int  # of the weights: updates made before it
    env_steps: int

    @property
    def name(self) -> str:
        """The player it is."""
        return f"{self.policy}@{self.number}"

    @property
    def file(self) -> str:
        """Where its weights lie. With the generation: a restarted learner counts some numbers
        again, and must not write over weights that others still read."""
        return f"{self.policy}-{self.generation:06d}-{self.number:010d}"


def generation_of(file: str) -> int | None:
    """Of the learner that froze it; None: it is no snapshot's file."""
    found = re.fullmatch(r".+-(\d{6,})-\d{10,}", file)
    return int(found[1]) if found else None


class Schedule(msgspec.Struct, frozen=True):
    """When a policy is frozen: every so often, and when it has outgrown its pool."""

    every_updates: int  # 0: never by the clock
    win_rate: float | None = None  # against its pool; None: never by success
    min_updates: int = 0  # between two snapshots, however well it plays
    min_games: int = 0  # that the win rate must rest on

    def due(self, number: int, last: int | None, win_rate: float, games: int) -> bool:
        """Whether weights `number` should be kept, `last` being those of the snapshot before.

        A policy without a snapshot is due at once, since its pool has nobody to play against.
        """
        if last is None:
            return True
        since = number - last
        by_the_clock = 0 < self.every_updates <= since
        outgrown = (
            self.win_rate is not None
            and win_rate >= self.win_rate
            and games >= self.min_games
            and since >= max(1, self.min_updates)
        )
        return by_the_clock or outgrown


def thin(snapshots: Iterable[Snapshot], keep: int) -> list[Snapshot]:
    """Those of one policy's snapshots to keep, oldest first, spread over the whole run.

    While there are too many, the one goes whose neighbours are nearest to each other. The gap that
    this leaves is at most twice the even one, (newest - first) / (keep - 1), also when a long run
    thins after every snapshot. The first and the newest stay; of equals, the oldest goes.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, it is {keep}")
    kept = sorted(snapshots, key=lambda snapshot: (snapshot.number, snapshot.generation))
    if keep == 1:
        return kept[-1:]
    while len(kept) > keep:
        inner = range(1, len(kept) - 1)
        del kept[min(inner, key=lambda i: kept[i + 1].number - kept[i - 1].number)]
    return kept
