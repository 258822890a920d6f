"""What the policies of a league are for.

A main policy wants to beat everyone and never stops. An exploiter wants to beat one target, which
shows the target where it is weak; once it has, or has tried long enough, it is frozen into the
league and begins anew.
"""

from __future__ import annotations

from typing import Literal

Role = Literal["main", "exploiter"]


def exploiter_done(
    win_rate_against_target: float,
    games: int,
    updates_since_reset: int,
    threshold: float,
    min_games: int,
    max_updates: int,
) -> bool:
    """Whether an exploiter has found what it looked for, or should look elsewhere."""
    found = games >= min_games and win_rate_against_target >= threshold
    return found or updates_since_reset >= max_updates
