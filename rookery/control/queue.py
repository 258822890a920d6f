"""What a run in a server's queue waits for: CPUs, how many, and who has them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from rookery.control.home import Home
from rookery.control.run_state import PAUSED, RunState

NAMED = 3  # runs that are named, of those that have CPUs


def cost(state: RunState) -> int:
    """How many CPUs a run wants: one for each worker; a paused run wants none."""
    if state.desired == PAUSED:
        return 0
    config = state.config.get("config")
    if not isinstance(config, Mapping):
        return state.learners + state.actors_wanted
    return cpus_of(config, state.learners, state.actors_wanted)


def cpus_of(config: Mapping[str, Any], learners: int, actors: int) -> int:
    """What so many workers of a run want; on a cluster each wants what its placement says."""
    if config.get("launcher") == "inline":
        return 1
    each = config.get("placement", {}) if config.get("launcher") == "ray" else {}
    learner, actor = (each.get(kind, {}).get("cpus", 1) for kind in ("learner", "actor"))
    return math.ceil(float(learners * learner + actors * actor))


def waits_for(home: Home, state: RunState) -> str:
    """In a few words; empty: it does not wait, or only for its server to look up."""
    if state.status != "queued":
        return ""
    if not home.has_server():
        return f"a server: rookery serve, or here: rookery resume {state.id}"
    others = [other for other in home.states().values() if other.id != state.id]
    return cpus_wanted(state, [o for o in others if _is_carried(home, o)], home.server_cpus())


def cpus_wanted(state: RunState, carried: Iterable[RunState], cpus: int) -> str:
    """What a run wants and `carried` ones have; empty: there is room for it."""
    has = {other.id: cost(other) for other in carried if cost(other)}
    wanted, taken = cost(state), sum(has.values())
    if not taken or taken + wanted <= cpus:
        return ""
    most = sorted(has.items(), key=lambda each: -each[1])
    named = [f"{run} has {count}" for run, count in most[:NAMED]]
    rest = taken - sum(count for _, count in most[:NAMED])
    named += [f"others have {rest}"] if rest else []
    noun = "CPU" if wanted == 1 else "CPUs"
    return f"{wanted} {noun}: {', '.join(named)} of {cpus}"


def _is_carried(home: Home, state: RunState) -> bool:
    return state.status == "running" and state.owned_by == "server" and home.is_owned(state.id)
