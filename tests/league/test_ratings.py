"""Ratings move the right way, by the right amount, and find a known order."""

from __future__ import annotations

import math
import random

import pytest

from rookery.league.intervals import spearman
from rookery.league.ratings import MU, SIGMA, TAU, Rating, Ratings
from rookery.messages.fragment import Game


def duel(first: str, second: str, result: float) -> Game:
    return Game((first, second), (result, -result), 20)


def test_a_first_win_by_hand() -> None:
    ratings = Ratings()
    assert ratings.note(duel("script:a", "script:b", 1.0))

    # Weng and Lin, algorithm 4, for two: p = 1/2, c^2 = 2 sigma^2 + 2 beta^2, gamma = sigma / c
    variance = SIGMA**2 + TAU**2
    c = math.sqrt(2 * variance + 2 * (MU / 6) ** 2)
    change = variance / c * (1 - 0.5)
    shrink = 1 - (math.sqrt(variance) / c) * variance / c**2 * 0.25
    winner, loser = ratings.of("script:a"), ratings.of("script:b")
    assert winner.mu == pytest.approx(MU + change, abs=1e-9)
    assert loser.mu == pytest.approx(MU - change, abs=1e-9)
    assert winner.sigma == pytest.approx(math.sqrt(variance * shrink), abs=1e-9)
    assert (winner.games, winner.wins, winner.draws, winner.losses) == (1, 1, 0, 0)
    assert (loser.games, loser.wins, loser.draws, loser.losses) == (1, 0, 0, 1)


def test_a_draw_of_equals_moves_nobody_and_a_draw_of_unequals_brings_them_nearer() -> None:
    ratings = Ratings()
    ratings.note(duel("script:a", "script:b", 0.0))
    assert ratings.of("script:a").mu == pytest.approx(MU, abs=1e-12)
    assert ratings.of("script:a").sigma < SIGMA
    assert ratings.of("script:a").draws == 1

    ratings = Ratings({"script:a": Rating(mu=35, sigma=2), "script:b": Rating(mu=15, sigma=2)})
    ratings.note(duel("script:a", "script:b", 0.0))
    assert ratings.of("script:a").mu < 35
    assert ratings.of("script:b").mu > 15


def test_of_four_the_places_and_the_tally_count() -> None:
    players = ("script:a", "script:b", "script:c", "script:d")
    ratings = Ratings()
    ratings.note(Game(players, (0.0, 7.5, 0.0, 7.25), 20))

    a, b, c, d = map(ratings.of, players)
    assert b.mu > d.mu > a.mu
    assert a.mu == c.mu
    assert [(r.wins, r.draws, r.losses) for r in (a, b, c, d)] == [
        (0, 1, 2),
        (3, 0, 0),
        (0, 1, 2),
        (2, 0, 1),
    ]


def test_the_size_of_a_win_does_not_count() -> None:
    narrow, wide = Ratings(), Ratings()
    narrow.note(duel("script:a", "script:b", 0.25))
    wide.note(duel("script:a", "script:b", 1000.0))
    assert narrow == wide


def test_several_seats_are_one_entry() -> None:
    team, pair = Ratings(), Ratings()
    team.note(Game(("script:a", "script:b", "script:a", "script:b"), (3.0, 2.0, 0.0, 0.0), 20))
    pair.note(duel("script:a", "script:b", 1.0))
    assert team == pair


@pytest.mark.parametrize(
    "players",
    [("main", "main@3"), ("main@3", "main", "script:a"), ("main@3", "main@3")],
)
def test_games_with_a_learner_or_of_one_player_rate_nobody(players: tuple[str, ...]) -> None:
    ratings = Ratings()
    assert not ratings.note(Game(players, tuple(range(len(players))), 20))
    assert ratings.players == {}


def test_greedy_play_is_another_player() -> None:
    ratings = Ratings()
    ratings.note(duel("main@3/greedy", "main@3", 1.0))
    assert ratings.of("main@3/greedy").mu > ratings.of("main@3").mu


def test_the_conservative_figure_and_the_interval() -> None:
    rating = Rating(mu=30.0, sigma=2.0)
    assert rating.ordinal == 24.0
    assert rating.interval == pytest.approx((26.08, 33.92))


def test_sigma_never_collapses() -> None:
    ratings = Ratings()
    chance = random.Random(3)
    games = [duel("script:a", "script:b", chance.choice((-1.0, 1.0))) for _ in range(6000)]
    assert ratings.rate_many(games) == 6000
    ratings.rate_many(games)
    assert 0.5 < ratings.of("script:a").sigma < 0.65  # without tau it would be 0.36 and falling


def test_a_lopsided_pair_keeps_finite_numbers() -> None:
    ratings = Ratings()
    ratings.rate_many([duel("script:a", "script:b", 1.0)] * 5000)
    assert MU < ratings.of("script:a").mu < 200
    assert 0.1 < ratings.of("script:a").sigma < SIGMA


def simulate(strengths: dict[str, float], games: int, seed: int) -> list[Game]:
    """Logistic players: a unit of strength is odds of e."""
    chance = random.Random(seed)
    names = list(strengths)
    played = []
    for _ in range(games):
        first, second = chance.sample(names, 2)
        p = 1 / (1 + math.exp(strengths[second] - strengths[first]))
        draw = 0.3 * min(p, 1 - p)
        roll = chance.random()
        result = 1.0 if roll < p - draw / 2 else 0.0 if roll < p + draw / 2 else -1.0
        played.append(duel(first, second, result))
    return played


@pytest.mark.parametrize("seed", range(3))
def test_a_ladder_of_known_strengths_is_found(seed: int) -> None:
    strengths = {f"main@{i * 100}": 0.4 * i for i in range(12)}
    ratings = Ratings()
    ratings.rate_many(simulate(strengths, 3000, seed))
    found = [ratings.of(name).mu for name in strengths]
    assert spearman(list(strengths.values()), found) >= 0.95


@pytest.mark.parametrize("seed", range(3))
def test_the_intervals_hold_the_true_differences(seed: int) -> None:
    strengths = {f"main@{i * 100}": 0.3 * i for i in range(8)}
    ratings = Ratings()
    ratings.rate_many(simulate(strengths, 4000, seed))
    # in the model a unit of logistic strength is c = sqrt(2 (beta^2 + sigma^2)), about sqrt(2) beta
    unit = math.sqrt(2 * ((MU / 6) ** 2 + 0.8**2))
    middle = sum(strengths.values()) / len(strengths)
    held = 0
    for name, strength in strengths.items():
        low, high = ratings.of(name).interval
        held += low <= MU + unit * (strength - middle) <= high
    assert held >= 7  # of 8


@pytest.mark.parametrize("seed", range(4))
def test_a_perfect_player_is_never_outranked_beyond_uncertainty(seed: int) -> None:
    """As in noughts and crosses: it never loses, and the better the rival, the oftener it draws."""
    chance = random.Random(seed)
    skill = {f"main@{i}": i / 9 for i in range(9)}  # chance that a perfect player only draws
    perfect = ("engine:perfect", "engine:perfect-too")
    ratings = Ratings()
    for _ in range(3000):
        first, second = chance.sample([*skill, *perfect], 2)
        if first in perfect and second in perfect:
            result = 0.0
        elif first in perfect:
            result = 0.0 if chance.random() < skill[second] else 1.0
        elif second in perfect:
            result = 0.0 if chance.random() < skill[first] else -1.0
        else:
            tilt = skill[first] - skill[second]
            result = float(chance.choices((1, 0, -1), (0.5 + tilt / 2, 0.4, 0.5 - tilt / 2))[0])
        ratings.note(duel(first, second, result))
        for name in perfect:
            _, high = ratings.of(name).interval
            assert all(ratings.of(rival).interval[0] <= high for rival in skill)
    best_rival = max(ratings.of(rival).mu for rival in skill)
    assert all(ratings.of(name).mu > best_rival - 1.96 * ratings.of(name).sigma for name in perfect)
    assert all(ratings.of(name).losses == 0 for name in perfect)
