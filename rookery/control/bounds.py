"""How far a run goes: the bounds of its config, or those that a later ResumeRun named.

A run that has reached its bound goes on with a new one. Bounds count from the run's beginning, as
`rookery train` says them, so the same command twice means the same. Nothing here does I/O.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rookery.messages import Command, ResumeRun

if TYPE_CHECKING:
    from rookery.control.run_state import RunState

REACHED = ("solved", "finished", "limited")  # statuses of a run that a bound has ended


def named(command: Command) -> dict[str, Any]:
    """The bounds that a command names."""
    if not isinstance(command, ResumeRun):
        return {}
    asked = {
        "steps": command.steps,
        "minutes": command.minutes,
        "until_return": command.until_return,
    }
    return {key: bound for key, bound in asked.items() if bound is not None}


def stop_now(state: RunState) -> dict[str, Any]:
    """The part `stop` of the run's config, as it is now."""
    if state.stop is not None:
        return state.stop
    config = state.config.get("config")
    found = config.get("stop") if isinstance(config, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}


def stop_after(state: RunState, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The same with these bounds: others stay, but for the one that has ended the run."""
    now, over = stop_now(state), _reached(state) if asked else None
    return {**{key: bound for key, bound in now.items() if key != over}, **asked}


def _reached(state: RunState) -> str | None:
    """The bound that has ended the run."""
    if state.status not in REACHED:
        return None
    if state.status == "solved":
        return "until_return"
    steps = stop_now(state).get("steps")
    return "steps" if isinstance(steps, int) and state.env_steps >= steps else "minutes"


def why_not_further(state: RunState, command: Command) -> str | None:
    """Why starting or resuming a run would train nothing; None if it would."""
    asked, run, steps = named(command), state.id, state.env_steps
    over = _reached(state)
    if over is not None and not asked:
        more = f"resume it with a new bound, like steps={twice(steps)}"
        return f"run {run} is {state.status}, {state.reason}: {more}"
    if asked.get("steps", steps + 1) <= steps:
        more = f"name more in all, like steps={twice(steps)}"
        return f"run {run} has trained {steps:,} steps already: {more}"
    if over is None and state.status != "stopped":
        return None  # what it came to when it last ended says nothing of now
    mean, minutes = state.mean_return_100, (state.train_s or 0) / 60
    if over == "minutes":
        minutes = max(minutes, stop_now(state).get("minutes") or 0)
    if asked.get("minutes", math.inf) <= minutes:
        return f"run {run} has trained {minutes:.3g} minutes already: name more in all"
    if mean is not None and asked.get("until_return", math.inf) <= mean:
        return f"run {run} has a mean return of {mean:.1f} already: name a higher one"
    return None


def bounds_text(asked: Mapping[str, Any]) -> str:
    """In words, for what a command does; empty where it names none."""
    words = {"steps": "{:,} steps", "minutes": "{:g} minutes", "until_return": "return {:g}"}
    named_so = [words[key].format(bound) for key, bound in asked.items()]
    return f"up to {' or '.join(named_so)}" if named_so else ""


def twice(env_steps: int) -> int:
    """A bound to suggest: about twice as far, in round numbers."""
    far = 2 * max(env_steps, 500)
    unit = int(10.0 ** (len(str(far)) - 2))
    return -(-far // unit) * unit
