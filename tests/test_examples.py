"""Every example runs: scripts as they are, configs for a few thousand steps."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery.checkpoints.policies import load_policy
from rookery.config.reading import build, load_yaml
from tools.ray import private_environment

if TYPE_CHECKING:
    from tests.conftest import Cli

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
ON_RAY = EXAMPLES / "ray_env_runners.py"  # starts a cluster of its own: in a soak
SCRIPTS = sorted({*EXAMPLES.glob("*.py")} - {ON_RAY})
CONFIGS = sorted(EXAMPLES.glob("*.yaml"))
STEPS = {"mixed_table.yaml": 200}  # a move of an engine takes its time
TIMEOUT_S = 150
GAMES = "/usr/games"  # where Debian puts engines


@pytest.mark.parametrize(
    "script",
    [*SCRIPTS, pytest.param(ON_RAY, marks=pytest.mark.soak)],
    ids=lambda path: str(path.name),
)
def test_a_script_runs_to_its_end(cli: Cli, script: Path, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="rk-") as short:  # for sockets, of those on Ray
        _run(script, {**cli.environment, **private_environment(tmp_path), "RAY_TMPDIR": short})


def _run(script: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "return" in done.stdout.splitlines()[-1]


LONG = (
    "selfplay.yaml",
    "teams.yaml",
    "red_blue.yaml",
    "pendulum.yaml",
    "lunar_lander.yaml",
)  # half a minute each to compile: in a soak


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.soak] if path.name in LONG else [])
        for path in CONFIGS
    ],
)
def test_a_config_trains(cli: Cli, config: Path) -> None:
    if "engine:stockfish" in config.read_text() and not (
        shutil.which("stockfish") or shutil.which("stockfish", path=GAMES)
    ):
        pytest.skip("needs Stockfish")
    steps = STEPS.get(config.name, 2000)
    targeted = build(load_yaml(config)).stop.until_return is not None

    done = cli(
        *("train", "--config", config, "--steps", steps, "--json"),
        timeout=TIMEOUT_S,
        expect=3 if targeted else 0,
        cwd=ROOT,
    )

    assert done.json["status"] == ("limited" if targeted else "finished")
    assert done.json["env_steps"] >= steps


@pytest.mark.soak
def test_red_and_blue_have_their_own_networks_over_one_encoder(cli: Cli) -> None:
    config = EXAMPLES / "red_blue.yaml"
    done = cli(
        *("train", "--config", config, "--steps", 2000, "--launcher", "inline", "--json"),
        timeout=TIMEOUT_S,
        cwd=ROOT,
    )

    run = done.json["run"]
    red, blue = (
        load_policy(cli.home.files(run), policy=name).arrays for name in ("aggressive", "defensive")
    )
    assert {n: a.shape for n, a in red.items()} != {n: a.shape for n, a in blue.items()}
    shared = [name for name in red if name.startswith("enc.")]
    assert shared
    for name in shared:
        assert (red[name] == blue[name]).all()
