"""Changing who sits where while a run goes on: what a new seat map is, without I/O.

A change names some seats; the command that is sent holds the whole map, what was asked over what
the run has now, so that the newest one is enough. Whether everybody in it can play is found out by
making them once (`rookery.control.check`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from rookery.config.models import RunConfig
from rookery.control.run_state import RunState
from rookery.messages import SetSeatMap


def seats_after(state: RunState, config: RunConfig, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The whole map: what was asked, over what the run has now."""
    kept = {
        seat: who
        for seat, who in seats_now(state, config).items()
        if not any(fnmatchcase(seat, pattern) for pattern in asked)  # an exact name would win
    }
    return {**asked, **kept}


def seats_now(state: RunState, config: RunConfig) -> dict[str, Any]:
    """The newest map that was asked for and not refused, else the config's."""
    waiting = [c.seats for c in state.commands.values() if isinstance(c, SetSeatMap)]
    changed = waiting[-1] if waiting else state.seats
    if changed is not None:
        return dict(changed)
    if config.seat_map:
        return {}  # a function: whoever replaces it names every seat
    written: dict[str, Any] = config.model_dump(mode="json")["seats"]
    return written or {"*": next(iter(config.all_policies))}


def sitter(who: Any) -> str:
    """A player of a seat map as text: its name, or what it is drawn from."""
    if not isinstance(who, Mapping) or not isinstance(who.get("draw"), list | tuple):
        return str(who)
    return ", ".join(_option(option) for option in who["draw"])


def _option(option: Any) -> str:
    if not isinstance(option, Mapping):
        return str(option)
    player = option.get("player") or f"league:{option.get('league')}"
    return f"{player} x {option.get('weight', 1):g}"
