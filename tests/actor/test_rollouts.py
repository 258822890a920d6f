"""Whoever sits at a table, the fragments hold what its environment saw, and nobody cheats.

A `Watched` environment writes down every step beside the rollout: who had the turn, what was seen
and played, what was paid, whose part ended. What the rollout hands over is compared with that.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from pettingzoo import AECEnv, ParallelEnv

from rookery.actor.build import make_rollout
from rookery.actor.loop import Admitted, Played
from rookery.algorithms.networks import Network
from rookery.checkpoints.policies import RunFiles
from rookery.config.models import RunConfig
from rookery.config.reading import validate
from rookery.envs import CompiledStep, SeatView
from rookery.envs.registry import describe, register
from rookery.errors import InputError
from rookery.messages import ActorId, LeaguePools, SeatsChanged, WeightsVersion
from rookery.messages.fragment import Episode, Game
from rookery.messages.frame import Arrays
from rookery.messages.steps import LONG_AGO, named_arrays
from rookery.players import GameOver, PlayerAnswer, Question
from rookery.players.seat_map import Seating, SeatMap, reseated
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec
from rookery.worker.context import RunContext

DWINDLING = "rookery.testing.games:DwindlingGame"
COMING = "rookery.testing.games:ComingAndGoing"
TIC_TAC_TOE = "pettingzoo:tictactoe_v3"
PGX = "pgx:tic_tac_toe"

# --- games of this test --------------------------------------------------------------------------


class Chances(AECEnv):  # type: ignore[misc]
    """In turns, all left to chance: who is next, what is seen, legal and paid, and who drops out.

    After at most `longest` moves everybody still there is cut short, or all have lost.
    """

    metadata = {"name": "chances_v0", "is_parallelizable": False}  # noqa: RUF012 (PettingZoo's)

    def __init__(self, render_mode: str | None = None, longest: int = 9) -> None:
        super().__init__()
        self.render_mode, self.longest = render_mode, longest
        self.possible_agents = ["red_0", "red_1", "blue_0"]
        self.agents: list[str] = []
        space = {
            "observation": spaces.Box(-np.inf, np.inf, (3,), np.float32),
            "action_mask": spaces.MultiBinary(4),
        }
        self.observation_spaces = {a: spaces.Dict(space) for a in self.possible_agents}
        self.action_spaces = {a: spaces.Discrete(4) for a in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.left = int(self.rng.integers(1, self.longest + 1))
        self._draw()

    def _draw(self) -> None:
        self.seen = self.rng.normal(size=3).astype(np.float32)
        self.legal = self.rng.random(4) < 0.6
        self.legal[self.rng.integers(4)] = True
        if self.agents:
            self.agent_selection = self.agents[self.rng.integers(len(self.agents))]

    def observe(self, agent: str) -> Any:
        seen = self.seen + np.float32(self.possible_agents.index(agent))
        return {"observation": seen, "action_mask": self.legal.astype(np.int8)}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
        else:
            self._move(agent, int(action))
        self._draw()

    def _move(self, agent: str, action: int) -> None:
        assert self.legal[action], f"{action} of {self.legal}"
        self.left -= 1
        pays = self.rng.integers(-4, 5, len(self.agents)) / 4
        self.rewards = dict(zip(self.agents, pays.tolist(), strict=True))
        self.rewards[agent] += action
        self._cumulative_rewards[agent] = 0.0
        ends = self.truncations if self.rng.random() < 0.6 else self.terminations
        for other in self.agents if self.left <= 0 else [agent] * (self.rng.random() < 0.2):
            if not (self.terminations[other] or self.truncations[other]):
                ends[other] = True
        self._accumulate_rewards()


class Crowd(ParallelEnv):  # type: ignore[misc]
    """All at once, all left to chance: seats come late, drop out, and are cut short at the end."""

    metadata = {"name": "crowd_v0"}  # noqa: RUF012 (PettingZoo's)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.possible_agents = ["red_0", "red_1", "blue_0"]
        self.agents: list[str] = []
        box = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.observation_spaces = dict.fromkeys(self.possible_agents, box)
        self.action_spaces = {a: spaces.Discrete(3) for a in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.rng = np.random.default_rng(seed)
        first = int(self.rng.integers(3))
        self.agents = [
            a for i, a in enumerate(self.possible_agents) if i == first or self.rng.random() < 0.6
        ]
        self.coming = [a for a in self.possible_agents if a not in self.agents]
        self.left = int(self.rng.integers(1, 8))
        return self._seen(self.agents), {agent: {} for agent in self.agents}

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        return {agent: self.rng.normal(size=3).astype(np.float32) for agent in agents}

    def step(self, actions: dict[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        self.left -= 1
        come = [a for a in self.coming if self.rng.random() < 0.3]
        self.coming = [a for a in self.coming if a not in come]
        present = [*self.agents, *come]
        pays = {a: float(actions.get(a, 0.25) + self.rng.integers(-4, 5) / 4) for a in present}
        lost = {a: bool(self.rng.random() < 0.15) for a in present}
        cut = {a: self.left <= 0 and not lost[a] for a in present}
        self.agents = [a for a in present if not (lost[a] or cut[a])]
        return self._seen(present), pays, lost, cut, {a: {} for a in present}


register("test-chances", Chances)
register("test-crowd", Crowd)

# --- what the environment saw --------------------------------------------------------------------


@dataclass
class Step:
    """One step of an environment; arrays lead with (slots, seats) unless it says otherwise."""

    fragment: int
    turn: np.ndarray
    seen: list[Arrays]  # by seat, led by slots
    mask: list[np.ndarray | None]
    actions: list[np.ndarray]
    moved: np.ndarray  # (slots,)
    sitting: list[list[str]]  # names of the players
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    reset: np.ndarray  # (slots,)
    turn_after: np.ndarray
    seen_after: list[Arrays]


class Watched:
    """A batched environment that writes down all that happens in it."""

    def __init__(self, env: Any, table: Any) -> None:
        self.env, self.table = env, table
        self.spec, self.slots = env.spec, env.slots
        self.steps: list[Step] = []
        self.fragment = 0

    def reset(self, seed: int) -> dict[str, SeatView]:
        self.views: dict[str, SeatView] = self.env.reset(seed)
        return dict(self.views)

    def step(
        self, actions: dict[str, np.ndarray], advance: np.ndarray | None = None
    ) -> dict[str, SeatView]:
        before = self.views.values()
        members = self.table.lineup.members
        names = [[members[n].name for n in row] for row in self.table.sitting.tolist()]
        sent = [np.array(actions[seat]) for seat in self.views]
        turn = self._turn()
        self.views = self.env.step(actions, *(() if advance is None else (advance,)))
        after = self.views.values()
        self.steps.append(
            Step(
                self.fragment,
                turn,
                [v.observation for v in before],
                [v.mask for v in before],
                sent,
                np.ones(self.slots, bool) if advance is None else advance.copy(),
                names,
                np.stack([v.reward for v in after], 1),
                np.stack([v.terminated for v in after], 1),
                np.stack([v.truncated for v in after], 1),
                next(iter(after)).reset,
                self._turn(),
                [v.observation for v in after],
            )
        )
        return dict(self.views)

    def _turn(self) -> np.ndarray:
        return np.stack([np.array(v.turn) for v in self.views.values()], 1)

    def save(self) -> Arrays:
        return self.env.save()  # type: ignore[no-any-return]

    def restore(self, state: Arrays) -> dict[str, SeatView]:
        self.views = self.env.restore(state)
        return dict(self.views)

    def close(self) -> None:
        self.env.close()


class WatchedCompiled:
    """The same for a compiled one: the log is a part of its state, an entry for every step."""

    def __init__(self, env: Any, capacity: int) -> None:
        self.env, self.spec, self.capacity = env, env.spec, capacity

    def reset(self, key: Any) -> Any:
        import jax
        import jax.numpy as jnp

        state, told = self.env.reset(key)
        entry = self._entry(told, jnp.zeros((), jnp.int32), told)
        log = jax.tree.map(lambda x: jnp.zeros((self.capacity, *x.shape), x.dtype), entry)
        return (state, told, log, jnp.zeros((), jnp.int32)), told

    def step(self, key: Any, state: Any, action: Any) -> Any:
        import jax

        inner, before, log, count = state
        inner, after = self.env.step(key, inner, action)
        entry = self._entry(before, action, after)
        log = jax.tree.map(lambda rows, x: rows.at[count].set(x), log, entry)
        return (inner, after, log, count + 1), after

    @staticmethod
    def _entry(before: Any, action: Any, after: Any) -> dict[str, Any]:
        return {
            "seen": before.observation,
            "mask": before.mask,
            "seat": before.seat,
            "playing": ~(before.terminated | before.truncated),
            "action": action,
            "reward": after.reward,
            "terminated": after.terminated,
            "reset": after.reset,
            "seen_after": after.observation,
            "seat_after": after.seat,
        }

    def steps(self, rollout: Any, sitting: list[list[list[list[str]]]]) -> list[Step]:
        """Everything that happened; `sitting` by fragment, step, slot and seat."""
        _, _, log, count = rollout._carry[0]
        log = {k: _numpy(v) for k, v in log.items()}
        seats, found = np.arange(len(self.spec.seats)), []
        for t in range(int(count[0])):
            fragment, at = divmod(t, rollout.steps)
            row = {k: _at(v, t) for k, v in log.items()}
            turn = (row["seat"][:, None] == seats) & row["playing"][:, None]
            ended = row["terminated"][:, None] & np.ones(len(seats), bool)
            turn_after = (row["seat_after"][:, None] == seats) & ~ended
            found.append(
                Step(
                    fragment,
                    turn,
                    [row["seen"]] * len(seats),
                    [row["mask"]] * len(seats),
                    [row["action"]] * len(seats),
                    np.ones(rollout.slots, bool),
                    sitting[fragment][at],
                    row["reward"],
                    ended,
                    np.zeros_like(ended),
                    row["reset"],
                    turn_after,
                    [row["seen_after"]] * len(seats),
                )
            )
        return found


def _numpy(tree: Any) -> Any:
    return (
        {k: np.asarray(v) for k, v in tree.items()}
        if isinstance(tree, dict)
        else (np.asarray(tree))
    )


def _at(tree: Any, time: int) -> Any:
    """The slots' entries of one step."""
    return {k: v[:, time] for k, v in tree.items()} if isinstance(tree, dict) else tree[:, time]


@dataclass
class Turn:
    """A decision, and all that came of it."""

    fragment: int
    seen: Arrays
    mask: np.ndarray | None
    action: np.ndarray  # as the environment got it
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    complete: bool = False  # its seat had another turn, or its part ended


@dataclass
class Part:
    """What one seat did in one game."""

    slot: int
    seat: int
    player: str
    turns: list[Turn] = field(default_factory=list)
    early: float = 0.0  # paid before its first turn
    total: float = 0.0
    ends: int = 0  # how often it was told that its part is over


@dataclass
class Match:
    """One game of one slot, as the environment saw it."""

    players: tuple[str, ...]
    parts: list[Part]
    length: int = 0
    sat: set[tuple[str, ...]] = field(default_factory=set)  # every seating that was seen in it
    closed: int | None = None  # in which fragment


def matches_of(steps: list[Step]) -> list[Match]:
    found: list[Match] = []
    current: dict[int, Match] = {}
    for step in steps:
        for slot in np.flatnonzero(step.moved).tolist():
            names = tuple(step.sitting[slot])
            if slot not in current:
                parts = [Part(slot, seat, name) for seat, name in enumerate(names)]
                current[slot] = Match(names, parts)
                found.append(current[slot])
            match = current[slot]
            match.sat.add(names)
            if step.reset[slot]:
                assert not step.reward[slot].any()
                match.closed = step.fragment
                del current[slot]
                continue
            match.length += 1
            for part in match.parts:
                _fold(step, slot, part)
    for slot, match in current.items():
        for part in match.parts:
            if part.turns and steps[-1].turn_after[slot, part.seat]:
                part.turns[-1].complete = True
    return found


def _fold(step: Step, slot: int, part: Part) -> None:
    seat = part.seat
    if step.turn[slot, seat]:
        if part.turns:
            part.turns[-1].complete = True
        mask = step.mask[seat]
        seen = {leaf: x[slot] for leaf, x in step.seen[seat].items()}
        action = step.actions[seat][slot]
        legal = None if mask is None else mask[slot]
        part.turns.append(Turn(step.fragment, seen, legal, action))
        if len(part.turns) == 1:
            part.turns[0].reward = part.early
    reward = float(step.reward[slot, seat])
    part.total += reward
    if part.turns:
        part.turns[-1].reward += reward
    else:
        part.early += reward
    terminated, truncated = bool(step.terminated[slot, seat]), bool(step.truncated[slot, seat])
    if terminated or truncated:
        part.ends += 1
        if part.turns:
            last = part.turns[-1]
            last.terminated, last.truncated, last.complete = terminated, truncated, True


# --- a play --------------------------------------------------------------------------------------

spec_of = cache(describe)


@dataclass(frozen=True)
class Case:
    """A rollout with its seat map."""

    game: str
    seats: dict[str, Any]
    rows: int = 12
    slots: int = 3
    fragments: int = 4
    seed: int = 0
    deferred: bool = False  # script:random takes its time
    forgets: bool = False  # the league drops its oldest snapshots
    kwargs: dict[str, Any] = field(default_factory=dict)


class Weights:
    """What the policies play with, other weights for every version, and what the league holds."""

    def __init__(self, config: RunConfig, seating: Seating) -> None:
        self.networks = {p: Network(seating.spaces[p], config.network) for p in seating.spaces}

    def of(self, policy: str, number: int) -> Arrays:
        network = self.networks[policy]
        rng = np.random.default_rng([number, sum(policy.encode())])
        arrays = network.acting_arrays(network.init(rng), network.init_stats())
        return {**arrays, "pi.out.w": arrays["pi.out.w"] * 100}  # far from even

    def load(self, file: str) -> Arrays:
        """A snapshot that nearly always plays the first legal action of an order of its own."""
        name = file.removeprefix("file of ")
        policy = name.partition("@")[0]
        arrays = self.of(policy, 0)
        liking = order_of(name, len(arrays["pi.out.b"])).astype(np.float32) * 60
        return {**arrays, "pi.out.w": arrays["pi.out.w"] * 0, "pi.out.b": liking}

    def log_prob(self, policy: str, number: int, turn: Turn, stored: np.ndarray) -> float:
        network, arrays = self.networks[policy], self.of(policy, number)
        features = network.encode(
            np, arrays, arrays, {leaf: x[None] for leaf, x in turn.seen.items()}
        )
        theta = network.policy(np, arrays, features)
        mask = None if turn.mask is None else turn.mask[None]
        found = network.distribution.log_prob(
            np, theta, arrays.get("log_std"), mask, np.asarray(stored)[None]
        )
        return float(found[0])


def order_of(name: str, actions: int) -> np.ndarray:
    return np.random.default_rng(int(name.partition("@")[2])).permutation(actions)


def news(weights: Weights, fragment: int, forgets: bool = False) -> Admitted:
    """Each fragment has other weights and another league, which may forget its oldest."""
    number = 3 * fragment
    pools = {
        p: {f"{p}@{fragment}": 0.5, f"{p}@{fragment + 1}": 1.0, f"{p}@{fragment + 2}": 0.0}
        for p in weights.networks
    }
    kept = range(fragment if forgets else 0, fragment + 3)
    files = {f"{p}@{i}": f"file of {p}@{i}" for p in pools for i in kept}
    return Admitted(
        WeightsVersion(1, number),
        {p: weights.of(p, number) for p in weights.networks},
        LeaguePools(pools=pools, rated=(), files=files),
    )


class DeferredRandom:
    """Any legal action, in its own time."""

    kind = "script"

    def __init__(self, choices: int) -> None:
        self._choices, self._pool, self._random = choices, ThreadPoolExecutor(2), random.Random(1)

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        legal = range(self._choices) if question.mask is None else np.flatnonzero(question.mask)
        action, wait = int(self._random.choice(legal)), self._random.random() * 0.002

        def answer() -> PlayerAnswer:
            time.sleep(wait)
            return PlayerAnswer(action)

        return self._pool.submit(answer)

    def game_over(self, over: GameOver) -> None:
        pass

    def close(self) -> None:
        self._pool.shutdown()


def seating_of(case: Case) -> tuple[RunConfig, Seating]:
    texts = {text for sitter in case.seats.values() for text in _texts(sitter)}
    held = {t.removeprefix("league:") for t in texts if ":" not in t or "league:" in t}
    live = sorted(t for t in texts if ":" not in t)
    network = {"hidden": [8], "channels": [4]}
    config = validate(
        {
            "environment": {"id": case.game, "kwargs": case.kwargs},
            "algorithm": {"kind": "impala", "minibatches": 1},
            "network": network,
            "seats": case.seats,
            "policies": {p: {"network": network} for p in sorted(held)},
            "train": live,
            "actors": {
                "envs_per_actor": case.slots,
                "rollout_steps": case.rows,
                "opponents_per_actor": 2,
            },
            "league": {"games_per_draw": 2, "rating_every": 0},
            "seed": case.seed,
        }
    )
    spec = describe(case.game, case.kwargs) if case.kwargs else spec_of(case.game)
    return config, Seating.of(config, spec)


def _texts(sitter: Any) -> list[str]:
    if isinstance(sitter, str):
        return [sitter]
    return [o["player"] if "player" in o else f"league:{o['league']}" for o in sitter["draw"]]


class Play:
    """A rollout, what it handed over and what its environment saw."""

    def __init__(self, case: Case, seating: Seating | None = None) -> None:
        self.case = case
        self.config, made = seating_of(case)
        self.seating = seating or made
        self.spec: EnvironmentSpec = self.seating.spec
        self.weights = Weights(self.config, self.seating)
        nowhere = RunFiles("r1", self.config, self.spec, "file:nowhere", "file:nowhere")
        nobody: Any = None  # neither a bus nor a log is needed to play
        context = RunContext(nowhere, self.seating, *[nobody] * 7)
        actor = ActorId(0, 0)
        self.rollout: Any = make_rollout(context, actor, lambda doing: None)
        self.played: list[Played] = []
        self.deferred: list[DeferredRandom] = []
        self._sitting: list[Any] = []
        self.compiled = not hasattr(self.rollout, "table")
        self.lineup = self.rollout.lineup if self.compiled else self.rollout.table.lineup
        self.lineup._load = self.weights.load
        if self.compiled:
            self._watch_compiled()
        else:
            self.watched: Any = Watched(self.rollout.table.env, self.rollout.table)
            self.rollout.table.env = self.watched
        for member in self.lineup.members if case.deferred else ():
            if member.text == "script:random":
                member.player = DeferredRandom(4 if "chances" in case.game else 3)
                self.deferred.append(member.player)

    def _watch_compiled(self) -> None:
        self.watched = WatchedCompiled(self.rollout.env, 256)
        self.rollout.env = self.watched
        scan = self.rollout._scan

        def seen(*args: Any) -> Any:
            carry, rows = scan(*args)
            names = np.array([m.name for m in self.lineup.members], object)
            self._sitting.append(names[np.asarray(rows["sitting"])].tolist())
            return carry, rows

        self.rollout._scan = seen

    def go(self, fragments: int) -> Play:
        for _ in range(fragments):
            fragment = len(self.played)
            if not self.compiled:
                self.watched.fragment = fragment
            self.played.append(self.rollout(news(self.weights, fragment, self.case.forgets)))
        return self

    def close(self) -> None:
        for player in self.deferred:
            player.close()

    @property
    def steps(self) -> list[Step]:
        if self.compiled:
            return self.watched.steps(self.rollout, self._sitting)
        return self.watched.steps  # type: ignore[no-any-return]

    @property
    def learning(self) -> tuple[str, ...]:
        return self.config.learning


@dataclass
class Row:
    """A valid row of a fragment."""

    fragment: int
    seen: Arrays
    mask: np.ndarray | None
    action: np.ndarray
    reward: float
    terminated: bool
    truncated: bool
    log_prob: float
    number: int  # of the weights that acted
    after: Arrays  # the row below it


def rows_of(play: Play, policy: str) -> dict[tuple[int, int], list[Row]]:
    """A policy's valid rows by slot and seat, in order."""
    layout = play.rollout.layouts[policy]
    found: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for fragment, played in enumerate(play.played):
        e = played.steps[policy]
        for lane, t in np.argwhere(e.valid.T).tolist():
            slot = lane // len(layout.seats) if layout.together else lane
            found[slot, int(e.seat[t, lane])].append(
                Row(
                    fragment,
                    {leaf: x[t, lane] for leaf, x in e.observation.items()},
                    None if e.mask is None else e.mask[t, lane],
                    e.action[t, lane],
                    float(e.reward[t, lane]),
                    bool(e.terminated[t, lane]),
                    bool(e.truncated[t, lane]),
                    float(e.log_prob[t, lane]),
                    3 * fragment - int(e.behind[t, lane]),
                    {leaf: x[t + 1, lane] for leaf, x in e.observation.items()},
                )
            )
    return found


@dataclass
class Evidence:
    """A finished play, both sides of it."""

    play: Play
    steps: list[Step]
    matches: list[Match]
    rows: dict[str, dict[tuple[int, int], list[Row]]]

    def parts(self, policy: str) -> dict[tuple[int, int], list[Part]]:
        found: dict[tuple[int, int], list[Part]] = defaultdict(list)
        for match in self.matches:
            for part in match.parts:
                if part.player == policy and part.turns:
                    found[part.slot, part.seat].append(part)
        return found

    def aligned(self) -> Iterator[tuple[str, Part, list[tuple[Turn, Row]]]]:
        """Every part of a learning policy with the rows that are there of it."""
        for policy in self.play.learning:
            for at, parts in self.parts(policy).items():
                rows = iter(self.rows[policy].get(at, ()))
                for part in parts:
                    complete = [turn for turn in part.turns if turn.complete]
                    yield policy, part, [(turn, next(rows)) for turn in complete]


def evidence(case: Case) -> Evidence:
    play = Play(case)
    try:
        play.go(case.fragments)
        steps = play.steps
    finally:
        play.close()
    rows = {policy: rows_of(play, policy) for policy in play.learning}
    return Evidence(play, steps, matches_of(steps), rows)


# --- seat maps -----------------------------------------------------------------------------------

ALIKE = ("test-chances", "test-crowd", TIC_TAC_TOE)
COMMON = ("a", "b", "script:random", "script:first-legal", "league:a", "league:b")


def drawn(players: list[str]) -> st.SearchStrategy[Any]:
    """One player alone, or a draw of several by weight."""
    weights = st.lists(
        st.sampled_from((0.25, 1.0, 3.0)), min_size=len(players), max_size=len(players)
    )
    if len(players) == 1:
        return st.just(players[0])
    return weights.map(
        lambda found: {
            "draw": [_option(p, w) for p, w in zip(players, found, strict=True)],
        }
    )


def _option(player: str, weight: float) -> dict[str, Any]:
    kind, _, name = player.partition(":")
    return (
        {"league": name, "weight": weight}
        if kind == "league"
        else ({"player": player, "weight": weight})
    )


@st.composite
def alike_seats(draw: Any, game: str) -> dict[str, Any]:
    """Any player in any seat; the first always may be a policy that learns."""
    seats = list(spec_of(game).seats)
    team = seats[0][:-1]
    others = [seat for seat in seats if not seat.startswith(team)]
    patterns = draw(st.sampled_from([["*"], [seats[0], "*"], seats, [f"{team}*", *others]]))
    found = {}
    for number, pattern in enumerate(patterns):
        players = draw(st.lists(st.sampled_from(COMMON), min_size=1, max_size=3, unique=True))
        if not number and not {"a", "b"} & set(players):
            players = ["a", *players]
        found[pattern] = draw(drawn(players))
    return found


@st.composite
def unlike_seats(draw: Any, game: str) -> dict[str, Any]:
    """Seats whose spaces differ share no player."""
    seats = draw(st.permutations(list(spec_of(game).seats)))
    rest = draw(st.permutations(["b", "script:random", "league:a", "league:b"]))
    # a league plays in the seat of its policy
    pools = [["a"], [rest[0]], [rest[1]]] if "league" not in "".join(rest[:2]) else [["a"]]
    if len(pools) == 1:
        pools = [["a", *(["league:a"] * draw(st.booleans()))], ["b", "league:b"]]
        pools.append(["script:random"])
    return {seat: draw(drawn(players)) for seat, players in zip(seats, pools, strict=True)}


@st.composite
def cases(draw: Any) -> Case:
    game = draw(st.sampled_from((*ALIKE, DWINDLING, COMING)))
    seats = draw(alike_seats(game) if game in ALIKE else unlike_seats(game))
    return Case(
        game,
        seats,
        rows=draw(st.integers(7, 20)),
        slots=draw(st.integers(1, 3)),
        fragments=draw(st.integers(2, 6)),
        seed=draw(st.integers(0, 2**16)),
        deferred=draw(st.booleans()) and game in ("test-chances", "test-crowd"),
        forgets=draw(st.booleans()),
    )


some = settings(max_examples=15, deadline=None)
plays = cases().map(evidence)

SHARES = {"a": 0.5, "b": 0.15, "script:random": 0.35, "script:first-legal": 0.0}
BY_SHARES = {"*": {"draw": [_option(player, 20 * share) for player, share in SHARES.items()]}}
COMPILED = {
    "shares": Case(PGX, BY_SHARES, rows=14, slots=32, fragments=8),
    "league": Case(
        PGX,
        {
            "player_0": {"draw": [_option("a", 1), _option("league:a", 2), _option("b", 1)]},
            "*": {"draw": [_option(p, 1) for p in ("a", "league:a", "script:first-legal")]},
        },
        rows=14,
        slots=4,
        fragments=6,
        forgets=True,
    ),
}


@cache
def compiled_evidence(name: str) -> Evidence:
    found = evidence(COMPILED[name])
    assert found.play.compiled
    return found


# --- the properties ------------------------------------------------------------------------------


def check_actions(found: Evidence) -> None:
    """Every action is legal, and one that the player who sits there would choose."""
    for match in found.matches:
        for part in match.parts:
            for turn in part.turns:
                if turn.mask is not None and turn.action.ndim == 0:
                    assert turn.mask[turn.action]
                if part.player == "script:first-legal":
                    legal = np.ones(1, bool) if turn.mask is None else turn.mask
                    assert turn.action == np.flatnonzero(legal)[0]
                if "@" in part.player and turn.action.ndim == 0:
                    width = found.play.spec.seats[list(found.play.spec.seats)[part.seat]].action.n
                    liking = order_of(part.player, width)
                    legal = np.ones(width, bool) if turn.mask is None else turn.mask
                    assert turn.action == np.where(legal, liking, -1).argmax(), part.player


def check_seating(found: Evidence) -> None:
    """Nobody changes in a game, and whoever sits there may."""
    seats = found.play.spec.seats
    for match in found.matches:
        assert match.sat == {match.players}
        for seat, player in zip(seats, match.players, strict=True):
            policy, at, _ = player.partition("@")
            may = found.play.seating.map.options_of(seat)
            assert (f"league:{policy}" if at else player) in may


def check_rows(found: Evidence) -> None:
    """Rows and held steps are the turns that the environment saw, in order, and nothing else."""
    for policy in found.play.learning:
        network = found.play.weights.networks[policy]
        held = found.play.rollout.held[policy]
        waiting = Counter(zip(held.slot.tolist(), held.seat.tolist(), strict=True))
        parts = found.parts(policy)
        assert set(found.rows[policy]) | set(waiting) <= set(parts)
        for at, mine in parts.items():
            turns = [turn for part in mine for turn in part.turns]
            rows = found.rows[policy].get(at, [])
            assert len(rows) + waiting[at] == len(turns)
            complete = [turn for turn in turns if turn.complete]
            assert len(complete) == len(rows)
            for turn, row in zip(complete, rows, strict=True):
                assert _bytes(turn.seen) == _bytes(row.seen)
                sent = network.distribution.to_environment(np, row.action[None])[0]
                np.testing.assert_array_equal(sent, turn.action)
                assert row.number == 3 * turn.fragment  # behind by what it says
                if turn.mask is not None:
                    np.testing.assert_array_equal(row.mask, turn.mask)
        for index, at in enumerate(zip(held.slot.tolist(), held.seat.tolist(), strict=True)):
            last = parts[at][-1].turns[-1]
            assert _bytes({n: x[index] for n, x in held.observation.items()}) == _bytes(last.seen)
            assert abs(held.earlier[index] - last.reward) < 1e-5


def _bytes(seen: Arrays) -> dict[str, bytes]:
    return {leaf: np.asarray(x).tobytes() for leaf, x in seen.items()}


def check_rewards(found: Evidence) -> None:
    """Each row has what came until the seat's next turn; an ended part adds up to its total."""
    for _, part, pairs in found.aligned():
        for turn, row in pairs:
            assert abs(turn.reward - row.reward) < 1e-5
        if part.ends:
            assert abs(sum(row.reward for _, row in pairs) - part.total) < 1e-4


def check_ends(found: Evidence) -> None:
    """A part's last row ends it, as it ended, and no other; an ended game leaves none open."""
    for match in found.matches:
        for part in match.parts:
            assert part.ends == 1 if match.closed is not None and part.turns else part.ends <= 1
    for _, part, pairs in found.aligned():
        ends = [row.terminated or row.truncated for _, row in pairs]
        assert not any(ends[: len(part.turns) - 1])
        if part.ends:
            assert len(pairs) == len(part.turns) and ends[-1]
        for turn, row in pairs:
            assert (row.terminated, row.truncated) == (turn.terminated, turn.truncated)


def check_following(found: Evidence) -> None:
    """Below a row stands what the same seat saw next, or last if it was cut short."""
    finals = final_sights(found)
    for _, part, pairs in found.aligned():
        for index, (turn, row) in enumerate(pairs):
            if turn.terminated:
                continue
            if turn.truncated:
                expected = finals[id(turn)]
            elif index + 1 < len(part.turns):
                expected = part.turns[index + 1].seen
            else:  # it is to act now
                last = found.steps[-1].seen_after[part.seat]
                expected = {leaf: x[part.slot] for leaf, x in last.items()}
            assert _bytes(row.after) == _bytes(expected)


def final_sights(found: Evidence) -> dict[int, Arrays]:
    """What a seat saw last when it was cut short, by its last turn."""
    seen: dict[int, Arrays] = {}
    current: dict[tuple[int, int], Iterator[Part]] = {}
    parts: dict[tuple[int, int], list[Part]] = defaultdict(list)
    for match in found.matches:
        for part in match.parts:
            parts[part.slot, part.seat].append(part)
    for at, mine in parts.items():
        current[at] = (part for part in mine if part.ends)
    for step in found.steps:
        for slot, seat in np.argwhere(step.terminated | step.truncated).tolist():
            part = next(current[slot, seat])
            if part.turns and step.truncated[slot, seat]:
                sight = {leaf: x[slot] for leaf, x in step.seen_after[seat].items()}
                seen[id(part.turns[-1])] = sight
    return seen


def check_log_probs(found: Evidence, within: float) -> None:
    for policy, _, pairs in found.aligned():
        for turn, row in pairs:
            expected = found.play.weights.log_prob(policy, row.number, turn, row.action)
            assert abs(row.log_prob - expected) < within


def check_games(found: Evidence) -> None:
    """Games between different players, and every policy's episodes, as the environment saw them."""
    seats = list(found.play.spec.seats)
    for fragment, played in enumerate(found.play.played):
        closed = [match for match in found.matches if match.closed == fragment]
        expected = [
            Game(match.players, tuple(part.total for part in match.parts), match.length)
            for match in closed
            if len(set(match.players)) > 1
        ]
        assert _rounded(played.games) == _rounded(expected)
        for policy in found.play.learning:
            ended = [
                Episode(seats[part.seat], part.total, match.length)
                for match in closed
                for part in match.parts
                if part.player == policy
            ]
            assert _rounded(played.episodes[policy]) == _rounded(ended)


def _rounded(found: Any) -> list[Any]:
    if all(isinstance(one, Game) for one in found):
        return sorted(
            (g.players, tuple(round(x, 4) + 0.0 for x in g.totals), g.length, g.missed)
            for g in found
        )
    return sorted((e.seat, round(e.total_reward, 4) + 0.0, e.length) for e in found)


@some
@given(plays)
def test_only_legal_actions_are_sent_and_they_are_of_whoever_sits_there(found: Evidence) -> None:
    check_actions(found)


@some
@given(plays)
def test_nobody_changes_in_the_middle_of_a_game(found: Evidence) -> None:
    check_seating(found)


@some
@given(plays)
def test_rows_and_held_steps_are_the_turns_that_the_environment_saw(found: Evidence) -> None:
    check_rows(found)


@some
@given(plays)
def test_rows_of_a_seat_add_up_to_what_the_environment_gave_it(found: Evidence) -> None:
    check_rewards(found)


@some
@given(plays)
def test_every_part_that_ended_is_whole_and_ends_once(found: Evidence) -> None:
    check_ends(found)


@some
@given(plays)
def test_below_a_row_is_what_the_same_seat_saw_next(found: Evidence) -> None:
    check_following(found)


@some
@given(plays)
def test_log_probs_are_those_of_the_weights_that_acted(found: Evidence) -> None:
    check_log_probs(found, 1e-5)


@some
@given(plays)
def test_games_and_episodes_are_as_the_environment_saw_them(found: Evidence) -> None:
    check_games(found)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["shares", "league"])
def test_a_compiled_table_plays_by_the_same_rules(name: str) -> None:
    found = compiled_evidence(name)
    for check in (
        check_actions,
        check_seating,
        check_rows,
        check_rewards,
        check_ends,
        check_following,
        check_games,
    ):
        check(found)
    check_log_probs(found, 1e-4)


def test_the_plays_hold_every_case_that_matters() -> None:
    """Or the properties above would say little."""
    seen: Counter[str] = Counter()

    @settings(max_examples=40, deadline=None)
    @given(plays)
    def look(found: Evidence) -> None:
        seen["league"] += any("@" in p for m in found.matches for p in m.players)
        seen["behind"] += any(r.number < 3 * r.fragment for *_, q in found.aligned() for _, r in q)
        seen["waited"] += any(not step.moved.all() for step in found.steps)
        seen["held"] += any(len(held) for held in found.play.rollout.held.values())
        for match in found.matches:
            over = match.closed is not None
            seen["never acted"] += over and any(not part.turns for part in match.parts)
            seen["alone"] += over and len(set(match.players)) == 1
            seen["over fragments"] += len({t.fragment for p in match.parts for t in p.turns}) > 1
            for part in match.parts:
                seen["paid early"] += bool(part.turns and part.early)
                seen["cut short"] += any(turn.truncated for turn in part.turns)
                seen["left early"] += bool(part.turns and part.ends and not over)

    look()
    expected = ["league", "behind", "waited", "held", "alone"]
    expected += ["never acted", "over fragments", "paid early", "cut short", "left early"]
    assert all(seen[name] for name in expected), seen


# --- draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", ["test-chances", pytest.param(PGX, marks=pytest.mark.soak)])
def test_players_are_drawn_by_their_weights(game: str) -> None:
    if game == PGX:
        found = compiled_evidence("shares")
    else:
        found = evidence(Case(game, BY_SHARES, 16, 16, 12, kwargs={"longest": 3}))

    games = [match for match in found.matches if match.closed is not None]
    assert len(games) > 200
    for seat in range(len(found.play.spec.seats)):
        met = Counter(match.players[seat] for match in games)
        for player, share in SHARES.items():
            sigma = (share * (1 - share) / len(games)) ** 0.5
            assert abs(met[player] / len(games) - share) <= 4 * sigma, (seat, player, met)
    pairs = Counter(match.players[:2] for match in games)  # seats are drawn apart
    for (first, second), count in pairs.items():
        share = SHARES[first] * SHARES[second]
        sigma = (share * (1 - share) / len(games)) ** 0.5
        assert abs(count / len(games) - share) <= 4 * sigma, (first, second, pairs)


# --- saved and restored --------------------------------------------------------------------------

ALL = {"draw": [_option(p, 1) for p in ("a", "b", "league:a", "script:random")]}


@pytest.mark.parametrize(
    ("game", "seats"),
    [
        (DWINDLING, {"red": "a", "green": {"draw": [_option("b", 1), _option("league:b", 1)]}}),
        (COMING, {"early": "a", "late": {"draw": [_option("b", 1), _option("league:b", 1)]}}),
        ("test-chances", {"*": ALL}),
        ("test-crowd", {"*": ALL}),
        (TIC_TAC_TOE, {"*": ALL}),
        pytest.param(PGX, {"*": ALL}, marks=pytest.mark.soak),
    ],
)
def test_a_restored_rollout_goes_on_bit_for_bit(game: str, seats: dict[str, Any]) -> None:
    check_restored(game, {"*": "script:random", **seats})


def test_a_snapshot_that_the_league_dropped_is_still_there_after_a_restore() -> None:
    """It sits in a game that is not over."""
    check_restored(TIC_TAC_TOE, {"player_1": "a", "player_2": "league:a"}, forgets=True)


def check_restored(game: str, seats: dict[str, Any], forgets: bool = False) -> None:
    first = Play(Case(game, seats, 12, 3, seed=1, forgets=forgets)).go(2)
    while forgets and not _gone(first) and len(first.played) < 20:
        first.go(1)
    assert not forgets or _gone(first)
    before = len(first.played)
    assert first.rollout.can_save
    state = {name: array.copy() for name, array in first.rollout.save().items()}
    assert "cast/json" in state, "by the name that runs made before have it"
    first.go(3)

    second = Play(Case(game, seats, 12, 3, seed=2, forgets=forgets))
    second.played = first.played[:before]
    second.rollout.restore(state)
    second.go(3)

    for mine, theirs in zip(first.played, second.played, strict=True):
        assert mine.games == theirs.games
        assert mine.episodes == theirs.episodes
        for policy, steps in mine.steps.items():
            assert _bytes(dict(named_arrays(steps))) == _bytes(
                dict(named_arrays(theirs.steps[policy]))
            )
    for policy, held in first.rollout.held.items():
        assert _bytes(held.arrays()) == _bytes(second.rollout.held[policy].arrays())
    assert any(played.games for played in first.played[before:])
    assert _bytes(first.rollout.save()) == _bytes(second.rollout.save())


def _gone(play: Play) -> set[str]:
    """Snapshots at the tables that the league no longer has."""
    pools = news(play.weights, len(play.played) - 1, play.case.forgets).pools
    assert pools is not None
    return {m.name for m in play.lineup.members if "@" in m.name} - set(pools.files)


# --- a function in place of rules ----------------------------------------------------------------


def alternate(seat: str, episode: int) -> str:
    return ("a", "b", "script:random")[(int(seat[-1]) + episode) % 3]


def test_a_function_seats_every_episode() -> None:
    case = Case(TIC_TAC_TOE, {"player_1": ALL, "player_2": "b"}, 20, 2, 6)
    config, made = seating_of(case)
    seating = Seating.of(config, made.spec, alternate)
    play = Play(case, seating).go(case.fragments)
    steps = play.steps
    matches = matches_of(steps)
    begun = play.lineup.episode
    assert begun == len(matches) > 10
    seen = Counter(match.players for match in matches)
    expected = Counter(
        tuple(alternate(seat, episode) for seat in made.spec.seats) for episode in range(begun)
    )
    assert seen == expected
    found = Evidence(play, steps, matches, {p: rows_of(play, p) for p in play.learning})
    for check in (check_seating, check_rows, check_rewards, check_ends, check_games):
        check(found)


def _raises(seat: str, episode: int) -> str:
    raise KeyError("no such\nthing")


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (_raises, "seat_map raised KeyError for seat 'x', episode 0"),
        (lambda seat, episode: None, "seat_map gave None for seat 'x', episode 0"),
        (lambda seat, episode: "", "seat_map gave '' for seat 'x', episode 0"),
        (lambda seat, episode: 7, "seat_map gave 7 for seat 'x', episode 0"),
        (lambda seat, episode: "robot:x", "robot"),
        (lambda seat, episode: "a" if episode < 9 else "two words", "two words"),
        (lambda seat: "a", "seat_map raised TypeError"),
    ],
)
def test_a_function_that_seats_nobody_is_refused_in_one_line(function: Any, part: str) -> None:
    with pytest.raises(InputError) as refused:
        SeatMap(("x", "y"), {}, function)
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_function_that_names_somebody_new_later_is_refused() -> None:
    seat_map = SeatMap(("x", "y"), {}, lambda seat, episode: "a" if episode < 100 else "b")
    rng = np.random.default_rng(0)
    assert (seat_map.draw(rng, 90, 10) == 0).all()
    with pytest.raises(InputError) as refused:
        seat_map.draw(rng, 95, 10)
    assert "'b' in seat 'x' at episode 100" in str(refused.value)
    assert "\n" not in str(refused.value)


# --- deferred players ----------------------------------------------------------------------------


class Held:
    """A deferred player that answers only what it is asked after `free`."""

    kind = "script"

    def __init__(self) -> None:
        self.free = False
        self.told: list[GameOver] = []
        self.asked: list[tuple[Question, Future[PlayerAnswer]]] = []

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        future: Future[PlayerAnswer] = Future()
        self.asked.append((question, future))
        if self.free:
            self._answer(question, future)
        return future

    def answer_all(self) -> None:
        for question, future in self.asked:
            self._answer(question, future)

    def _answer(self, question: Question, future: Future[PlayerAnswer]) -> None:
        future.set_result(PlayerAnswer(int(np.flatnonzero(question.mask)[0])))

    def game_over(self, over: GameOver) -> None:
        self.told.append(over)

    def close(self) -> None:
        self.asked = []


def test_a_restart_forgets_what_deferred_players_were_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their answers were meant for games that are no more."""
    monkeypatch.setattr("rookery.actor.rollouts.questions.ALL_WAIT_S", 0.001)
    play = Play(Case("test-chances", {"red_0": "a", "*": "script:random"}, 20))
    player = Held()
    next(m for m in play.lineup.members if m.text == "script:random").player = player
    for seed in range(6):
        player.asked, player.free = [], False
        play.rollout.restart(100 + seed)
        play.go(1)
        assert len(player.asked) == play.case.slots
        player.answer_all()
        player.asked, player.free = [], True
        play.rollout.restart(seed)
        play.watched.steps.clear()
        play.go(1)

        asked = {tuple(question.observation[""].tolist()) for question, _ in player.asked}
        for step in play.steps:
            for slot, seat in np.argwhere(step.turn & step.moved[:, None]).tolist():
                if step.sitting[slot][seat] == "script:random":
                    assert tuple(step.seen[seat][""][slot].tolist()) in asked


def test_a_late_player_in_the_only_seat_leaves_rows_of_the_policy_alone() -> None:
    """A slot of one seat that begins anew decides nothing, whoever sits there next."""
    either = {"draw": [_option("a", 1), _option("script:random", 1)]}
    counting, three = "rookery.testing.envs:CountingEnv", {"actions": 3}
    play = Play(Case(counting, {"player_0": either}, 20, deferred=True, kwargs=three))
    play.rollout.table.env = play.watched.env
    play.go(4).close()
    for played in play.played:
        steps = played.steps["a"]
        assert (steps.reward[steps.valid] == 1).all()  # each of them one step
    ended = sum(int(np.count_nonzero(played.steps["a"].terminated)) for played in play.played)
    assert ended == sum(len(played.episodes["a"]) for played in play.played) > 0


# --- a learner that came back --------------------------------------------------------------------


@pytest.mark.parametrize("game", [TIC_TAC_TOE, pytest.param(PGX, marks=pytest.mark.soak)])
def test_a_step_held_from_weights_that_were_taken_back_is_as_old_as_can_be(game: str) -> None:
    def played(generation: int, number: int) -> np.ndarray:
        told = news(play.weights, 0)._replace(version=WeightsVersion(generation, number))
        steps = play.rollout(told).steps["a"]
        return steps.behind[steps.valid]  # type: ignore[no-any-return]

    play = Play(Case(game, {"*": "a"}, 16))
    played(1, 50)
    held = len(play.rollout.held["a"])
    assert held and np.count_nonzero(played(1, 51)) == held  # one version behind, as ever
    held = len(play.rollout.held["a"])
    old = played(2, 30)
    assert np.count_nonzero(old == LONG_AGO) == held and set(old.tolist()) == {0, LONG_AGO}
    saved = play.rollout.save()
    again = Play(play.case)
    again.rollout.restore(saved)
    play = again
    assert LONG_AGO not in played(3, 30)  # the learner goes on from the same checkpoint


# --- games that are cut short --------------------------------------------------------------------


class Relay:
    """Compiled, in turns: each move pays 1 and is counted; after five nobody has won."""

    def __init__(self) -> None:
        seat = SeatSpec((Leaf("", "box", (1,), "float32"),), Categorical(2))
        self.spec = EnvironmentSpec(
            "test-relay", {"x": seat, "o": seat}, True, True, simultaneous=False
        )

    def reset(self, key: Any) -> tuple[Any, CompiledStep]:
        import jax.numpy as jnp

        return jnp.int32(0), self._told(jnp.int32(0), jnp.zeros(2, jnp.float32))

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, CompiledStep]:
        import jax.numpy as jnp

        count = (state + 1) % 6  # the sixth only begins anew
        pays = (jnp.arange(2) == state % 2) & (count > 0)
        return count, self._told(count, pays.astype(jnp.float32))

    def _told(self, count: Any, reward: Any) -> CompiledStep:
        sight = {"": count.astype("float32")[None]}
        begins = (count == 0) & (reward.sum() == 0)
        return CompiledStep(sight, reward, count < 0, count == 5, begins, seat=count % 2)


register("test-relay", Relay)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_compiled_game_that_is_cut_short_is_not_one_that_ended(compiled: bool) -> None:
    """The seat to move saw what came of its last step, and is worth what it saw; the other not."""
    case = Case("test-relay", {"*": "a"}, 30, 1)
    config, seating = seating_of(case)
    if not compiled:
        seating = Seating.of(config, seating.spec, lambda seat, episode: "a")
    play = Play(case, seating)
    assert play.compiled == compiled
    if not compiled:
        play.rollout.table.env = play.watched.env
    steps = play.go(1).played[0].steps["a"]
    assert not steps.terminated.any()
    cut = np.argwhere(steps.truncated)
    assert len(cut) >= 3
    for row, lane in cut.tolist():
        sights = steps.observation[""][row : row + 2, lane, 0].tolist()
        assert sights == [3.0, 5.0] and steps.seat[row, lane] == 1 and not steps.valid[row + 1, 0]
    assert 4.0 not in steps.observation[""][:-1][steps.valid]


# --- seats of different spaces -------------------------------------------------------------------


@pytest.mark.parametrize("game", [DWINDLING, COMING])
def test_a_script_may_sit_in_seats_of_different_spaces(game: str) -> None:
    first = next(iter(spec_of(game).seats))
    found = evidence(Case(game, {first: "a", "*": "script:random"}))
    check_rows(found)
    check_games(found)


# --- seats that change ---------------------------------------------------------------------------


def test_a_league_cannot_be_seated_where_no_snapshots_are_taken() -> None:
    config, seating = seating_of(Case("test-crowd", {"*": "a"}))
    assert not seating.has_league
    with pytest.raises(InputError, match="this run has no league"):
        reseated(config, seating, {"red_0": "a", "*": "league:a"})


def test_a_frozen_policy_that_is_seated_later_plays() -> None:
    case = Case(TIC_TAC_TOE, {"player_1": "a", "player_2": "league:b"}, 20)
    play = Play(case).go(2)
    change = SeatsChanged(revision=1, seats={"player_1": "a", "player_2": "b"})
    for fragment in (2, 3, 4):
        play.watched.fragment = fragment
        told = news(play.weights, fragment)._replace(seats=change)
        play.played.append(play.rollout(told))
    matches = matches_of(play.steps)
    assert matches[-1].players == ("a", "b")
    found = Evidence(play, play.steps, matches, {p: rows_of(play, p) for p in play.learning})
    check_rows(found)
    check_games(found)
