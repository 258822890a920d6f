"""Ending runs early that do worse than others did: decisions without I/O, by the training's return.

    rungs = rungs_of("asha", steps=100_000)      # where runs are compared
    is_beaten("asha", value, others)             # at a rung, with what others had there

`asha` is asynchronous successive halving: of those that have come to a rung a third goes on.
`median` ends what is below the median of the others.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

KEPT = 3  # one of so many goes on from a rung
HALVINGS = 3
MEDIAN_SHARES = (0.2, 0.4, 0.6, 0.8)
MEDIAN_FROM = 4  # others, before any is ended


def rungs_of(scheduler: str, steps: int) -> tuple[int, ...]:
    """Numbers of steps, the fewest first."""
    if scheduler == "asha":
        return tuple(max(1, steps // KEPT**i) for i in range(HALVINGS, 0, -1))
    if scheduler == "median":
        return tuple(max(1, round(steps * share)) for share in MEDIAN_SHARES)
    return ()


def is_beaten(scheduler: str, value: float, others: Sequence[float]) -> bool:
    """Whether a run that had this return at a rung should end, by the returns of others there."""
    if scheduler == "median":
        return len(others) >= MEDIAN_FROM and value < statistics.median(others)
    room = (len(others) + 1) // KEPT
    better = sum(other > value for other in others)
    return room > 0 and better >= room
