"""A pursuit on a small grid: two red chase two blue. An environment of one's own with four seats.

    rookery train --config examples/red_blue.yaml
    python examples/red_blue.py                     one episode of random moves

All four move at once, by one cell or not at all, and see the same thing: themselves, their
team-mate, their two opponents (nearest first), the clock and their own colour. Red gains 1 for
each step that a red stands on a blue's cell or beside it, and blue loses as much.
"""

from typing import ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

SIZE = 7
MOVES = np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])
RED, BLUE = ("red_0", "red_1"), ("blue_0", "blue_1")


class RedBlue(ParallelEnv):
    metadata: ClassVar = {"name": "red_blue"}

    def __init__(self, steps: int = 25) -> None:
        self.possible_agents = [*RED, *BLUE]
        self.max_cycles = steps
        self.agents: list[str] = []
        self._rng = np.random.default_rng()
        self._time = 0
        self._cells: dict[str, np.ndarray] = {}

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (10,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(len(MOVES))

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents, self._time = list(self.possible_agents), 0
        self._cells = {agent: self._rng.integers(SIZE, size=2) for agent in self.agents}
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions):
        for agent, action in actions.items():
            self._cells[agent] = np.clip(self._cells[agent] + MOVES[action], 0, SIZE - 1)
        self._time += 1
        caught = sum(self._distance(red, blue) <= 1 for red in RED for blue in BLUE)
        rewards = {a: float(caught if a in RED else -caught) for a in self.agents}
        ended = dict.fromkeys(self.agents, False)
        over = dict.fromkeys(self.agents, self._time >= self.max_cycles)
        seen, infos = self._seen(), {agent: {} for agent in self.agents}
        if self._time >= self.max_cycles:
            self.agents = []
        return seen, rewards, ended, over, infos

    def _distance(self, one: str, other: str) -> int:
        return int(np.abs(self._cells[one] - self._cells[other]).sum())

    def _seen(self) -> dict[str, np.ndarray]:
        return {agent: self._seen_by(agent) for agent in self.agents}

    def _seen_by(self, agent: str) -> np.ndarray:
        own, others = (RED, BLUE) if agent in RED else (BLUE, RED)
        mate = next(each for each in own if each != agent)
        near, far = sorted(others, key=lambda other: self._distance(agent, other))
        places = np.concatenate([self._cells[each] for each in (agent, mate, near, far)])
        where = 2 * places / (SIZE - 1) - 1
        clock, colour = 2 * self._time / self.max_cycles - 1, 1 if agent in RED else -1
        return np.array([*where, clock, colour], np.float32)


if __name__ == "__main__":
    env = RedBlue()
    env.reset(seed=0)
    total = 0.0
    while env.agents:
        _, rewards, *_ = env.step({a: int(env._rng.integers(len(MOVES))) for a in env.agents})
        total += rewards["red_0"]
    print(f"random moves: red's return {total:.0f}")
