"""An environment that changes under a run: one line that says both, not six deaths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Cli

MAZE = """
from rookery.testing.envs import CountingEnv

class Maze(CountingEnv):
    def __init__(self):
        super().__init__(length={length}, actions={actions})
"""
SMALL = ("--envs-per-actor", 4, "--set", "actors.rollout_steps=16", "--json")
CHANGED = "environment maze:Maze has changed since the run began: the"


@pytest.mark.soak
def test_a_changed_environment_is_refused_by_resume_by_who_joins_and_by_a_new_actor(
    cli: Cli, tmp_path: Path
) -> None:
    maze = tmp_path / "maze.py"
    maze.write_text(MAZE.format(length=3, actions=2))
    cli.environment |= {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    running = cli.start("train", "maze:Maze", *SMALL, "--steps", 10**8)
    running.wait_until(lambda: running.env_steps > 1000, "training")

    maze.write_text(MAZE.format(length=5, actions=2))
    seen = f"{CHANGED} observation of seat 'player_0' was box(4,) float32 and is box(6,) float32"
    assert seen in cli.refused("actor", running.run)
    actor = running.worker("actor")
    assert actor is not None
    actor.kill()
    done = running.finish(expect=1)
    assert done.json["status"] == "failed" and seen in done.json["reason"]
    assert cli.home.state(running.run).workers["actor-0"].deaths == 2  # the kill, and the refusal
    assert seen in cli("why", running.run, expect=None).stdout

    maze.write_text(MAZE.format(length=3, actions=5))
    acts = f"{CHANGED} actions of seat 'player_0' was Categorical(n=2, start=0) and is "
    assert acts in cli.refused("resume", running.run)
    maze.write_text(MAZE.format(length=3, actions=2))
    again = cli.start("resume", running.run, "--json", run=running.run)
    again.wait_until(lambda: again.env_steps > 2000, "training")
    assert again.interrupt().code == 130
