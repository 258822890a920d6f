"""The league as the learner holds it: games and snapshots in, decisions out."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rookery.league
from rookery.league import League, Rating, Snapshot, Standing
from rookery.league.ratings import SIGMA
from rookery.messages.fragment import Game


def taken(number: int, policy: str = "main", generation: int = 1) -> Snapshot:
    return Snapshot(policy, generation, number, number * 512)


def duel(first: str, second: str, result: float) -> Game:
    return Game((first, second), (result, -result), 20)


def league_of(*numbers: int) -> League:
    league = League()
    for number in numbers:
        league.add(taken(number))
    return league


def test_the_public_names() -> None:
    assert rookery.league.__all__ == [
        "League",
        "LadderRow",
        "Standing",
        "Snapshot",
        "Schedule",
        "thin",
        "Rating",
        "Ratings",
        "Payoff",
        "Score",
        "Matrix",
        "How",
    ]


def test_two_leagues_share_nothing() -> None:
    first = league_of(1, 2)
    first.note([duel("main@1", "main@2", 1.0)])
    assert League() == League(snapshots=[])
    assert League().ratings.players == {}
    assert League().payoff.pairs == {}


def test_a_pool_is_one_policys_oldest_first() -> None:
    league = league_of(20, 0, 10)
    league.add(taken(5, policy="exploiter"))
    assert [snapshot.number for snapshot in league.pool("main")] == [0, 10, 20]
    assert league.pool("nobody") == []


def test_a_snapshot_is_added_once() -> None:
    league = league_of(1, 2)
    league.note([duel("main@1", "main@2", 1.0)])
    league.add(taken(1))
    assert len(league.snapshots) == 2
    assert league.ratings.of("main@1").games == 1


def test_other_weights_under_a_name_inherit_nothing() -> None:
    league = league_of(1, 2)
    league.note([duel("main@1", "main@2", 1.0), duel("main@2/greedy", "main@1", 1.0)])
    league.add(taken(2, generation=2))
    assert league.pool("main") == [taken(1), taken(2, generation=2)]
    assert set(league.ratings.players) == {"main@1"}
    assert league.payoff.pairs == {}


def test_dropped_players_are_gone_from_everywhere() -> None:
    league = league_of(1, 2)
    games = [
        duel("main@1", "main@2", 1.0),
        duel("main@1", "main@2/greedy", 1.0),
        duel("main@1", "script:random", 1.0),
    ]
    league.note(games)
    league.drop(["main@2"])
    assert [snapshot.name for snapshot in league.snapshots] == ["main@1"]
    assert {row.player for row in league.ladder()} == {"main@1", "script:random"}
    assert league.payoff.matrix().players == ("main@1", "script:random")
    assert league.ladder()[0].wins == 3  # what it did against the dropped stays its own

    assert league.note(games) == 2  # played before the actors heard of it
    assert {row.player for row in league.ladder()} == {"main@1", "script:random"}
    assert league.most_uncertain(9) == ["script:random", "main@1"]


def test_snapshots_of_other_runs_are_taken_as_they_come() -> None:
    league = league_of(1)
    assert league.note([duel("main@1", "elsewhere@340/greedy", -1.0)]) == 0
    assert league.ladder()[0].player == "elsewhere@340/greedy"


def test_an_exploiter_that_begins_anew_has_beaten_nobody() -> None:
    league = league_of(1)
    league.note([duel("exploiter", "main", 1.0)] * 10)
    assert league.payoff.win_rate("exploiter", "main") > 0.9
    league.drop(["exploiter"])
    assert league.payoff.record("exploiter", "main").games == 0


def test_games_with_a_learner_count_for_the_payoff_only() -> None:
    league = league_of(1)
    league.note([duel("main", "main@1", 1.0)])
    assert league.payoff.record("main", "main@1").wins == 1
    assert league.ladder() == []


def test_weights_are_over_the_pools_names() -> None:
    league = league_of(1, 2, 3)
    league.add(taken(9, policy="exploiter"))
    league.note([duel("main", "main@1", 1.0), duel("main", "main@2", -1.0)] * 20)
    assert league.weights("main", "main", "uniform") == pytest.approx(
        {"main@1": 1 / 3, "main@2": 1 / 3, "main@3": 1 / 3}
    )
    recency = league.weights("main", "main", "recency")
    assert recency["main@3"] > recency["main@2"] > recency["main@1"]
    pfsp = league.weights("main", "main", "pfsp")
    assert pfsp["main@2"] > pfsp["main@3"] > pfsp["main@1"]
    assert league.weights("main", "exploiter", "pfsp") == {"exploiter@9": 1.0}
    assert league.weights("main", "nobody", "pfsp") == {}


def test_a_standing_counts_opponents_alike_and_waits_for_the_least_met() -> None:
    league = league_of(1, 2)
    assert league.standing("main", "main") == Standing(0.5, 0)
    league.payoff.half_life_games = 1e12  # as good as no fading, to count by hand
    league.note([duel("main", "main@1", 1.0)] * 98 + [duel("main", "main@2", -1.0)] * 8)
    standing = league.standing("main", "main")
    assert standing.win_rate == pytest.approx((99 / 100 + 1 / 10) / 2)
    assert standing.games == 8
    assert league.standing("main", "nobody") == Standing(0.5, 0)


def test_the_most_uncertain_is_the_widest_then_the_least_played_then_the_newest() -> None:
    league = league_of(1, 2, 3, 4)
    league.ratings.players = {
        "main@1": Rating(25, 2.0, 40),
        "main@2": Rating(25, 2.0, 30),
        "script:random": Rating(25, 5.0, 3),
        "main@4": Rating(25, SIGMA, 1),
    }
    everyone = ["main@3", "main@4", "script:random", "main@2", "main@1"]
    assert league.most_uncertain(9) == everyone
    assert league.most_uncertain(2) == everyone[:2]
    assert league.most_uncertain(2, exclude={"main@4"}) == ["main@3", "script:random"]
    league.ratings.players = {"main@4/greedy": Rating(25, SIGMA, 0)}
    assert league.most_uncertain(9) == ["main@4", "main@4/greedy", "main@3", "main@2", "main@1"]


def test_the_ladder_is_by_strength_with_intervals_and_tallies() -> None:
    league = league_of(1, 2)
    league.note([duel("main@2", "main@1", 1.0)] * 3 + [duel("main@2", "main@1", 0.0)])
    top, bottom = league.ladder()
    assert (top.rank, top.player, top.games) == (1, "main@2", 4)
    assert (top.wins, top.draws, top.losses) == (3, 1, 0)
    assert (bottom.rank, bottom.player, bottom.losses) == (2, "main@1", 3)
    assert top.mu > bottom.mu
    assert (top.low, top.high) == (top.mu - 1.96 * top.sigma, top.mu + 1.96 * top.sigma)


PLAYERS = ["main", "main@1", "main@2", "main@2/greedy", "script:random", "other@7"]


@st.composite
def games(draw: st.DrawFn) -> Game:
    players = draw(st.lists(st.sampled_from(PLAYERS), min_size=1, max_size=4))
    totals = [draw(st.sampled_from([-1.0, 0.0, 0.1, 1.0])) for _ in players]
    return Game(tuple(players), tuple(totals), draw(st.integers(1, 99)))


@settings(deadline=None)
@given(before=st.lists(games(), max_size=30), after=st.lists(games(), max_size=30))
def test_a_league_goes_on_from_json_as_if_it_had_never_stopped(
    before: list[Game], after: list[Game]
) -> None:
    league = league_of(1, 2)
    league.note(before)
    encoded = msgspec.json.encode(league)
    restored = msgspec.json.decode(encoded, type=League)
    assert restored == league

    league.note(after)
    restored.note(after)
    assert restored == league
    assert msgspec.json.encode(restored) == msgspec.json.encode(league)
    assert restored.ladder() == league.ladder()
    assert restored.weights("main", "main", "pfsp") == league.weights("main", "main", "pfsp")
