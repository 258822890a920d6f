"""The lineup of rating games: frozen players alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rookery.actor.lineup import Load, SnapshotPlaces, recall
from rookery.actor.loop import Admitted
from rookery.actor.saved import from_json_array, json_array
from rookery.messages.frame import Arrays
from rookery.players.member import Member


class RatingLineup:
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
        self.places = SnapshotPlaces(snapshots, games_per_draw, least_open=2)
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
            self.changes += self.places.fill(place, name, pools.files[name], self._load)
        return False

    def save(self) -> Arrays:
        saved = {
            "rng": self._rng.bit_generator.state,
            "names": [(m.name, m.file) for m in self.members],
            "places": self.places.save(),
        }
        return {"json": json_array(saved)}

    def restore(self, state: Arrays) -> None:
        saved = from_json_array(state["json"])
        self._rng.bit_generator.state = saved["rng"]
        self.places.restore(saved["places"])
        recall(self.members, saved["names"], self._load)
        self.changes += 1
