"""Fresh episodes, also in environments that need not end."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery.envs import SOLO_SEAT
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.evaluation import episodes as module
from rookery.evaluation.episodes import play_episodes
from rookery.players.factory import PlayerFactory
from rookery.players.member import PolicyWeights


class Wandering(gymnasium.Env[Any, Any]):
    """Action 1 ends the episode, and nothing else does; a reward of 1 at each step."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, bool(action), False, {}


def no_weights(*_: object) -> PolicyWeights:
    raise AssertionError("scripts have none")


def play(player: str, episodes: int, slots: int) -> module.Episodes:
    env = GymnasiumEnvironment("test", slots, {}, Wandering)
    seat = env.spec.seats[SOLO_SEAT]
    member = PlayerFactory("test", no_weights).member(player, SOLO_SEAT, seat)
    return play_episodes(env, member, episodes, 3, np.random.default_rng(0))


@pytest.mark.timeout(60)
def test_an_episode_that_never_ends_is_cut_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 20)
    found = play("script:first-legal", episodes=5, slots=2)
    assert found.lengths.tolist() == [20] * 5 and found.returns.tolist() == [20.0] * 5
    assert found.summary()["cut"] == 5


def test_episodes_that_end_are_whole_and_as_many_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_STEPS", 500)
    found = play("script:random", episodes=7, slots=3)
    assert len(found.lengths) == 7 and found.cut == 0
    assert len(set(found.lengths.tolist())) > 1
