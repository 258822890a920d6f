"""Where every random stream comes from: the run's seed and what the stream is for.

Streams with different purposes, actors or incarnations never meet, so a restarted actor plays new
episodes and an evaluation sees none that was trained on.
"""

from __future__ import annotations

import numpy as np

_PURPOSES = {
    "network": 0,
    "learner": 1,
    "actor": 2,
    "environment": 3,
    "evaluation": 4,
    "seats": 5,
    "match": 6,
    "viewing": 7,
}


def sequence(run_seed: int, purpose: str, *place: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(run_seed, spawn_key=(_PURPOSES[purpose], *place))


def generator(run_seed: int, purpose: str, *place: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(sequence(run_seed, purpose, *place)))


def number(run_seed: int, purpose: str, *place: int) -> int:
    """A seed for code that takes one number."""
    return int(sequence(run_seed, purpose, *place).generate_state(1, np.uint32)[0])
