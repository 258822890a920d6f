"""What a player's name tells: whether it still changes, and whose weights it plays.

main                     a live policy: it learns
main@340                 a frozen snapshot of it, playing as it learned: by chance
main@340/greedy          the same weights playing their likeliest action: another player
script:random, engine:stockfish?level=1   anything with a ":" never learns here
"""

from __future__ import annotations

GREEDY = "/greedy"


def is_live(player: str) -> bool:
    """Whether the player behind this name may be another one tomorrow."""
    return "@" not in player and ":" not in player


def is_frozen(player: str) -> bool:
    """Whether games of long ago still tell about this player."""
    return not is_live(player)


def greedy(player: str) -> str:
    """The name under which the same weights play greedily."""
    return player + GREEDY


def weights_of(player: str) -> str:
    """The name without its way of playing."""
    return player.removesuffix(GREEDY)


def policy_of(player: str) -> str | None:
    """The policy that a snapshot was taken of; None if the player is no snapshot."""
    policy, at, _ = player.partition("@")
    return policy if at and ":" not in policy else None
