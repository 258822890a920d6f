"""Who beats whom, exactly for the frozen and fading for the live."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.league.payoff import UNMET, Payoff, Score
from rookery.messages.fragment import Game


def play(payoff: Payoff, first: str, second: str, results: str) -> None:
    """Results as the first sees them, in letters: w, d, l."""
    for letter in results:
        result = {"w": 1.0, "d": 0.0, "l": -1.0}[letter]
        payoff.note(Game((first, second), (result, -result), 9))


def test_frozen_players_are_counted_exactly_from_both_sides() -> None:
    payoff = Payoff()
    play(payoff, "main@2", "main@1", "wwdl" * 100)
    play(payoff, "main@1", "main@2", "l")
    assert payoff.record("main@2", "main@1") == Score(201, 100, 100, 401)
    assert payoff.record("main@1", "main@2") == Score(100, 100, 201, 401)


def test_the_win_rate_leans_on_two_drawn_games() -> None:
    payoff = Payoff()
    assert payoff.win_rate("main", "main@1") == 0.5
    play(payoff, "main@2", "main@1", "wwwd")
    assert payoff.win_rate("main@2", "main@1") == (3.5 + 1) / (4 + 2)


def test_a_live_policys_past_fades() -> None:
    payoff = Payoff(half_life_games=10)
    play(payoff, "main", "main@1", "l" * 100)
    play(payoff, "main", "main@1", "w" * 10)
    record = payoff.record("main", "main@1")
    per_game = 0.5**0.1
    assert record.wins == pytest.approx((1 - per_game**10) / (1 - per_game))
    assert record.losses == pytest.approx((1 - per_game**100) / (1 - per_game) / 2)
    assert record.games == 110
    assert payoff.record("main@1", "main").losses == record.wins


def test_every_two_players_of_a_game_have_met() -> None:
    payoff = Payoff()
    payoff.note(Game(("x:c", "x:a", "x:b", "x:a"), (5.0, 4.0, 3.0, 2.0), 9))
    assert payoff.record("x:c", "x:a") == Score(1, 0, 0, 1)
    assert payoff.record("x:a", "x:b") == Score(0, 1, 0, 1)
    assert payoff.record("x:b", "x:c") == Score(0, 0, 1, 1)


def test_a_game_against_oneself_is_none() -> None:
    payoff = Payoff()
    payoff.note(Game(("main", "main"), (1.0, -1.0), 9))
    assert payoff.pairs == {}


def test_the_forgotten_have_met_nobody_and_others_keep_their_games() -> None:
    payoff = Payoff()
    play(payoff, "x:b", "x:a", "w")
    play(payoff, "x:b", "x:c", "w")
    play(payoff, "x:a", "x:c", "d")
    payoff.forget("x:b")
    assert payoff.record("x:a", "x:b") == payoff.record("x:b", "x:c") == UNMET
    assert payoff.matrix().players == ("x:a", "x:c")
    payoff.forget("x:c")
    assert payoff.pairs == {}


def test_the_matrix_has_a_row_for_each_player() -> None:
    payoff = Payoff()
    play(payoff, "x:b", "x:a", "wd")
    play(payoff, "x:c", "x:a", "l")
    matrix = payoff.matrix()
    assert matrix.players == ("x:a", "x:b", "x:c")
    assert matrix.records == (
        (None, Score(0, 1, 1, 2), Score(1, 0, 0, 1)),
        (Score(1, 1, 0, 2), None, None),
        (Score(0, 0, 1, 1), None, None),
    )


@given(results=st.lists(st.sampled_from("wdl"), max_size=60), live=st.booleans())
def test_the_two_sides_of_a_pair_share_one_point(results: list[str], live: bool) -> None:
    payoff = Payoff(half_life_games=5)
    player = "main" if live else "main@2"
    play(payoff, player, "main@1", "".join(results))
    rate = payoff.win_rate(player, "main@1")
    assert 0 < rate < 1
    assert rate + payoff.win_rate("main@1", player) == pytest.approx(1)
    assert payoff.record(player, "main@1").weight <= len(results)
