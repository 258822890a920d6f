"""Matches between two fixed players, and the ladder that they end up on."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import rookery
from rookery.control.home import Home
from rookery.envs.registry import describe, make
from rookery.errors import InputError, RookeryError, UnknownName
from rookery.evaluation import match as module
from rookery.evaluation.ladder import games_of, ladder_text
from rookery.evaluation.match import (
    PlayedGame,
    Tally,
    deals,
    make_side,
    match_lineup,
    match_text,
    play_games,
    play_match,
    tally,
)
from rookery.league.ratings import Ratings
from rookery.messages import CreateRun, MatchPlayed
from rookery.messages.fragment import Game
from tests.conftest import wait_until

if TYPE_CHECKING:
    from tests.conftest import Cli

GAME = "rookery.testing.games:DwindlingGame"  # three seats with spaces of their own
TIC_TAC_TOE = "pgx:tic_tac_toe"
FIRST, RANDOM = "script:first-legal", "script:random"


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def without_time(result: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key != "seconds"}


# --- who sits where, and how often ---------------------------------------------------------------


@pytest.mark.parametrize(("games", "a_first", "b_first"), [(1, 1, 0), (2, 1, 1), (7, 4, 3)])
def test_both_ways_round_have_their_exact_share(
    place: Home, games: int, a_first: int, b_first: int
) -> None:
    result = play_match(place, GAME, FIRST, RANDOM, games)
    assert result["games"] == games and result["first_seat"] == "red"
    assert (result["a_first"]["games"], result["b_first"]["games"]) == (a_first, b_first)
    for key in ("wins", "draws", "losses"):
        assert result[key] == result["a_first"][key] + result["b_first"][key]


def test_two_players_alternate_over_three_seats(place: Home) -> None:
    spec = describe(GAME)
    a, b = (make_side(place, label, RANDOM, spec, False) for label in "ab")
    assert len(a.members) == 3  # the seats see and do different things
    lineup = match_lineup(spec, a, b)
    env = make(GAME, 3)
    played = play_games(env, lineup, 8, 0, np.random.default_rng(0))
    env.close()
    assert len(played) == 8
    assert {each.game.players for each in played} == {("a", "b", "a")}
    assert {each.game.length for each in played} == {9}  # 2 + 3 + 4 moves


class Uneven:
    """Slot 0 plays games of 2 steps and slot 1 of 10: the first to finish would be the short."""

    def __init__(self) -> None:
        self.spec, self.slots = describe(GAME), 2
        self._lengths, self._at = np.array([2, 10]), np.zeros(2, int)

    def reset(self, seed: int) -> Any:
        return self._show(np.zeros(2, bool))

    def step(self, actions: Any, advance: Any = None) -> Any:
        over = self._at == self._lengths
        self._at = np.where(over, 0, self._at + 1)
        return self._show(over)

    def _show(self, reset: np.ndarray) -> Any:
        from rookery.envs import SeatView

        ended = self._at == self._lengths
        return {
            seat: SeatView(
                {leaf.path: np.zeros((2, *leaf.shape), leaf.dtype) for leaf in spec.observation},
                np.ones((2, spec.action.n), bool),
                np.zeros(2, np.float32),
                ended,
                np.zeros(2, bool),
                reset,
                ~ended if number == 0 else np.zeros(2, bool),
            )
            for number, (seat, spec) in enumerate(self.spec.seats.items())
        }


def test_short_games_are_not_favoured(place: Home) -> None:
    env: Any = Uneven()
    a, b = (make_side(place, label, RANDOM, env.spec, False) for label in "ab")
    played = play_games(env, match_lineup(env.spec, a, b), 6, 0, np.random.default_rng(0))
    assert Counter(each.game.length for each in played) == {2: 3, 10: 3}


class Endless(ParallelEnv):  # type: ignore[misc]
    """Over when both choose 1, and not before; each step pays one to `left`."""

    metadata = {"name": "endless_v0"}  # noqa: RUF012 (PettingZoo's)
    render_mode = None

    def __init__(self, render_mode: str | None = None) -> None:
        self.possible_agents = ["left", "right"]
        self.observation_spaces = {a: spaces.Box(0, 1, (1,)) for a in self.possible_agents}
        self.action_spaces = {a: spaces.Discrete(2) for a in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return {a: np.zeros(1, np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: dict[str, Any]) -> Any:
        told = self.agents
        over = dict.fromkeys(told, all(actions.values()))
        if all(actions.values()):
            self.agents = []
        seen = {agent: np.zeros(1, np.float32) for agent in told}
        pay = {agent: float(agent == "left") for agent in told}
        return seen, pay, over, dict.fromkeys(told, False), {agent: {} for agent in told}


ENDLESS = "tests.evaluation.test_match:Endless"


@pytest.mark.timeout(60)
def test_a_game_that_never_ends_is_cut_and_told(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 20)
    monkeypatch.setattr(module, "MAX_SLOTS", 2)
    result = play_match(place, ENDLESS, FIRST, FIRST, 7)
    assert (result["games"], result["cut"], result["cut_at"]) == (7, 7, 20)
    assert (result["a_first"]["wins"], result["b_first"]["losses"]) == (4, 3)  # as they stood
    assert result["mean_length"] == 20
    assert "7 games did not end: cut at 20 steps" in match_text(result)


@pytest.mark.timeout(60)
def test_games_that_end_are_whole_beside_those_that_are_cut(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 4)  # of random games three of ten go on longer
    spec = describe(ENDLESS)
    sides = [make_side(place, label, RANDOM, spec, False) for label in "ab"]
    env = make(ENDLESS, 3)
    played = play_games(env, match_lineup(spec, *sides), 50, 0, np.random.default_rng(0))
    env.close()
    assert Counter(each.slot for each in played) == {0: 17, 1: 17, 2: 16}
    lengths = [each.game.length for each in played]
    assert lengths == [each.game.totals[0] for each in played] and max(lengths) == 4
    assert all(each.game.length == 4 for each in played if each.cut)
    assert 0 < sum(each.cut for each in played) < 35


# --- what a result rests on ----------------------------------------------------------------------


def test_a_tally_compares_the_means_of_each_sides_seats() -> None:
    def game(*totals: float, moves: bytes = b"") -> PlayedGame:
        return PlayedGame(Game(("a", "b", "a"), totals, 5), moves)

    played = [game(1, 2, 5), game(1, 2, 3), game(1, 2, 2), game(1, 2, 2), game(1, 2, 2, moves=b"x")]
    found = tally(played, "a", dealt=False)
    assert (found.wins, found.draws, found.losses) == (1, 1, 3)
    assert found.distinct == 2  # by their moves
    assert tally(played, "b", dealt=False).wins == 3
    with pytest.raises(RookeryError, match="nan"):
        tally([game(1, float("nan"), 1)], "a", dealt=False)


def test_the_same_moves_on_other_cards_are_another_game(place: Home) -> None:
    result = play_match(place, "pgx:kuhn_poker", FIRST, FIRST, 60)
    assert result["a_first"]["distinct"] == result["b_first"]["distinct"] == 30
    assert result["distinct"] == 60 and not result["repeats"]


def test_an_environment_deals_where_the_same_moves_were_other_games() -> None:
    def game(total: float, moves: bytes, sights: int) -> PlayedGame:
        return PlayedGame(Game(("a", "b"), (total, -total), 5), moves, sights)

    assert not deals([game(1, b"x", 7), game(1, b"x", 7), game(-1, b"y", 8)])
    assert deals([game(1, b"x", 7), game(-1, b"x", 7)])  # the cards were hidden
    assert deals([game(1, b"x", 7), game(1, b"x", 8)])  # they were seen


def test_the_interval_rests_on_distinct_games() -> None:
    # Wilson by hand at z = 1.96 with 10 games of which all are won: 10 / (10 + z²) to 1
    assert Tally(10, 0, 0, distinct=10).interval == pytest.approx((0.72246, 1.0), abs=1e-5)
    # the same share from copies of one game: 1 / (1 + z²)
    assert Tally(10, 0, 0, distinct=1).interval == pytest.approx((0.20655, 1.0), abs=1e-5)
    # 3 points of 4: (0.75 + z²/8 ± z sqrt(0.75 * 0.25 / 4 + z²/64)) / (1 + z²/4)
    tallied = Tally(200, 200, 0, distinct=4)
    assert tallied.points == 0.75
    assert tallied.interval == pytest.approx((0.30064, 0.95441), abs=1e-5)
    assert Tally(0, 0, 0, distinct=0).interval == (0.0, 1.0)


def test_two_players_without_chance_play_one_game_each_way(place: Home) -> None:
    result = play_match(place, TIC_TAC_TOE, FIRST, FIRST, 10)
    # 0, 2, 4 and 6: a diagonal, before the second has three in a row
    assert (result["a_first"]["wins"], result["b_first"]["losses"]) == (5, 5)
    assert result["distinct"] == 2 and result["a_first"]["distinct"] == 1
    assert result["repeats"] and result["mean_length"] == 7.0
    assert result["a_first"]["interval"] == pytest.approx([0.20655, 1.0], abs=1e-5)


def test_perfect_play_never_loses_and_a_seed_repeats_the_match(place: Home) -> None:
    result = play_match(place, TIC_TAC_TOE, "script:perfect", RANDOM, 61, seed=5)
    assert result["losses"] == 0 and result["wins"] > 40 and not result["repeats"]
    again = play_match(place, TIC_TAC_TOE, "script:perfect", RANDOM, 61, seed=5)
    assert without_time(again) == without_time(result)
    other = play_match(place, TIC_TAC_TOE, "script:perfect", RANDOM, 61, seed=6)
    assert without_time(other) != without_time(result)
    assert not place.path.exists()  # no run took part: nothing was recorded


# --- players that answer later -------------------------------------------------------------------


def test_a_deferred_player_takes_part_and_its_missed_moves_are_counted(
    place: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "match_rules.py").write_text(
        "def lowest(observation, mask):\n    return int(mask.argmax())\n"
        "def broken(observation, mask):\n    raise ValueError('no idea')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    lowest = play_match(place, TIC_TAC_TOE, "script:match_rules:lowest", FIRST, 12)
    assert lowest["distinct"] == 2 and lowest["a_first"]["wins"] == 6
    assert lowest["missed"] == {"a": 0, "b": 0}
    broken = play_match(place, TIC_TAC_TOE, RANDOM, "script:match_rules:broken", 4)
    assert broken["missed"]["a"] == 0 and broken["missed"]["b"] >= 8


def test_deferred_players_are_closed_when_the_match_cannot_begin(
    place: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    from rookery.players.deferred import ThinkingPlayer

    whole = ThinkingPlayer.close
    monkeypatch.setattr(
        ThinkingPlayer, "close", lambda self: (closed.append(self.name), whole(self))
    )
    with pytest.raises(UnknownName, match="random"):
        play_match(place, TIC_TAC_TOE, "script:operator:indexOf", "script:randm", 4)
    assert closed == ["script:operator:indexOf"]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "a", "b", "options", "says"),
    [
        (GAME, RANDOM, RANDOM, {"games": 0}, "at least 1"),
        (GAME, RANDOM, RANDOM, {"seed": -1}, "below 0"),
        ("CartPole-v1", RANDOM, RANDOM, {}, "one seat"),
        (GAME, "last", RANDOM, {}, "there is none"),
        (GAME, RANDOM, "nope@3", {}, "unknown run"),
        (GAME, RANDOM, "league:main", {}, "RUN@340"),
        (GAME, RANDOM, "script:perfect", {}, "tic-tac-toe only"),
        (GAME, RANDOM, RANDOM, {"env": {"fail_ta": 3}}, "fail_at"),
    ],
)
def test_is_refused(
    tmp_path: Path, environment: str, a: str, b: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says):
        rookery.match(environment, a, b, home=tmp_path / "home", **options)


def test_the_public_function_stays_one_after_it_was_used(tmp_path: Path) -> None:
    for _ in range(2):  # a module of the same name would take its place
        assert rookery.match(GAME, FIRST, RANDOM, games=2, home=tmp_path)["games"] == 2


# --- the ladder ----------------------------------------------------------------------------------


def test_a_match_is_rated_game_by_game_under_the_leagues_names() -> None:
    match = MatchPlayed(run="r", players=("r@4/greedy", "other@4"), wins=2, draws=1, losses=1)
    games = list(games_of(match, "r", "main"))
    assert {game.players for game in games} == {("main@4/greedy", "other@4")}
    assert Counter(np.sign(game.totals[0] - game.totals[1]) for game in games) == {
        1: 2,
        0: 1,
        -1: 1,
    }
    ratings = Ratings()
    assert ratings.rate_many(games) == 4
    mine, theirs = ratings.of("main@4/greedy"), ratings.of("other@4")
    assert mine.mu > theirs.mu
    assert (mine.games, mine.wins, mine.draws, mine.losses) == (4, 2, 1, 1)


def test_results_of_a_match_are_spread_evenly() -> None:
    match = MatchPlayed(run="r", players=("a:1", "b:2"), wins=4, draws=0, losses=4)
    signs = [np.sign(game.totals[0]) for game in games_of(match, "r", "main")]
    assert all(set(signs[i : i + 2]) == {1, -1} for i in range(0, 8, 2))


def test_matches_are_read_for_one_run_in_their_order(place: Home) -> None:
    def played(run: str, wins: int) -> MatchPlayed:
        return MatchPlayed(run=run, players=("x:1", "y:2"), wins=wins, draws=0, losses=0)

    place.send(*(CreateRun(run=run, config={}) for run in ("one", "two")))
    place.record(played("one", 1), played("two", 2), played("one", 3))
    assert [match.wins for match in place.state("one").matches] == [1, 3]
    place.close()


def test_an_empty_ladder_says_what_to_do() -> None:
    text = ladder_text({"run": "r", "players": [], "payoff": {"players": [], "records": []}})
    assert "rookery match" in text


@pytest.mark.soak
def test_an_engine_that_is_killed_in_mid_game_plays_on(cli: Cli) -> None:
    """A whole match through the command, with a real Stockfish that is really killed."""
    if not (shutil.which("stockfish") or shutil.which("stockfish", path="/usr/games")):
        pytest.skip("stockfish is not installed")
    engine = "engine:stockfish?time=0.2"
    players = ("script:random", engine)
    command = ("match", "pettingzoo:chess_v6", *players, "--games", "2", "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "rookery", *command],
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def engines() -> list[psutil.Process]:
        children = psutil.Process(process.pid).children(recursive=True)
        return [child for child in children if "stockfish" in child.name()]

    try:
        first = wait_until(engines, "an engine", 60)[0]
        wait_until(lambda: first.cpu_times().user > 0.2, "moves of the engine", 60)
        first.kill()
        wait_until(lambda: [e for e in engines() if e.pid != first.pid], "another engine", 60)
        out, err = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["games"] == 2 and result["losses"] == 2  # random play loses to any engine
    assert result["missed"] == {"a": 0, "b": 0}
    assert not cli.processes()
