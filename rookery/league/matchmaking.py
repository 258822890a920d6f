"""Against whom a learning policy should play next: weights over a pool, that add up to 1.

    uniform   everyone alike: fictitious self-play
    recency   mostly the newest, who are nearest in strength
    pfsp      mostly those it loses to: prioritised fictitious self-play (Vinyals et al. 2019)

A pool is names, oldest first, each once. The three share a signature, so that a config chooses one
by name; the win rates are the learner's against each, and only `pfsp` asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

How = Literal["uniform", "recency", "pfsp"]
Weighing = Callable[[Sequence[str], Mapping[str, float]], dict[str, float]]

UNSEEN_WIN_RATE = 0.5
PFSP_POWER = 2
PFSP_FLOOR = 0.01  # a beaten opponent stays in play, or what beats it could be unlearned unseen


def uniform(pool: Sequence[str], win_rates: Mapping[str, float]) -> dict[str, float]:
    return _normalised({player: 1.0 for player in pool})


def recency(pool: Sequence[str], win_rates: Mapping[str, float]) -> dict[str, float]:
    """Halved with every quarter of the pool, counted back from the newest."""
    half_life = max(1.0, len(pool) / 4)
    return _normalised(
        {player: 0.5 ** (age / half_life) for age, player in enumerate(reversed(pool))}
    )


def pfsp(pool: Sequence[str], win_rates: Mapping[str, float]) -> dict[str, float]:
    """(1 - win rate) squared: the hard ones."""
    return _normalised(
        {
            player: (1 - win_rates.get(player, UNSEEN_WIN_RATE)) ** PFSP_POWER + PFSP_FLOOR
            for player in pool
        }
    )


WEIGHINGS: Final[Mapping[How, Weighing]] = {
    "uniform": uniform,
    "recency": recency,
    "pfsp": pfsp,
}


def _normalised(weights: dict[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {player: weight / total for player, weight in weights.items()}
