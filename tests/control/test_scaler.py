"""A run whose number of actors follows its learner, with real processes."""

from __future__ import annotations

from typing import Any

import pytest

import rookery
from rookery.control import autoscale
from rookery.control.autoscale import AUTHOR
from rookery.control.home import Home
from rookery.control.run_log import RunLog
from rookery.messages import ScaleActors


@pytest.mark.timeout(120)
def test_actors_that_do_not_wait_become_more_by_commands_with_a_reason(
    home: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autoscale, "WINDOW_S", 1.5)
    monkeypatch.setattr(autoscale, "SETTLE_S", 0.5)
    sizes = {"envs_per_actor": 1, "rollout_steps": 32, "max_count": 2}
    run = rookery.train(
        "rookery.testing.envs:PacedEnv",
        actors="auto",
        env={"step_s": 0.01},
        config={"actors": sizes},
        steps=1_200,  # 12 s of one actor
        home=home,
        quiet=True,
    )
    there = Home(home)
    log = RunLog(there, run.id)
    asked = [message for message in log.read() if isinstance(message, ScaleActors)]
    state = log.states[run.id]
    there.close()
    assert asked and asked[0].author == AUTHOR and asked[0].count == 2
    assert "actors wait " in asked[0].reason
    assert asked[0].id in state.answered and state.follows_learner
    assert {"actor-0", "actor-1"} <= state.workers.keys()
