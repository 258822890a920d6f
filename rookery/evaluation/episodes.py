"""Evaluation: fresh episodes with a fixed policy, on seeds that training never uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rookery import seeds
from rookery.actor.lineup import FixedLineup
from rookery.checkpoints.policies import FrozenPolicy, RunFiles, frozen_weights, load_policy
from rookery.control.evaluations import check_evaluated
from rookery.control.home import Home
from rookery.envs import SOLO_SEAT, BatchedEnvironment
from rookery.envs.registry import make
from rookery.evaluation.match import MOST_STEPS, play_games
from rookery.players import Player
from rookery.players.factory import PlayerFactory, close_members
from rookery.players.member import Member, PolicyWeights
from rookery.players.names import PlayerName
from rookery.players.seat_map import Seating
from rookery.spaces import SeatSpec

MAX_SLOTS = 128


@dataclass(frozen=True)
class Episodes:
    """What was played: one entry per episode."""

    returns: np.ndarray
    lengths: np.ndarray
    cut: int = 0  # episodes that did not end by themselves within MOST_STEPS

    def summary(self) -> dict[str, float]:
        return {
            "mean": float(self.returns.mean()),
            "std": float(self.returns.std()),
            "min": float(self.returns.min()),
            "max": float(self.returns.max()),
            "length": float(self.lengths.mean()),
            "cut": self.cut,
        }


def play_episodes(
    env: BatchedEnvironment,
    member: Member,
    episodes: int,
    seed: int,
    rng: np.random.Generator,
) -> Episodes:
    """Play exactly `episodes`; those of an environment that need not end are cut at MOST_STEPS."""
    if env.spec.max_episode_steps is not None:
        return _play(env, member, episodes, seed, rng)
    rounds = [min(env.slots, episodes - done) for done in range(0, episodes, env.slots)]
    played = [_play(env, member, n, seed + i, rng, MOST_STEPS) for i, n in enumerate(rounds)]
    returns, lengths = ([getattr(part, name) for part in played] for name in ("returns", "lengths"))
    return Episodes(np.concatenate(returns), np.concatenate(lengths), sum(p.cut for p in played))


def _play(
    env: BatchedEnvironment,
    member: Member,
    episodes: int,
    seed: int,
    rng: np.random.Generator,
    most_steps: int | None = None,
) -> Episodes:
    """A fixed number in each slot; taking the first to finish instead would favour short ones.

    With a bound a slot plays one: only a reset of all of them ends an episode that goes on.
    """
    quota = np.full(env.slots, episodes // env.slots)
    quota[: episodes % env.slots] += 1
    totals, lengths = np.zeros(env.slots), np.zeros(env.slots, np.int64)
    found: list[tuple[float, int]] = []
    cut = 0
    view = env.reset(seed)[SOLO_SEAT]
    player: Player = member.player  # type: ignore[assignment]  # a policy, or script:random
    state = player.initial_state(env.slots)
    while quota.any():
        decision = player.act(member.arrays, view.observation, view.mask, state, rng)
        state = decision.state
        view = env.step({SOLO_SEAT: decision.to_environment})[SOLO_SEAT]
        totals += view.reward
        lengths += ~view.reset
        for slot in np.flatnonzero(view.terminated | view.truncated):
            if quota[slot]:
                quota[slot] -= 1
                found.append((float(totals[slot]), int(lengths[slot])))
            totals[slot], lengths[slot] = 0.0, 0
        late = quota.astype(bool) & (lengths >= (most_steps or np.inf))
        found += [(float(totals[slot]), int(lengths[slot])) for slot in np.flatnonzero(late)]
        quota[late], cut = 0, cut + int(late.sum())
    return Episodes(np.array([r for r, _ in found]), np.array([n for _, n in found]), cut)


def evaluate_run(
    home: Home, run: str, episodes: int, seed: int = 0, player: str = "policy"
) -> dict[str, Any]:
    """Greedy and sampled play of the newest checkpoint; the object of `rookery eval --json`.

    In every seat the policy that learns there, or else whom the seat map names; by seat, if there
    are several. With another `player`, that one in every seat: what the policies should be better
    than.
    """
    files = home.files(run)
    config, solo = files.config, len(files.spec.seats) == 1
    check_evaluated(player, len(files.spec.seats))
    own = cache(lambda policy: load_policy(files, policy=policy))  # one checkpoint for all
    newest = own(config.learning[0]) if player == "policy" else None
    result: dict[str, Any] = {
        "run": run,
        "checkpoint": newest.checkpoint if newest else player,
        "env_steps": newest.env_steps if newest else 0,
        "episodes": episodes,
        "seed": seed,
        "cut_at": MOST_STEPS if files.spec.max_episode_steps is None else None,
    }
    ways = {"greedy": 0, "sampled": 1} if newest else {"sampled": 0 if solo else 1}
    for kind, index in ways.items():  # the index is a part of the seeds
        begin = seeds.number(config.seed, "evaluation", seed, index, 0)
        rng = seeds.generator(config.seed, "evaluation", seed, index, 1)
        with ExitStack() as closing:
            sitting = _sitting(home, files, own, player, kind == "greedy")
            closing.callback(close_members, sitting)
            env = make(config.environment.id, min(episodes, MAX_SLOTS), config.environment.kwargs)
            closing.callback(env.close)
            if solo:
                result[kind] = play_episodes(env, sitting[0], episodes, begin, rng).summary()
            else:
                result[kind] = _play_seats(env, sitting, episodes, begin, rng)
    return result


def _play_seats(
    env: BatchedEnvironment,
    sitting: list[Member],
    episodes: int,
    seed: int,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The mean over the seats, and each seat by itself."""
    played = play_games(env, FixedLineup(sitting), episodes, seed, rng)
    totals = np.array([each.game.totals for each in played])
    lengths = np.array([each.game.length for each in played])
    cut = sum(each.cut for each in played)
    by_seat = {
        seat: Episodes(totals[:, i], lengths, cut).summary()
        for i, seat in enumerate(env.spec.seats)
    }
    return {**Episodes(totals.mean(-1), lengths, cut).summary(), "seats": by_seat}


def _sitting(
    home: Home, files: RunFiles, own: Callable[[str], FrozenPolicy], player: str, greedy: bool
) -> list[Member]:
    """A member per seat, named by it so that each seat's total is told."""
    seating = Seating.of(files.config, files.spec)
    other = frozen_weights(home.find_files)

    def load(name: PlayerName, seat: str, spec: SeatSpec) -> PolicyWeights:
        mine = name.kind == "policy" and name.name in seating.live
        return own(name.name).for_seat(seat, spec) if mine else other(name, seat, spec)

    factory = PlayerFactory(files.spec.id, load, greedy=greedy)
    found = []
    for number, (seat, spec) in enumerate(files.spec.seats.items()):
        text = usual_player(seating, number, seat) if player == "policy" else player
        found.append(factory.member(text, seat, spec))
        found[-1].name = seat
    return found


def usual_player(seating: Seating, number: int, seat: str) -> str:
    """The policy that plays in a seat, else the first fixed player that the map names there."""
    live = [policy for policy, seats in seating.live.items() if number in seats]
    fixed = [t for t in seating.map.options_of(seat) if not t.startswith("league:")]
    return next(iter([*live, *fixed]), "script:random")
