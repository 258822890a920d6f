"""Every example runs: scripts as they are, configs for a few thousand steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Cli

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
CONFIGS = sorted(EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_runs_to_its_end(cli: Cli, script: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "return" in done.stdout.splitlines()[-1]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_a_config_trains(cli: Cli, config: Path) -> None:
    done = cli("train", "--config", config, "--steps", 5000, "--json", timeout=100, expect=3)
    assert done.json["status"] == "limited"
    assert done.json["env_steps"] >= 5000
