"""Games of several seats whose every number is known beforehand, for tests of anything that plays.

Each works by name: `rookery.testing.games:DwindlingGame`. They need the `games` extra.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

Info = dict[str, Any]


class DwindlingGame(AECEnv):  # type: ignore[misc]
    """In turns: each move pays its number to whoever moves and a half to everybody else.

    Red has 2 moves to make, green 3 and blue 4; whoever has made its last is dead, but is told so
    only when its turn comes round, and is still paid until then. Green ends by truncation, the
    others by termination. No move may repeat the one before it.
    """

    metadata = {"name": "dwindling_v0", "is_parallelizable": False}  # noqa: RUF012 (PettingZoo's)

    def __init__(self, render_mode: str | None = None, fail_at: int | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode
        self.fail_at = fail_at  # raise in the move of that number, counted from 1
        self.possible_agents = ["red", "green", "blue"]
        self.lives = {"red": 2, "green": 3, "blue": 4}
        self.agents: list[str] = []
        self.choices = {agent: number + 2 for number, agent in enumerate(self.possible_agents)}
        self.action_spaces: dict[str, Any] = {
            a: spaces.Discrete(n) for a, n in self.choices.items()
        }
        self.observation_spaces: dict[str, Any] = {
            agent: spaces.Dict(
                {
                    "observation": spaces.Box(-1, 9, (2 + number,), np.float32),
                    "action_mask": spaces.MultiBinary(self.choices[agent]),
                }
            )
            for number, agent in enumerate(self.possible_agents)
        }

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Info] = {agent: {} for agent in self.agents}
        self.left = dict(self.lives)
        self.moves, self.last_move = 0, -1
        self.agent_selection = self.agents[0]

    def observe(self, agent: str) -> Any:
        told = [self.moves, self.last_move, self.left[agent], 1]
        size = self.observation_spaces[agent]["observation"].shape[0]
        legal = np.arange(self.choices[agent]) != self.last_move
        return {
            "observation": np.asarray(told[:size], np.float32),
            "action_mask": legal.astype(np.int8),
        }

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        following = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
        else:
            self._move(agent, int(action))
        self.agent_selection = following

    def _move(self, agent: str, action: int) -> None:
        if action == self.last_move:
            raise ValueError(f"move {action} repeats the one before it")
        self.moves += 1
        if self.moves == self.fail_at:
            raise RuntimeError(f"this game fails at move {self.moves}")
        self.last_move = action
        self._cumulative_rewards[agent] = 0.0
        self.rewards = {other: float(action) if other == agent else 0.5 for other in self.agents}
        self.left[agent] -= 1
        if not self.left[agent]:
            (self.truncations if agent == "green" else self.terminations)[agent] = True
        self._accumulate_rewards()


class ComingAndGoing(ParallelEnv):  # type: ignore[misc]
    """All at once: `early` leaves after step 3, `late` comes at step 2, `lasting` stays to the end.

    The end, after step 6, terminates `late` and truncates `lasting`. What they see is random but
    for the count of steps. `early` has a mask in its info that forbids the count's parity, and pays
    100 for a forbidden action; the others are paid by their actions' sums.
    """

    metadata = {"name": "coming_and_going_v0"}  # noqa: RUF012 (PettingZoo's)

    def __init__(
        self,
        render_mode: str | None = None,
        seeded: bool = True,
        fail_at: int | None = None,
        end: Literal["mixed", "vanish"] = "mixed",
    ) -> None:
        self.render_mode = render_mode
        self.seeded, self.fail_at, self.end = seeded, fail_at, end
        self.possible_agents = ["early", "late", "lasting"]
        self.agents: list[str] = []
        self.action_spaces = {
            "early": spaces.Discrete(4, start=1),
            "late": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "lasting": spaces.MultiDiscrete([3, 2]),
        }
        self.observation_spaces = {
            agent: spaces.Box(-np.inf, np.inf, (size,), np.float32)
            for agent, size in (("early", 2), ("late", 3), ("lasting", 4))
        }
        self.rng = np.random.default_rng(0)

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Info]]:
        self.rng = np.random.default_rng(seed if self.seeded else None)
        self.count = 0
        self.agents = ["early", "lasting"]
        return self._told(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        assert set(actions) == set(self.agents), f"actions {set(actions)} of {self.agents}"
        self.count += 1
        if self.count == self.fail_at:
            raise RuntimeError(f"this game fails at step {self.count}")
        present = [*self.agents, "late"] if self.count == 2 else self.agents
        rewards = {agent: self._pay(agent, actions.get(agent)) for agent in present}
        over = self.count == 6
        ends = {"early": self.count == 3, "late": over, "lasting": False}
        terminations = {agent: ends[agent] for agent in present}
        truncations = {agent: over and agent == "lasting" for agent in present}
        observations, infos = self._told(present)
        self.agents = [a for a in present if not (terminations[a] or truncations[a])]
        if self.end == "vanish" and over:  # without a word
            terminations.pop("late")
            truncations.pop("late")
        return observations, rewards, terminations, truncations, infos

    def _pay(self, agent: str, action: Any) -> float:
        if action is None:
            return 0.25  # for having come
        if agent == "early" and (action - 1) % 2 == (self.count - 1) % 2:
            return 100.0
        return float(np.sum(action))

    def _told(self, agents: list[str]) -> tuple[dict[str, Any], dict[str, Info]]:
        observations = {}
        for agent in agents:
            seen = self.rng.normal(size=self.observation_spaces[agent].shape).astype(np.float32)
            seen[0] = self.count
            observations[agent] = seen
        infos: dict[str, Info] = {agent: {} for agent in agents}
        if "early" in infos:
            infos["early"]["action_mask"] = np.arange(4) % 2 != self.count % 2
        return observations, infos
