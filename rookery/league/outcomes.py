"""One result per player of a game, however many seats each of them held."""

from __future__ import annotations

import math

from rookery.messages.fragment import Game


def outcomes(game: Game) -> dict[str, float]:
    """Player -> the mean of its seats' totals, in the order of the seats; higher is better.

    Empty if the game compares nobody: one player in every seat, or a total that is not finite.
    """
    if len(set(game.players)) < 2 or not all(map(math.isfinite, game.totals)):
        return {}
    totals: dict[str, list[float]] = {}
    for player, total in zip(game.players, game.totals, strict=True):
        totals.setdefault(player, []).append(total)
    # an exact sum: two teams with the same totals in another order must come out as a draw
    return {player: math.fsum(seats) / len(seats) for player, seats in totals.items()}
