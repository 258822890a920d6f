"""Whether an environment is still the one that a run began with.

Weights are laid out for its spaces: other sights would fail in the first product of matrices, other
actions would be played as if nothing had happened. Bounds of numbers are no part of it, as
libraries move them; those of images and actions are, which are scaled by them.
"""

from __future__ import annotations

from rookery.errors import InputError
from rookery.spaces import EnvironmentSpec, Leaf, SeatSpec


def check_unchanged(began: EnvironmentSpec, now: EnvironmentSpec) -> None:
    """Raise one line that says both."""
    if (before := _told(began)) == (after := _told(now)):
        return
    differing = [part for part in {**before, **after} if before.get(part) != after.get(part)]
    part = differing[0]
    was, has = before.get(part, "not there"), after.get(part, "not there")
    raise InputError(
        f"environment {began.id} has changed since the run began: {part} was {was} and is {has}; "
        "put the old one back, or train a new run"
    )


def _told(spec: EnvironmentSpec) -> dict[str, str]:
    """Everything that may not change, in words."""
    found = {"the order of play": "all at once" if spec.simultaneous else "in turns"}
    for name, seat in spec.seats.items():
        found |= {f"the {part} of seat {name!r}": text for part, text in _seat(seat).items()}
    return found


def _seat(seat: SeatSpec) -> dict[str, str]:
    masked = ", masked" if seat.masked else ""
    return {
        "observation": "; ".join(map(_leaf, seat.observation)),
        "actions": f"{seat.action!r}{masked}",
    }


def _leaf(leaf: Leaf) -> str:
    sizes = f" of {leaf.sizes}" if leaf.sizes else ""
    bounds = f" from {leaf.low:g} to {leaf.high:g}" if leaf.kind == "image" else ""
    return f"{leaf.path} {leaf.kind}{leaf.shape} {leaf.dtype}{sizes}{bounds}".strip()
