"""The ids of the commands that were answered: a set that grows without being copied.

A run may get many thousands of commands, each id of which counts for ever: the same command again
is nothing new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set


class Answered(Set[str]):
    """Never changed. All that grew out of one another share a dict, of which each has the first
    ids; only one that is not the last to have grown is copied when it grows."""

    __slots__ = ("_count", "_places")

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._places = {id: place for place, id in enumerate(dict.fromkeys(ids))}
        self._count = len(self._places)

    def plus(self, id: str) -> Answered:
        if id in self:
            return self
        is_last = len(self._places) == self._count
        grown = Answered(() if is_last else self)
        if is_last:
            grown._places = self._places
        grown._places[id] = self._count
        grown._count = self._count + 1
        return grown

    def __contains__(self, id: object) -> bool:
        return self._places.get(id, self._count) < self._count  # type: ignore[call-overload, no-any-return]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._places)[: self._count])  # at once: another thread may let it grow

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Answered({list(self)})"
