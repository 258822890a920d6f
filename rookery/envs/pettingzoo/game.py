"""One copy of a PettingZoo environment, played a step at a time.

PettingZoo has two interfaces: AEC, where one agent acts at a time, and Parallel, where all do. Both
become a `Game`, whose every step gives a `StepResult`: what each agent got, whose part ended, and
who is to act next. An agent's part ends when the library would hand it its last observation, so
that rewards which come to an agent already dead but not yet told are still its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import wrappers


@dataclass(frozen=True, slots=True)
class Sight:
    """What an agent sees, and what the environment adds to it."""

    observation: Any
    info: dict[str, Any]


@dataclass(slots=True)
class StepResult:
    """What one step of a game gave."""

    acting: list[str]  # who is to act now; nobody when the game is over
    rewards: dict[str, float] = field(default_factory=dict)
    terminated: list[str] = field(default_factory=list)
    truncated: dict[str, Sight] = field(default_factory=dict)  # with the final observation


class Game(Protocol):
    """A copy of an environment, whichever interface it has."""

    env: Any

    def reset(self, seed: int) -> StepResult: ...
    def step(self, actions: dict[str, Any]) -> StepResult: ...
    def see(self, agent: str) -> Sight: ...


def as_game(env: Any) -> Game:
    """The game of a PettingZoo environment."""
    return ParallelGame(env) if isinstance(env, ParallelEnv) else TurnGame(env)


class TurnGame:
    """An AEC environment: one agent acts at a time."""

    def __init__(self, env: AECEnv) -> None:
        self.env: Any = _peel(env)
        self._present: list[str] = []  # as the environment listed them after the last step
        self._ended: set[str] = set()

    def reset(self, seed: int) -> StepResult:
        self._present, self._ended = [], set()
        self.env.reset(seed=seed)
        return self._settle({})

    def step(self, actions: dict[str, Any]) -> StepResult:
        env = self.env
        env.step(actions[env.agent_selection])
        return self._settle(env.rewards)

    def see(self, agent: str) -> Sight:
        return Sight(self.env.observe(agent), self.env.infos.get(agent, {}))

    def _settle(self, rewards: dict[str, float]) -> StepResult:
        """Take the steps of the dead, which are None, until somebody alive is to act."""
        env = self.env
        # A dead agent's step deletes its entry and clears the others'.
        frame = StepResult([], {agent: reward for agent, reward in rewards.items() if reward})
        before = self._present
        while env.agents:
            agent = env.agent_selection
            if agent in self._ended:
                raise RuntimeError(f"agent {agent!r} is to act after its part has ended")
            if not (env.terminations[agent] or env.truncations[agent]):
                frame.acting.append(agent)
                break
            if env.terminations[agent]:
                frame.terminated.append(agent)
            else:
                frame.truncated[agent] = self.see(agent)
            self._ended.add(agent)
            env.step(None)
        if env.agents != before:
            self._present = list(env.agents)
            _add_vanished(frame, before, self._present, self._ended)
        return frame


class ParallelGame:
    """A Parallel environment: every agent that is alive acts at every step."""

    def __init__(self, env: ParallelEnv) -> None:
        self.env: Any = env
        self._observations: dict[str, Any] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._acting: list[str] = []
        self._ended: set[str] = set()

    def reset(self, seed: int) -> StepResult:
        self._observations, self._infos = self.env.reset(seed=seed)
        self._ended = set()
        self._acting = list(self.env.agents)
        return StepResult(self._acting)

    def step(self, actions: dict[str, Any]) -> StepResult:
        self._observations, rewards, terminations, truncations, self._infos = self.env.step(actions)
        ended = self._ended
        frame = StepResult(
            [], {agent: reward for agent, reward in rewards.items() if agent not in ended}
        )
        for agent, over in terminations.items():
            if agent in ended:
                continue
            if over:
                frame.terminated.append(agent)
            elif truncations[agent]:
                frame.truncated[agent] = self.see(agent)
        ended.update(frame.terminated, frame.truncated)
        present = self.env.agents
        _add_vanished(frame, self._acting, present, ended)
        frame.acting = self._acting = [agent for agent in present if agent not in ended]
        return frame

    def see(self, agent: str) -> Sight:
        return Sight(self._observations[agent], self._infos.get(agent, {}))


def _add_vanished(frame: StepResult, before: list[str], now: list[str], ended: set[str]) -> None:
    """Some environments drop an agent from their list without a word; its part ends there."""
    for agent in before:
        if agent not in now and agent not in ended:
            frame.terminated.append(agent)
            ended.add(agent)


# What these check of every action and every call is already sure here, and takes a third of a step.
_CHECKS = (
    wrappers.TerminateIllegalWrapper,
    wrappers.AssertOutOfBoundsWrapper,
    wrappers.ClipOutOfBoundsWrapper,
    wrappers.OrderEnforcingWrapper,
)


def _peel(env: AECEnv) -> AECEnv:
    while type(env) in _CHECKS:
        env = env.env
    return env
