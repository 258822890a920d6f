"""What is trained together: the fragments of one turn of a playing loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment


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


def deliveries_of(
    parts: Iterable[tuple[bytes, Fragment]], came: int = 0
) -> tuple[list[Delivery], dict[str, list[tuple[bytes, Fragment]]]]:
    """Fragments in the order of their arrival as whole deliveries, and what is not whole yet."""
    deliveries: list[Delivery] = []
    rest: dict[str, list[tuple[bytes, Fragment]]] = {}
    for payload, fragment in parts:
        header = fragment.header
        found = rest.setdefault(header.actor, [])
        found.append((payload, fragment))
        if header.part == header.parts - 1:
            whole = rest.pop(header.actor)
            payloads, fragments = zip(*whole, strict=True)
            deliveries.append(Delivery(payloads, fragments, came))
    return deliveries, rest
