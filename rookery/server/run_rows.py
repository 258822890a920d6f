"""A run in a line: what a list shows, from what is in memory.

Lists of hundreds are asked for many times a second beside training, so a row is made anew only when
something that it shows has changed: states and metrics are exchanged as a whole, never changed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rookery.control.models import RunRow
from rookery.control.queries import STALE_S, is_busy, make_row
from rookery.control.run_state import RunState
from rookery.messages import TrainingMetrics

if TYPE_CHECKING:
    from rookery.server.feed.follower import Follower


class _Made(NamedTuple):
    """A row, and what it was made from."""

    state: RunState
    owner: str
    frozen: bool
    training: TrainingMetrics | None
    until_s: float  # from then on its speed is of long ago
    row: RunRow


class Rows:
    """The rows of all runs; safe from threads."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._made: dict[str, _Made] = {}

    def of(self, state: RunState) -> RunRow:
        owner = self._follower.owner(state.id) if is_busy(state) else ""
        frozen = bool(owner) and self._follower.owner_frozen(state.id)
        training = self._follower.training(state.id)
        known, now_s = self._made.get(state.id), time.monotonic()  # which no clock can move
        if (
            known is not None
            and known.state is state
            and known.training is training
            and known.owner == owner
            and known.frozen == frozen
            and now_s < known.until_s
        ):
            return known.row
        row = make_row(state, owner, training, time.time(), frozen)
        until_s = math.inf
        if training is not None and row.steps_per_s is not None:
            until_s = now_s + STALE_S - abs(time.time() - training.time_s)
        self._made[state.id] = _Made(state, owner, frozen, training, until_s, row)
        return row

    def keep(self, states: Sequence[RunState]) -> None:
        """Forget the rows of all others, now and then."""
        if len(self._made) > 2 * len(states) + 64:
            self._made = {s.id: self._made[s.id] for s in states if s.id in self._made}
