"""How sure a measured result is: small statistics for small numbers of games."""

from __future__ import annotations

import math
from collections.abc import Sequence


def wilson(wins: float, games: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's score interval for points per game; a draw is half a win.

    Unlike mean ± z standard errors it stays within 0 and 1, and 10 wins of 10 are no certainty.
    Draws only make the truth narrower than this says.
    """
    if not 0 <= wins <= games:
        raise ValueError(f"{wins} points of {games} games")
    if games == 0:
        return 0.0, 1.0
    rate = wins / games
    spread = z * math.sqrt(rate * (1 - rate) / games + z * z / (4 * games * games))
    scale = 1 + z * z / games
    centre = rate + z * z / (2 * games)
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Rank correlation, equal values sharing their mean rank; NaN where one side is all equal."""
    if len(xs) != len(ys):
        raise ValueError(f"{len(xs)} values against {len(ys)}")
    first, second = _centred_ranks(xs), _centred_ranks(ys)
    norm = math.sqrt(sum(a * a for a in first) * sum(b * b for b in second))
    if norm == 0:
        return math.nan
    return sum(a * b for a, b in zip(first, second, strict=True)) / norm


def _centred_ranks(values: Sequence[float]) -> list[float]:
    """Half the number below minus half the number above: mean ranks, moved to add up to 0."""
    return [
        (sum(v < value for v in values) - sum(v > value for v in values)) / 2 for value in values
    ]
