"""Each extra installed alone, in an environment of its own: what it names trains and is evaluated.

Takes minutes and the network: `pytest --soak -m soak tests/envs/test_extras.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_ENVIRONMENTS = {  # players, a bus, clusters, stores, searches, and what tests need
    *("chess", "onnx", "kafka", "ray", "ray-serve", "ray-tune", "stores", "gcs", "tune", "test")
}
FAMILIES = {
    "box2d": ["LunarLander-v3"],
    "gymnax": ["gymnax:CartPole-v1"],
    "games": ["pgx:tic_tac_toe", "pettingzoo:tictactoe_v3", "pettingzoo:simple_spread_v3"],
    "atari": ["ALE/Pong-v5"],
    "mujoco": ["Hopper-v5"],
}


def test_every_extra_of_environments_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) - NOT_ENVIRONMENTS == set(FAMILIES)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("extra", FAMILIES)
def test_an_extra_alone_is_enough_for_what_it_names(extra: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=120)
    pip = [tmp_path / "venv/bin/python", "-m", "pip", "install", "-q", "-c", "requirements.lock"]
    no_page = {**os.environ, "ROOKERY_NO_PAGE": "1"}
    subprocess.run([*pip, f".[{extra}]"], cwd=ROOT, env=no_page, check=True, timeout=900)
    for id in FAMILIES[extra]:
        trained = _rookery(tmp_path, "train", id, "--steps", "500", "--envs-per-actor", "2")
        assert trained["env_steps"] >= 500
        if id != "ALE/Pong-v5":  # a game of Pong is a thousand steps
            assert _rookery(tmp_path, "eval", trained["run"], "--episodes", "2")["greedy"]
    for seed in range(20) if extra == "atari" else ():
        _resets(tmp_path, "ALE/Pong-v5", seed)


def _rookery(place: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(  # noqa: PLW1510 a limit of steps is exit code 3
        [place / "venv/bin/rookery", *arguments, "--json"],
        env={**os.environ, "ROOKERY_HOME": str(place / "runs")},
        cwd=place,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in (0, 3), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _resets(place: Path, id: str, seed: int) -> None:
    """As an actor begins with a run's seed."""
    code = (
        "import rookery.envs.registry as r, rookery.seeds as s;"
        f"r.make({id!r}, 4).reset(s.number({seed}, 'environment', 0, 0))"
    )
    subprocess.run([place / "venv/bin/python", "-c", code], cwd=place, check=True, timeout=120)
