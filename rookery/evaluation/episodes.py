"""Evaluation: fresh episodes with a fixed policy, on seeds that training never uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery import seeds
from rookery.actor.lineup import FixedLineup, Member
from rookery.checkpoints.policies import load_policy, newest_of
from rookery.config.models import RunConfig
from rookery.control.home import Home
from rookery.envs import SOLO_SEAT, BatchedEnvironment
from rookery.envs.registry import make
from rookery.errors import UnknownName
from rookery.evaluation.match import play_games
from rookery.messages.frame import Arrays
from rookery.players import Player
from rookery.players.factory import make_player
from rookery.players.names import PlayerName
from rookery.players.policy import PolicyPlayer
from rookery.players.scripts.any_game import RandomPlayer
from rookery.players.seat_map import Seating

MAX_SLOTS = 128


@dataclass(frozen=True)
class Episodes:
    """What was played: one entry per episode."""

    returns: np.ndarray
    lengths: np.ndarray

    def summary(self) -> dict[str, float]:
        return {
            "mean": float(self.returns.mean()),
            "std": float(self.returns.std()),
            "min": float(self.returns.min()),
            "max": float(self.returns.max()),
            "length": float(self.lengths.mean()),
        }


def play_episodes(
    env: BatchedEnvironment,
    player: Player,
    arrays: Arrays,
    episodes: int,
    seed: int,
    rng: np.random.Generator,
) -> Episodes:
    """Play exactly `episodes`, a fixed number in each slot.

    Taking the first to finish instead would favour short episodes.
    """
    quota = np.full(env.slots, episodes // env.slots)
    quota[: episodes % env.slots] += 1
    totals, lengths = np.zeros(env.slots), np.zeros(env.slots, np.int64)
    found: list[tuple[float, int]] = []
    view = env.reset(seed)[SOLO_SEAT]
    state = player.initial_state(env.slots)
    while quota.any():
        decision = player.act(arrays, view.observation, view.mask, state, rng)
        state = decision.state
        view = env.step({SOLO_SEAT: decision.to_environment})[SOLO_SEAT]
        totals += view.reward
        lengths += ~view.reset
        for slot in np.flatnonzero(view.terminated | view.truncated):
            if quota[slot]:
                quota[slot] -= 1
                found.append((float(totals[slot]), int(lengths[slot])))
            totals[slot], lengths[slot] = 0.0, 0
    return Episodes(np.array([r for r, _ in found]), np.array([n for _, n in found]))


def evaluate_run(
    home: Home, run: str, episodes: int, seed: int = 0, player: str = "policy"
) -> dict[str, Any]:
    """Greedy and sampled play of the newest checkpoint; the object of `rookery eval --json`."""
    state = home.state(run)
    config, spec = home.config(state), home.spec(state)
    if len(spec.seats) > 1:
        return evaluate_seats(home, run, episodes, seed, player)
    arrays: Arrays = {}
    if player == "script:random":
        players: dict[str, Player] = {"sampled": RandomPlayer(next(iter(spec.seats.values())))}
        name, env_steps = player, 0
    elif player == "policy":
        frozen = load_policy(home.files(run))
        players = {
            "greedy": PolicyPlayer(frozen.network, greedy=True),
            "sampled": PolicyPlayer(frozen.network),
        }
        arrays, name, env_steps = frozen.arrays, frozen.checkpoint, frozen.env_steps
    else:
        raise UnknownName("player", player, ["policy", "script:random"])
    result: dict[str, Any] = {
        "run": run,
        "checkpoint": name,
        "env_steps": env_steps,
        "episodes": episodes,
        "seed": seed,
    }
    for index, (kind, chosen) in enumerate(players.items()):
        played = _play(config, chosen, arrays, episodes, (seed, index))
        result[kind] = played.summary()
    return result


def _play(
    config: RunConfig, player: Player, arrays: Arrays, episodes: int, place: tuple[int, int]
) -> Episodes:
    env = make(config.environment.id, min(episodes, MAX_SLOTS), config.environment.kwargs)
    try:
        seed = seeds.number(config.seed, "evaluation", *place, 0)
        rng = seeds.generator(config.seed, "evaluation", *place, 1)
        return play_episodes(env, player, arrays, episodes, seed, rng)
    finally:
        env.close()


# --- several seats -------------------------------------------------------------------------------


def evaluate_seats(home: Home, run: str, episodes: int, seed: int, player: str) -> dict[str, Any]:
    """Every seat with the policy that learns there, or else whom the seat map names; by seat.

    With another `player`, that one in every seat: what the policies should be better than.
    """
    state = home.state(run)
    config, spec = home.config(state), home.spec(state)
    checkpoint = newest_of(home.files(run))
    result: dict[str, Any] = {
        "run": run,
        "checkpoint": checkpoint.name if player == "policy" else player,
        "env_steps": checkpoint.manifest.ledger.trained if player == "policy" else 0,
        "episodes": episodes,
        "seed": seed,
    }
    for index, kind in enumerate(("greedy", "sampled")):
        if player != "policy" and kind == "greedy":
            continue
        sitting = _sitting(home, run, player, greedy=kind == "greedy")
        env = make(config.environment.id, min(episodes, MAX_SLOTS), config.environment.kwargs)
        try:
            begin = seeds.number(config.seed, "evaluation", seed, index, 0)
            rng = seeds.generator(config.seed, "evaluation", seed, index, 1)
            played = play_games(env, FixedLineup(sitting), episodes, begin, rng)
        finally:
            env.close()
            for member in sitting:
                if member.deferred:
                    member.player.close()  # type: ignore[union-attr]
        totals = np.array([each.game.totals for each in played])
        lengths = np.array([each.game.length for each in played])
        result[kind] = Episodes(totals.mean(-1), lengths).summary()
        result[kind]["seats"] = {
            seat: Episodes(totals[:, i], lengths).summary() for i, seat in enumerate(spec.seats)
        }
    return result


def _sitting(home: Home, run: str, player: str, greedy: bool) -> list[Member]:
    """A member per seat, named by it so that each seat's total is told."""
    state = home.state(run)
    config, spec = home.config(state), home.spec(state)
    seating = Seating.of(config, spec)
    found = []
    for number, (seat, seat_spec) in enumerate(spec.seats.items()):
        text = usual_player(seating, number, seat) if player == "policy" else player
        if text in seating.live:
            frozen = load_policy(home.files(run), policy=text)
            acts = PolicyPlayer(frozen.network, greedy=greedy)
            found.append(Member(seat, acts, seat, frozen.arrays))
        else:
            made = make_player(PlayerName.parse(text), seat_spec, spec.id)
            found.append(Member(seat, made, seat))
    return found


def usual_player(seating: Seating, number: int, seat: str) -> str:
    """The policy that plays in a seat, else the first fixed player that the map names there."""
    live = [policy for policy, seats in seating.live.items() if number in seats]
    fixed = [t for t in seating.map.options_of(seat) if not t.startswith("league:")]
    return next(iter([*live, *fixed]), "script:random")
