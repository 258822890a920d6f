"""What is trained together: the fragments of one turn of a playing loop.

A turn that lost a part is trained not at all: its other parts never mix with those of the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader


@dataclass(frozen=True)
class Delivery:
    """One turn of an actor's playing loop, a fragment of each policy that learns; or a walk-in."""

    payloads: tuple[bytes, ...]
    fragments: tuple[Fragment, ...]
    came: int = 0  # the update before which it arrived here

    @property
    def steps(self) -> int:
        return sum(fragment.header.steps for fragment in self.fragments)

    @property
    def version(self) -> WeightsVersion:
        return self.fragments[0].header.version

    @property
    def walk_in(self) -> bool:
        return self.fragments[0].header.walk_in


Part = tuple[bytes, Fragment]


class Sorted(NamedTuple):
    """Fragments by what can become of them."""

    whole: list[Delivery]
    rest: dict[str, list[Part]]  # actor -> parts of its newest turn, the others of which may come
    broken: list[Part]  # of turns whose other parts are gone


def turn_of(header: FragmentHeader) -> tuple[str, int]:
    """Which turn of whose playing loop: what makes fragments parts of one delivery."""
    return header.actor, header.sequence // header.parts


def deliveries_of(parts: Iterable[Part], came: int = 0) -> Sorted:
    """Fragments in the order of their arrival as deliveries, each of one turn."""
    turns: dict[tuple[str, int], list[Part]] = {}
    for payload, fragment in parts:
        turns.setdefault(turn_of(fragment.header), []).append((payload, fragment))
    newest = dict(turns.keys())  # actor -> its newest turn: later keys win
    result = Sorted([], {}, [])
    for (actor, turn), found in turns.items():
        last = found[-1][1].header
        if len(found) == last.parts:
            payloads, fragments = zip(*found, strict=True)
            result.whole.append(Delivery(payloads, fragments, came))
        elif turn == newest[actor] and last.part < last.parts - 1:
            result.rest[actor] = found
        else:
            result.broken.extend(found)
    return result
