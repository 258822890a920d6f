"""A new kind of player is one file and one line: then it is listed, checked, seated and played."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.actor.build import check_players, make_rollout
from rookery.actor.loop import Admitted
from rookery.algorithms.networks import initial_arrays
from rookery.checkpoints.policies import RunFiles
from rookery.config.reading import validate
from rookery.control import catalogue
from rookery.control.allow import player_refused
from rookery.control.home import Home
from rookery.control.settings import Allow
from rookery.envs.registry import describe
from rookery.errors import InputError, UnknownName
from rookery.evaluation.match import play_match
from rookery.messages import ActorId, WeightsVersion
from rookery.players.kinds import KINDS
from rookery.players.names import PlayerName
from rookery.players.seat_map import Seating
from rookery.worker.context import RunContext
from rookery.worker.policies import networks

GAME = "pettingzoo:tictactoe_v3"


@pytest.fixture(autouse=True)
def one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "toy", "tests.players.toy:TOY")


def test_it_is_listed_with_its_options() -> None:
    (toy,) = [each for each in catalogue.players() if each["kind"] == "toy"]
    assert toy["example"] == "toy:box?below=1" and toy["options"][0]["name"] == "below"


def test_its_names_are_read_and_checked() -> None:
    assert str(PlayerName.parse("toy:box?below=1")) == "toy:box?below=1"
    with pytest.raises(InputError, match="write toy:NAME"):
        PlayerName.parse("toy:a b")
    with pytest.raises(UnknownName, match="did you mean toy"):
        PlayerName.parse("tyo:box")
    with pytest.raises(InputError, match="a whole number from 0 to 3"):
        play_match(Home(Path("nowhere")), GAME, "toy:box?below=9", "script:random", 2)


def test_it_is_refused_from_the_network_until_its_file_says_what_it_names() -> None:
    everything = Allow(code=("*",), binaries=("*",), files=("*",), hosts=("*",))
    line = player_refused("toy:box", everything)
    assert line == "player toy:box is a toy, which nobody may name from elsewhere"


def test_it_plays_a_match(tmp_path: Path) -> None:
    home = Home(tmp_path)
    result = play_match(home, GAME, "toy:box", "toy:box?below=1", 4)
    assert result["games"] == 4 and result["distinct"] == 2
    assert (result["a"], result["b"]) == ("toy:box", "toy:box?below=1")


def test_it_sits_in_a_training_rollout() -> None:
    config = validate(
        {
            "environment": {"id": GAME},
            "seats": {"player_1": "main", "player_2": "toy:box"},
            "actors": {"envs_per_actor": 16, "rollout_steps": 32},
            "league": {"rating_every": 0},
        }
    )
    spec = describe(GAME)
    seating = Seating.of(config, spec)
    nobody: Any = None
    check_players(config, seating, nobody)
    files = RunFiles("r1", config, spec, "file:nowhere", "file:nowhere")
    context = RunContext(files, seating, *[nobody] * 7)
    rollout = make_rollout(context, ActorId(0, 0), lambda doing: None)
    (network,) = networks(config, seating).values()
    weights = {"main": network.acting_arrays(*initial_arrays(network, 0))}
    played = rollout(Admitted(WeightsVersion(1, 0), weights))
    rollout.close()
    assert played.games and {game.players for game in played.games} == {("main", "toy:box")}


def test_listing_kinds_and_checking_names_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rookery.control import catalogue; catalogue.players();"
        "from rookery.players.names import PlayerName; PlayerName.parse('onnx:a.onnx');"
        "heavy = {'jax', 'onnxruntime', 'chess', 'pettingzoo', 'gymnasium'} & sys.modules.keys();"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
