"""Rewards that are no numbers: nothing of them is published, and the run says what happened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rookery.checkpoints.checkpoint import newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.learner.manifest import LearnerManifest

if TYPE_CHECKING:
    from tests.conftest import Cli

POISONED = """
import numpy as np
from rookery.testing.envs import CountingEnv

class Poisoned(CountingEnv):
    played = 0
    def step(self, action):
        self.played += 1
        seen, reward, *rest = super().step(action)
        return seen, np.nan if self.played % {every} == 0 else reward, *rest
"""
SMALL = ("--envs-per-actor", 4, "--set", "actors.rollout_steps=16", "--json")


@pytest.mark.soak
def test_a_poisoned_run_goes_on_and_one_that_is_nothing_but_poison_fails_at_once(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "sometimes.py").write_text(POISONED.format(every=500))
    done = cli("train", "sometimes:Poisoned", *SMALL, "--steps", 20_000, cwd=tmp_path).json
    shown = cli("runs", "show", done["run"], "--json").json["balance"]
    assert done["status"] == "finished" and shown["exact"] and shown["dropped"]["diverged"] > 0

    (tmp_path / "always.py").write_text(POISONED.format(every=1))
    failed = cli("train", "always:Poisoned", *SMALL, cwd=tmp_path, expect=1).json
    assert failed["status"] == "failed" and "training diverged; lower" in failed["reason"]
    said = cli("why", failed["run"], expect=None)
    assert "training diverged; lower algorithm.learning_rate" in said.stdout
    state = cli.home.state(failed["run"])
    assert sum(worker.deaths for worker in state.workers.values()) == 0
    found = newest_checkpoint(
        open_store(cli.home.files(failed["run"]).checkpoints), LearnerManifest
    )
    assert found is not None
    for name, array in found.arrays.items():
        assert not name.startswith("main/") or np.isfinite(array).all()
