"""An episode as the seed and the actions that led to where it stands.

PettingZoo environments cannot be asked for their state. Most are deterministic once seeded, so a
copy that is given the same actions stands in the same state, bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.envs import Arrays
from rookery.envs.pettingzoo.game import Game, StepResult

Moves = list[dict[str, Any]]  # what was played at every step since the reset, by seat


def episode_seed(seed: int, slot: int, episode: int) -> int:
    """The seed of a slot's n-th episode; its own, so that an episode is replayed without others.

    31 bits: some games are written in C++ and take an int.
    """
    return int(np.random.SeedSequence((seed, slot, episode)).generate_state(1)[0]) >> 1


def save_moves(moves: Moves, seats: list[str]) -> Arrays:
    """The moves as arrays: who acted at which step, and each seat's actions in order."""
    acted = np.asarray([[seat in move for seat in seats] for move in moves], bool)
    state: Arrays = {"acted": acted.reshape(len(moves), len(seats))}
    for number, seat in enumerate(seats):
        if acted.size and acted[:, number].any():
            state[f"actions.{number}"] = np.stack([move[seat] for move in moves if seat in move])
    return state


def load_moves(state: Arrays, seats: list[str]) -> Moves:
    """The moves that `save_moves` wrote."""
    left = {n: iter(state[f"actions.{n}"]) for n in range(len(seats)) if f"actions.{n}" in state}
    return [
        {seats[number]: next(left[number]) for number in np.flatnonzero(row).tolist()}
        for row in state["acted"]
    ]


def replay(game: Game, seed: int, moves: Moves) -> StepResult:
    """Play the moves again and return the last frame."""
    frame = game.reset(seed)
    for move in moves:
        frame = game.step(move)
    return frame
