"""One result per player of a game."""

from __future__ import annotations

import math

from rookery.league.outcomes import outcomes
from rookery.messages.fragment import Game


def test_a_players_seats_are_averaged() -> None:
    game = Game(("a", "b", "a", "b", "b"), (4.0, 1.0, 2.0, 1.0, 4.0), 9)
    assert outcomes(game) == {"a": 3.0, "b": 2.0}


def test_the_same_totals_in_another_order_are_a_draw() -> None:
    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1  # what a plain sum would have made of it
    game = Game(("a", "a", "a", "b", "b", "b"), (0.1, 0.2, 0.3, 0.3, 0.2, 0.1), 9)
    means = outcomes(game)
    assert means["a"] == means["b"]


def test_a_game_that_compares_nobody_has_none() -> None:
    assert outcomes(Game(("a", "a"), (1.0, -1.0), 9)) == {}
    assert outcomes(Game(("a",), (1.0,), 9)) == {}
    assert outcomes(Game(("a", "b"), (math.nan, 0.0), 9)) == {}
    assert outcomes(Game(("a", "b"), (0.0, -math.inf), 9)) == {}
