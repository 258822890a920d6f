"""A run in a line: what a list shows, from what is in memory.

Lists of hundreds are asked for many times a second beside training, so a row is made anew only when
something that it shows has changed: states and metrics are exchanged as a whole, never changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rookery.control.models import RunRow
from rookery.control.queries import STALE_S, status_now
from rookery.control.run_state import ACTIVE, RunState
from rookery.messages import TrainingMetrics

if TYPE_CHECKING:
    from rookery.server.feed.follower import Follower


class _Made(NamedTuple):
    """A row, and what it was made from."""

    state: RunState
    owner: str
    training: TrainingMetrics | None
    until_s: float  # from then on its speed is of long ago
    row: RunRow


class Rows:
    """The rows of all runs; safe from threads."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._made: dict[str, _Made] = {}

    def of(self, state: RunState) -> RunRow:
        busy = state.status in ACTIVE or state.commands or state.jobs  # others show none
        owner = self._follower.owner(state.id) if busy else ""
        training = self._follower.training(state.id)
        known, now_s = self._made.get(state.id), time.time()
        if (
            known is not None
            and known.state is state
            and known.training is training
            and known.owner == owner
            and now_s < known.until_s
        ):
            return known.row
        row = make_row(state, owner, training, now_s)
        until_s = math.inf
        if training is not None and row.steps_per_s is not None:
            until_s = training.time_s + STALE_S
        self._made[state.id] = _Made(state, owner, training, until_s, row)
        return row

    def keep(self, states: Sequence[RunState]) -> None:
        """Forget the rows of all others, now and then."""
        if len(self._made) > 2 * len(states) + 64:
            self._made = {s.id: self._made[s.id] for s in states if s.id in self._made}


def make_row(state: RunState, owner: str, training: TrainingMetrics | None, now_s: float) -> RunRow:
    """Built without validation: every part was checked when it was read."""
    config = _part(state.config, "config")
    status = status_now(state, bool(owner))
    fresh = training is not None and status == "running" and now_s - training.time_s < STALE_S
    return RunRow.model_construct(
        run=state.id,
        environment=str(_part(config, "environment").get("id", "")),
        algorithm=str(_part(config, "algorithm").get("kind", "")),
        status=status,
        reason=state.reason,
        desired=state.desired,
        created_s=state.created_s,
        env_steps=training.env_steps if training else state.env_steps,
        updates=training.updates if training else state.updates or 0,
        mean_return_100=training.mean_return_100 if training else state.mean_return_100,
        steps_per_s=training.recent_steps_per_s if training and fresh else None,
        lag_mean=training.lag_mean if training else None,
        actors=living_actors(state) if owner else 0,
        actors_wanted=state.actors_wanted,
        owner=owner,
    )


def living_actors(state: RunState) -> int:
    return sum(w.running and w.kind in ("actor", "inline") for w in state.workers.values())


def _part(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A part of a config that nobody has checked yet."""
    found = mapping.get(key)
    return found if isinstance(found, Mapping) else {}
