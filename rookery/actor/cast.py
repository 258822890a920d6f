"""The cast: the players that an actor has at its tables, and who sits where in each new episode.

A member is one player that may be seated. A policy that learns is one, with the weights of the
moment; so is each script and engine; a league has a few, each a snapshot that was drawn from it. A
snapshot plays `games_per_draw` games and is then replaced, once its last game is over: nobody
changes in the middle of a game, and each draw weighs the same in games. Slots are grouped in blocks
with a few places each, so that a compiled rollout asks each slot's few snapshots, not all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from rookery.actor.loop import Admitted
from rookery.codec import Arrays
from rookery.messages import SeatsChanged
from rookery.players import LatePlayer, Player
from rookery.players.seat_map import SeatMap

ROUND_STEPS = 64  # of a rollout in which nobody learns

Load = Callable[[str], Arrays]  # a snapshot's file -> its weights


@dataclass
class Member:
    """One player of the cast."""

    text: str  # as the seat map names it: "main", "league:main", "script:random"
    player: Player | LatePlayer
    name: str = ""  # who it is now: "main", "main@340"; "": a league's place not yet filled
    arrays: Arrays = field(default_factory=dict)  # a snapshot's; a policy's come with each rollout
    policy: str = ""  # the live policy that it is, if it is one
    file: str = ""  # where a snapshot's weights are
    seats: frozenset[int] = frozenset()  # the seats whose spaces it was made for; empty: all

    @property
    def late(self) -> bool:
        return hasattr(self.player, "ask")


class Cast(Protocol):
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


class Places:
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
        """Places that may be filled anew: empty, or done and in no game."""
        busy = set(np.unique(sitting).tolist()) if sitting.size else set()
        return [
            i
            for i, member in enumerate(self.members)
            if not member.name
            or (self.served[i] >= self._games_per_draw and self.numbers[i] not in busy)
        ]

    def fill(self, place: int, name: str, file: str, arrays: Arrays) -> None:
        member = self.members[place]
        member.name, member.file, member.arrays = name, file, arrays
        self.served[place], self.filled[place] = 0, max(self.filled) + 1

    def save(self) -> list[list[int]]:
        return [self.served, self.filled]

    def restore(self, saved: list[list[int]]) -> None:
        self.served, self.filled = (list(numbers) for numbers in saved)


Recast = Callable[[SeatsChanged, Sequence[Member]], tuple[SeatMap, list[Member]]]
"""A changed seat map, and the members that it names beside those there are."""


class TrainingCast:
    """The players of the seat map."""

    def __init__(
        self,
        seat_map: SeatMap,
        members: Sequence[Member],
        games_per_draw: int,
        load: Load,
        rng: np.random.Generator,
        recast: Recast,
        blocks: int = 1,
    ) -> None:
        self.members = list(members)
        self.changes, self.blocks = 0, blocks
        self.map = seat_map
        self.episode = 0
        self.places: dict[str, list[Places]] = {}  # policy -> of its snapshots, block by block
        self._rng, self._load, self._recast = rng, load, recast
        self._games_per_draw = games_per_draw
        self._revision = 0  # of the seat map
        self._seats: dict[str, Any] | None = None  # as it was changed, if ever
        self._sort_members()

    def _sort_members(self) -> None:
        self._by_text: dict[str, list[tuple[int, Member]]] = {}
        for number, member in enumerate(self.members):
            self._by_text.setdefault(member.text, []).append((number, member))
        for text, found in self._by_text.items():
            policy = text.removeprefix("league:")
            if policy != text and policy not in self.places:
                each = len(found) // self.blocks
                parts = [found[i * each : (i + 1) * each] for i in range(self.blocks)]
                self.places[policy] = [Places(part, self._games_per_draw) for part in parts]

    def seat(self, slots: np.ndarray) -> np.ndarray:
        drawn = self.map.draw(self._rng, self.episode, len(slots))
        seated = np.empty_like(drawn)
        for number, text in enumerate(self.map.options):
            at = drawn == number
            if text.startswith("league:"):
                for block, pool in enumerate(self.places[text.removeprefix("league:")]):
                    here = at & (slots % self.blocks == block)[:, None]
                    seated[here] = self._rng.choice(pool.open, int(here.sum()))
                continue
            for seat in np.flatnonzero(at.any(0)).tolist():
                fits = (n for n, m in self._by_text[text] if not m.seats or seat in m.seats)
                seated[at[:, seat], seat] = next(fits)
        return seated

    def began(self, sitting: np.ndarray) -> None:
        self.episode += len(sitting)
        for pool in (pool for blocks in self.places.values() for pool in blocks):
            pool.count(sitting)

    def refresh(self, admitted: Admitted, sitting: np.ndarray) -> bool:
        joined = admitted.seats is not None and self._remap(admitted.seats)
        pools = admitted.pools
        if pools is None:
            return joined
        for policy, blocks in self.places.items():
            weights = pools.pools.get(policy, {})
            for places in blocks if weights else ():
                for place in places.vacate(sitting):
                    shares = np.array(list(weights.values()))
                    drawn = self._rng.choice(len(shares), p=shares / shares.sum())
                    name = list(weights)[int(drawn)]
                    places.fill(place, name, pools.files[name], self._load(pools.files[name]))
                    self.changes += 1
        return joined

    def _remap(self, changed: SeatsChanged) -> bool:
        """Another seat map, from the next episode on; members that it names for the first time."""
        if changed.revision <= self._revision:
            return False
        self._revision, self._seats = changed.revision, changed.seats
        self.map, fresh = self._recast(changed, self.members)
        self.members += fresh
        self._sort_members()
        return bool(fresh)

    def save(self) -> Arrays:
        return _json_arrays(
            {
                "rng": self._rng.bit_generator.state,
                "episode": self.episode,
                "revision": self._revision,
                "seats": self._seats,
                "names": [(m.name, m.file) for m in self.members],
                "places": {p: [each.save() for each in b] for p, b in self.places.items()},
            }
        )

    def restore(self, state: Arrays) -> None:
        saved = _from_json_arrays(state)
        self._rng.bit_generator.state = saved["rng"]
        self.episode = saved["episode"]
        if saved["seats"] is not None:
            self._remap(SeatsChanged(revision=saved["revision"], seats=saved["seats"]))
        for policy, blocks in self.places.items():
            for places, kept in zip(blocks, saved["places"][policy], strict=True):
                places.restore(kept)
        _recall(self.members, saved["names"], self._load)
        self.changes += 1


class RatingCast:
    """Frozen players alone, two at a time, to be rated: the least certain ones first.

    The first half of the places are the rated ones; everybody else, and the players of reference,
    are whom they meet. Both ways round.
    """

    def __init__(
        self,
        seats: int,
        members: Sequence[Member],
        games_per_draw: int,
        load: Load,
        rng: np.random.Generator,
        policies: Sequence[str],
    ) -> None:
        self.members = list(members)
        self.changes, self.blocks = 0, 1
        self._seats, self._rng, self._load = seats, rng, load
        self._policies = tuple(policies)  # whose snapshots the places can play
        snapshots = [(i, m) for i, m in enumerate(self.members) if m.text.startswith("league:")]
        self.places = Places(snapshots, games_per_draw, least_open=2)
        self._reference = [
            i for i, m in enumerate(self.members) if not m.text.startswith("league:")
        ]
        self._turn = 0

    def _plays(self, snapshot: str) -> bool:
        return snapshot.partition("@")[0] in self._policies

    def _present(self) -> list[int]:
        return [*self.places.open, *self._reference]

    def seat(self, slots: np.ndarray) -> np.ndarray:
        """Each row seats two players in alternation over the seats, one of them under rating."""
        present = self._present()
        seated = np.empty((len(slots), self._seats), np.int32)
        for row in seated:
            first = int(self._rng.choice(self.places.open or present))
            second = int(self._rng.choice([m for m in present if m != first]))
            pair = (first, second) if self._rng.random() < 0.5 else (second, first)
            row[:] = [pair[i % 2] for i in range(self._seats)]
        return seated

    def began(self, sitting: np.ndarray) -> None:
        self.places.count(sitting)

    def refresh(self, admitted: Admitted, sitting: np.ndarray) -> bool:
        pools = admitted.pools
        if pools is None:
            return False
        for place in self.places.vacate(sitting):
            taken = {m.name for m in self.places.members}
            others = [n for n in pools.files if n not in taken and self._plays(n)]
            wanted = [name for name in pools.rated if name in others]
            if not others:
                continue
            rated = place < (len(self.places.members) + 1) // 2 and wanted
            name = wanted[0] if rated else others[int(self._rng.integers(len(others)))]
            self.places.fill(place, name, pools.files[name], self._load(pools.files[name]))
            self.changes += 1
        return False

    def save(self) -> Arrays:
        return _json_arrays(
            {
                "rng": self._rng.bit_generator.state,
                "names": [(m.name, m.file) for m in self.members],
                "places": self.places.save(),
            }
        )

    def restore(self, state: Arrays) -> None:
        saved = _from_json_arrays(state)
        self._rng.bit_generator.state = saved["rng"]
        self.places.restore(saved["places"])
        _recall(self.members, saved["names"], self._load)
        self.changes += 1


class FixedCast:
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


def _recall(members: Sequence[Member], names: Sequence[tuple[str, str]], load: Load) -> None:
    for member, (name, file) in zip(members, names, strict=True):
        member.name, member.file = name, file
        if file:
            member.arrays = load(file)


def _json_arrays(value: Any) -> Arrays:
    return {"json": np.frombuffer(json.dumps(value).encode(), np.uint8)}


def _from_json_arrays(state: Arrays) -> Any:
    return json.loads(state["json"].tobytes())
