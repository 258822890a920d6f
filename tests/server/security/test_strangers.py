"""What somebody tries who has a token of scope `operate`: none of it runs code or fills memory.

The server allows a whole module, as careless owners do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.config import code
from rookery.control.check import answer, check_order
from rookery.control.home import Home
from tests.conftest import ROOT, Cli

MODULE = """
import functools
from subprocess import run
from gymnasium.envs.classic_control import CartPoleEnv
from rookery.algorithms.ppo import PPO as Borrowed


touch = functools.partial(run)


class Helper:
    def __init__(self, path):
        open(path, "w").close()


class Maze(CartPoleEnv):
    pass


def make_maze():
    return Maze()


@functools.cache
def choose(observation, mask):
    return 0


def seat(seat, episode):
    return "main"
"""
HEAVY = """
class Hog(CartPoleEnv):
    def __init__(self):
        self.kept = bytearray(1 << 31)


class Slow(CartPoleEnv):
    def __init__(self):
        while True:
            pass
"""
CARTPOLE, GAME = {"id": "CartPole-v1"}, {"id": "pettingzoo:tictactoe_v3"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a module of its owner's, and a home that allows all of it."""
    (tmp_path / "my_module.py").write_text(MODULE)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "rookery.yaml").write_text('allow: {code: ["my_module:*"]}\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(code, "_held", set())
    yield tmp_path
    sys.modules.pop("my_module", None)


# --- code ----------------------------------------------------------------------------------------


def looked_at(place: Path, config: dict[str, Any]) -> str:
    """What the checker's process says of a config from afar; empty: nothing is wrong with it."""
    said = answer(Home(place / "home"), {"config": {"environment": CARTPOLE, **config}})
    assert not (place / "pwned").exists(), "it ran"
    return str(said.get("error", ""))


@pytest.mark.parametrize(
    "config",
    [
        {"environment": {"id": "my_module:run", "kwargs": {"args": ["touch", "pwned"]}}},
        {"environment": {"id": "my_module:touch", "kwargs": {"args": ["touch", "pwned"]}}},
        {"environment": {"id": "my_module:CartPoleEnv"}},
        {"environment": GAME, "seats": {"player_1": "main", "*": "script:my_module:run"}},
        {"seat_map": "my_module:run"},
        {"environment": GAME, "league": {"reference": ["script:my_module:run"]}},
        {"algorithm": {"kind": "my_module:Borrowed"}},
        {"policies": {"a": {"algorithm": {"kind": "my_module:Borrowed"}}}},
    ],
)
def test_what_a_module_only_imports_cannot_be_named(place: Path, config: dict[str, Any]) -> None:
    assert "that is defined in my_module" in looked_at(place, config)


@pytest.mark.parametrize("id", ["my_module:Maze", "my_module:make_maze"])
def test_what_it_defines_can_be(place: Path, id: str) -> None:
    assert looked_at(place, {"environment": {"id": id}}) == ""
    assert looked_at(place, {"seat_map": "my_module:seat"}) == ""
    seats = {"player_1": "main", "*": "script:my_module:choose"}
    assert looked_at(place, {"environment": GAME, "seats": seats}) == ""


def test_a_class_that_is_no_environment_is_not_called(place: Path) -> None:
    helper = {"id": "my_module:Helper", "kwargs": {"path": "pwned"}}
    assert "is a class, and none of environments" in looked_at(place, {"environment": helper})


def test_a_class_is_no_player(place: Path) -> None:
    seats = {"player_1": "main", "*": "script:my_module:Helper"}
    assert "not a function" in looked_at(place, {"environment": GAME, "seats": seats})


def test_the_owner_may_name_what_a_module_imports(place: Path) -> None:
    """In a terminal: `from my_package.envs import Maze` is how packages are written."""
    order = {"config": {"environment": {"id": "my_module:CartPoleEnv"}}}
    assert check_order(Home(place / "home"), order)["seats"]


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"actors": {"envs_per_actor": 65536, "rollout_steps": 65536}}, "GB a batch"),
        ({"bus": {"kind": "sqlite", "max_experience_mb": 1 << 40}}, "max_experience_mb"),
        ({"replay": {"run": "/etc/passwd"}}, "is no run's name"),
        ({"replay": {"run": "../other"}}, "is no run's name"),
    ],
)
def test_what_no_machine_can_hold_is_refused_at_once(
    place: Path, config: dict[str, Any], word: str
) -> None:
    said = looked_at(place, config)
    assert word in said and "\n" not in said


@pytest.mark.parametrize(
    ("id", "word"), [("Hog", "MB of memory"), ("Slow", "s of a processor"), ("Maze", "")]
)
def test_looking_at_a_config_takes_bounded_memory_and_time(
    cli: Cli, tmp_path: Path, id: str, word: str
) -> None:
    (tmp_path / "my_module.py").write_text(MODULE + HEAVY)
    cli.home.path.mkdir(exist_ok=True)
    (cli.home.path / "rookery.yaml").write_text('allow: {code: ["my_module:*"]}\n')
    program = "from rookery.control import check; check.MOST_CPU_S = 6; check.MOST_MB = 1024; "
    done = subprocess.run(
        [sys.executable, "-c", program + "check.serve_one(lambda: None)"],
        input=json.dumps({"environment": {"id": f"my_module:{id}", "kwargs": {}}}) + "\n",
        env={**cli.environment, "PYTHONPATH": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = json.loads(done.stdout)
    assert word in said["error"] if word else "spec" in said
