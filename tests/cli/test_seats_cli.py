"""The verbs around seats: match, ladder, players and seats, as a person or a script types them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rookery.control.run_log import RunLog
from rookery.evaluation.kept_games import kept_matches
from rookery.messages import CommandRejected, SetSeatMap

if TYPE_CHECKING:
    from tests.conftest import Cli

GAME = "pgx:tic_tac_toe"
SMALL = ("--launcher", "inline", "--envs-per-actor", 16, "--set", "actors.rollout_steps=32")
CHESS = ("match", "pettingzoo:chess_v6")


@pytest.fixture(scope="module")
def run(shared_cli: Cli) -> str:
    """A run in a game of two seats."""
    done = shared_cli("train", GAME, *SMALL, "--steps", 4000, "--json", timeout=110)
    return str(done.json["run"])


@pytest.fixture(scope="module")
def solo(shared_cli: Cli, run: str) -> str:
    """A later run in an environment of one seat."""
    return str(shared_cli("train", "CartPole-v1", *SMALL, "--steps", 512, "--json").json["run"])


def changes(cli: Cli, run: str) -> list[SetSeatMap]:
    return [m for m in RunLog(cli.home, run).read() if isinstance(m, SetSeatMap)]


# --- match and ladder ----------------------------------------------------------------------------


def test_a_match_is_one_json_object_and_stands_on_the_ladder(shared_cli: Cli, run: str) -> None:
    before = {row["player"]: row for row in shared_cli("ladder", run, "--json").json["players"]}
    done = shared_cli("match", GAME, run, "script:random", "--games", 21, "--seed", 3, "--json")
    result = done.json
    name, _, number = result["a"].removesuffix("/greedy").partition("@")
    assert (name, result["b"]) == (run, "script:random") and result["a"].endswith("/greedy")
    assert result["games"] == 21 == result["wins"] + result["draws"] + result["losses"]
    assert (result["a_first"]["games"], result["b_first"]["games"]) == (11, 10)
    assert 1 <= result["distinct"] <= 21 and result["missed"] == {"a": 0, "b": 0}
    low, high = result["interval"]
    assert 0 <= low <= result["points"] <= high <= 1

    (kept,) = kept_matches(shared_cli.home.run_dir(run)).matches
    assert (kept.a, kept.b) == (result["a"], result["b"]) and kept.games

    found = shared_cli("ladder", run, "--payoff", "--json").json
    after = {row["player"]: row for row in found["players"]}
    greedy = after[f"main@{number}/greedy"]  # a run's own snapshots go by the league's names
    assert [greedy[key] for key in ("wins", "draws", "losses")] == [
        result[key] for key in ("wins", "draws", "losses")
    ]
    random = before["script:random"]["games"] if "script:random" in before else 0
    assert after["script:random"]["games"] == random + 21
    assert [row["rank"] for row in found["players"]] == list(range(1, len(after) + 1))
    assert found["payoff"]["players"] == sorted(found["payoff"]["players"])


def test_sampled_play_is_another_player(shared_cli: Cli, run: str) -> None:
    options = ("--games", 4, "--sampled", "--json")
    result = shared_cli("match", GAME, run, f"{run}@0", *options).json
    assert result["a"].startswith(f"{run}@") and "/greedy" not in result["a"]
    assert result["b"] == f"{run}@0"
    text = shared_cli("ladder", run, "--payoff").stdout
    assert f"main@{result['a'].partition('@')[2]} " in text and "main@0" in text
    assert run not in text


@pytest.mark.soak
def test_a_match_of_a_player_with_itself_is_not_rated(shared_cli: Cli, run: str) -> None:
    before = shared_cli("ladder", run, "--json").stdout
    result = shared_cli("match", GAME, run, run, "--games", 6, "--json").json
    assert result["distinct"] == 2 and result["repeats"]
    assert shared_cli("ladder", run, "--json").stdout == before


@pytest.mark.soak
def test_a_match_in_words(shared_cli: Cli) -> None:
    text = shared_cli(*_scripts("script:perfect", "script:random"), "--games", 10).stdout
    assert "script:perfect against script:random in pgx:tic_tac_toe" in text
    assert "10 games, " in text and " distinct" in text and "as player_0" in text
    same = shared_cli(*_scripts("script:first-legal", "script:first-legal"), "--games", 4).stdout
    assert "4 games, 2 distinct" in same and "every game was the same" in same
    assert all(character.isprintable() for line in text.splitlines() for character in line)


def _scripts(a: str, b: str) -> tuple[str, ...]:
    return ("match", GAME, a, b)


def test_environment_options_reach_the_match(shared_cli: Cli) -> None:
    game = ("match", "rookery.testing.games:DwindlingGame", "script:random", "script:random")
    done = shared_cli(*game, "--games", 2, "--env.fail_at=3", expect=1)
    assert "fails at move 3" in done.stderr and done.stdout == ""


@pytest.mark.soak
def test_the_ladder_in_words(shared_cli: Cli, run: str) -> None:
    shared_cli("match", GAME, run, "script:perfect", "--games", 4)
    lines = shared_cli("ladder", run).stdout.splitlines()
    assert lines[0].split() == ["RANK", "PLAYER", "RATING", "GAMES", "W", "/", "D", "/", "L"]
    assert lines[1].split()[0] == "1" and "±" in lines[1]
    with_payoff = shared_cli("ladder", run, "--payoff").stdout
    assert "points of the row against the column" in with_payoff


SLOW = """
import pathlib, time

def think(observation, mask):
    pathlib.Path("asked").touch()
    time.sleep(60)
"""


def test_ctrl_c_ends_a_match_and_its_deferred_players(
    cli: Cli, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = (*_scripts("script:slow:think?deadline=90", "script:random"), "--json")
    process = subprocess.Popen(
        [sys.executable, "-m", "rookery", *arguments],
        env=cli.environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        eventually((tmp_path / "asked").exists, "its first move")
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, stdout, stderr) == (130, b"", b"")


# --- players and seats ---------------------------------------------------------------------------


def test_players_lists_every_kind_with_its_options(shared_cli: Cli) -> None:
    rows = shared_cli("players", "--json").json["players"]
    assert {row["kind"] for row in rows} == {
        *("policy", "league", "snapshot", "script", "engine", "onnx")
    }
    minimax = next(row for row in rows if row["name"] == "minimax")
    assert [option["name"] for option in minimax["options"]] == ["depth"]
    assert minimax["options"][0]["default"] == "2"
    text = shared_cli("players").stdout
    assert all(row["example"] in text for row in rows) and "depth" in text


def test_seats_are_changed_for_the_whole_map(shared_cli: Cli, run: str) -> None:
    done = shared_cli("seats", run, "player_1=script:random", "--json").json
    assert done["run"] == run and done["seats"] == {"player_1": "script:random", "*": "main"}
    sent = changes(shared_cli, run)[-1]
    assert (sent.id, sent.seats) == (done["command"], done["seats"])
    text = shared_cli("seats", run, "player_1=script:perfect").stdout
    assert f"rookery resume {run}" in text and "script:perfect" in text
    # what stands is the newest change that was not refused
    refused = SetSeatMap(run=run, seats={"*": "script:random"})
    shared_cli.home.record(CommandRejected(run=run, command=refused.id, why="a test"))
    shared_cli.home.send(refused)
    again = shared_cli("seats", run, "player_0=main", "--json").json["seats"]
    assert again == {"player_0": "main", "player_1": "script:perfect", "*": "main"}
    # a pattern takes the place of the seats that it names
    every = shared_cli("seats", run, "player_*=main", "--json").json["seats"]
    assert every == {"player_*": "main", "*": "main"}


# --- bad input -----------------------------------------------------------------------------------

REFUSED = {
    "no games": (("match", GAME, "script:random", "script:random", "--games", 0), "--games"),
    "a seed below 0": ((*_scripts("script:random", "script:random"), "--seed=-1"), "below 0"),
    "unknown environment": (("match", "pgx:tic_tac_to", "last", "last"), GAME),
    "one player": (("match", GAME, "script:random"), "required: B"),
    "one seat": (("match", "CartPole-v1", "script:random", "script:random"), "one seat"),
    "unknown run": (_scripts("nope", "script:random"), "rookery runs list"),
    "unknown script": (_scripts("script:randm", "script:random"), "did you mean random"),
    "unknown kind": (_scripts("scrip:random", "script:random"), "did you mean script"),
    "an option it lacks": (_scripts("script:random?depth=2", "script:random"), "depth"),
    "a league": (_scripts("league:main", "script:random"), "RUN@340"),
    "unknown engine": ((*CHESS, "engine:stokfish", "script:random"), "did you mean stockfish"),
    "an engine elsewhere": (_scripts("engine:stockfish", "script:random"), "plays chess only"),
    "no such file": (_scripts("onnx:missing.onnx", "script:random"), "missing.onnx"),
    "a ladder of no run": (("ladder", "nope"), "rookery runs list"),
    "seats of no run": (("seats", "nope", "player_0=main"), "rookery runs list"),
    "no seats": (("seats", "nope"), "SEAT=PLAYER"),
    "unknown option": (("ladder", "nope", "--payof"), "--payoff"),
    "environment options elsewhere": (("ladder", "nope", "--env.size=3"), "train, fork, match"),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED)
def test_is_refused_in_one_line(shared_cli: Cli, arguments: tuple[object, ...], says: str) -> None:
    assert says in shared_cli.refused_here(*arguments)


def test_an_engine_that_is_not_there_is_named(shared_cli: Cli) -> None:
    missing = {"ROOKERY_ENGINE_STOCKFISH": "/nowhere/stockfish"}
    error = shared_cli.refused(*CHESS, "engine:stockfish", "script:random", env=missing)
    assert "/nowhere/stockfish" in error


@pytest.mark.soak
def test_what_does_not_fit_the_run_is_refused_in_one_line(shared_cli: Cli, run: str) -> None:
    four = shared_cli.refused("match", "pgx:connect_four", run, "script:random")
    assert f"{run}@" in four and "another space" in four
    assert f"{run}@0" in shared_cli.refused("match", GAME, f"{run}@777", "script:random")
    before = len(changes(shared_cli, run))
    for seats, says in {
        "player_7=main": "player_1",
        "player_1=script:perfekt": "did you mean perfect",
        "player_1=script:minimax": "Connect Four only",
        "player_1=mian": "did you mean main",
        "player_*=script:random": "sits in no seat",
        "player_1": "seat=player",
        "player_1=engine:stockfish": "",
    }.items():
        assert says in shared_cli.refused("seats", run, seats)
    assert len(changes(shared_cli, run)) == before


def test_a_run_with_one_seat_has_no_ladder(shared_cli: Cli, solo: str) -> None:
    assert f"run {solo} has no league: its environment has one seat" in shared_cli.refused(
        "ladder", "last"
    )
    assert "another space" in shared_cli.refused("match", GAME, "last", "script:random")
