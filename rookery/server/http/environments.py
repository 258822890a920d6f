"""What an environment's seats see and play, for whoever is about to choose it.

    describer = Describer(settings.allow, sandbox)
    spec = await describer.spec("ALE/Pong-v5")
    seat_spaces(spec.seats["player_0"]).text   # "sees an image of 210 x 160 x 3 (uint8); ..."

A process of its own looks, as before a run is created, and only at what the owner allowed to those
who come by network. What it found is kept for a while: a form asks often.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Sequence

from rookery.config.reading import build
from rookery.control.allow import refused
from rookery.control.models import ObservationPart, SeatAction, SeatSpaces
from rookery.control.settings import Allow
from rookery.errors import Forbidden
from rookery.server.sandbox import Sandbox
from rookery.spaces import (
    ActionSpace,
    Categorical,
    Continuous,
    EnvironmentSpec,
    Leaf,
    MultiCategorical,
    SeatSpec,
    spec_from_json,
)

KEPT = 256
KEPT_S = 60.0  # not longer: code of one's own changes while one works on it
MOST_PARTS = 4  # that a text tells one by one


class Describer:
    """Knows what environments look like. Used from one event loop."""

    def __init__(self, allow: Allow, sandbox: Sandbox) -> None:
        self._allow, self._sandbox = allow, sandbox
        self._known: OrderedDict[str, tuple[float, EnvironmentSpec]] = OrderedDict()

    async def spec(self, id: str) -> EnvironmentSpec:
        """At most KEPT_S old. Takes seconds where nobody has asked lately."""
        config = build({"environment": {"id": id}})
        if (why := refused(config, self._allow)) is not None:
            raise Forbidden(why)
        until_s, known = self._known.get(id, (0.0, None))
        if known is not None and time.monotonic() < until_s:
            return known
        named = config.environment
        order = {"environment": {"id": named.id, "kwargs": dict(named.kwargs)}}
        spec = spec_from_json(await self._sandbox.check(order))
        self._known[id] = (time.monotonic() + KEPT_S, spec)
        self._known.move_to_end(id)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return spec


def seat_spaces(seat: SeatSpec) -> SeatSpaces:
    parts = [
        ObservationPart(path=leaf.path, shape=list(leaf.shape), dtype=leaf.dtype, text=_seen(leaf))
        for leaf in seat.observation
    ]
    action = _action(seat.action, seat.masked)
    told = [f"{part.path}: {part.text}" if part.path else part.text for part in parts]
    seen = _listed(told) or "nothing"
    return SeatSpaces(observation=parts, action=action, text=f"sees {seen}; plays {action.text}")


# --- in words ------------------------------------------------------------------------------------


def _seen(leaf: Leaf) -> str:
    match leaf.kind:
        case "image":
            return f"an image of {_dimensions(leaf.shape)} ({leaf.dtype})"
        case "discrete":
            return f"one of {leaf.sizes[0]}"
        case "multi_discrete":
            return f"one each of {_listed(leaf.sizes)}"
        case "multi_binary":
            return f"{_dimensions(leaf.shape)} bits"
        case "box":
            bounds = _bounds(leaf.low, leaf.high)
            return f"{_numbers(leaf.shape)}{bounds} ({leaf.dtype})"


def _action(space: ActionSpace, masked: bool) -> SeatAction:
    legal = ", the legal ones of them" if masked else ""
    match space:
        case Categorical(n=n):
            text = f"{n} choices{legal}"
            return SeatAction(kind="categorical", sizes=[n], shape=[], text=text)
        case MultiCategorical(sizes=sizes):
            text = f"one each of {_listed(sizes)} choices{legal}"
            return SeatAction(
                kind="multi_categorical", sizes=list(sizes), shape=[len(sizes)], text=text
            )
        case Continuous(shape=shape, low=low, high=high):
            least, greatest = min(low, default=-math.inf), max(high, default=math.inf)
            same = len(set(low)) < 2 and len(set(high)) < 2
            bounds = _bounds(least, greatest) + ("" if same else ", each with bounds of its own")
            return SeatAction(
                kind="continuous",
                sizes=[],
                shape=list(shape),
                low=_finite(least),
                high=_finite(greatest),
                text=_numbers(shape) + bounds,
            )


def _numbers(shape: tuple[int, ...]) -> str:
    return f"{_dimensions(shape)} {'number' if math.prod(shape) == 1 else 'numbers'}"


def _dimensions(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def _bounds(low: float, high: float) -> str:
    """Nothing where there is no bound at all."""
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high):
        return f" of at least {low:g}"
    return f" of at most {high:g}" if math.isinf(low) else f" in [{low:g}, {high:g}]"


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def _listed(things: Sequence[object]) -> str:
    more = [f"{len(things) - MOST_PARTS} more"] if len(things) > MOST_PARTS else []
    *before, last = [*map(str, things[:MOST_PARTS]), *more] or [""]
    return f"{', '.join(before)} and {last}" if before else last
