"""The lineup of a seat map: policies that learn, and whoever else it names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rookery.actor.lineup import Load, SnapshotPlaces, recall
from rookery.actor.loop import Admitted
from rookery.actor.saved import from_json_array, json_array
from rookery.messages import SeatsChanged
from rookery.messages.frame import Arrays
from rookery.players.member import Member
from rookery.players.seat_map import SeatMap

Recast = Callable[[SeatsChanged, Sequence[Member]], tuple[SeatMap, list[Member]]]
"""A changed seat map, and the members that it names beside those there are."""


class TrainingLineup:
    """The players of the seat map."""

    def __init__(
        self,
        seat_map: SeatMap,
        members: Sequence[Member],
        games_per_draw: int,
        load: Load,
        rng: np.random.Generator,
        reseat: Recast,
        blocks: int = 1,
    ) -> None:
        self.members = list(members)
        self.changes, self.blocks = 0, blocks
        self.map = seat_map
        self.episode = 0
        self.places: dict[
            str, list[SnapshotPlaces]
        ] = {}  # policy -> of its snapshots, block by block
        self._rng, self._load, self._reseat = rng, load, reseat
        self._games_per_draw = games_per_draw
        self._revision = 0  # of the seat map
        self._seats: dict[str, Any] | None = None  # as it was changed, if ever
        self._sort_members()

    def _sort_members(self) -> None:
        self._by_text: dict[str, list[tuple[int, Member]]] = {}
        for number, member in enumerate(self.members):
            if not member.closed:
                self._by_text.setdefault(member.text, []).append((number, member))
        for text, found in self._by_text.items():
            policy = text.removeprefix("league:")
            if policy != text and policy not in self.places:
                each = len(found) // self.blocks
                parts = [found[i * each : (i + 1) * each] for i in range(self.blocks)]
                self.places[policy] = [SnapshotPlaces(part, self._games_per_draw) for part in parts]

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
        self._close_replaced(sitting)
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
                    self.changes += places.fill(place, name, pools.files[name], self._load)
        return joined

    def _remap(self, changed: SeatsChanged) -> bool:
        """Another seat map, from the next episode on; members that it names for the first time."""
        if changed.revision <= self._revision:
            return False
        self._revision, self._seats = changed.revision, changed.seats
        self.map, fresh = self._reseat(changed, [m for m in self.members if not m.closed])
        self.members += fresh
        self._sort_members()
        return bool(fresh)

    def _close_replaced(self, sitting: np.ndarray) -> None:
        """End the threads and engines of whom the seat map no longer names, once the last game is
        over. They keep their numbers; named again, they are made anew."""
        for number, member in enumerate(self.members):
            named = member.closed or not member.deferred or member.text in self.map.options
            if not named and not (sitting == number).any():
                member.close()

    def save(self) -> Arrays:
        saved = {
            "rng": self._rng.bit_generator.state,
            "episode": self.episode,
            "revision": self._revision,
            "seats": self._seats,
            "names": [(m.name, m.file) for m in self.members],
            "places": {p: [each.save() for each in b] for p, b in self.places.items()},
        }
        return {"json": json_array(saved)}

    def restore(self, state: Arrays) -> None:
        saved = from_json_array(state["json"])
        self._rng.bit_generator.state = saved["rng"]
        self.episode = saved["episode"]
        if saved["seats"] is not None:
            self._remap(SeatsChanged(revision=saved["revision"], seats=saved["seats"]))
        for policy, blocks in self.places.items():
            for places, kept in zip(blocks, saved["places"][policy], strict=True):
                places.restore(kept)
        recall(self.members, saved["names"], self._load)
        self.changes += 1
