"""How long each actor takes for a turn, and who takes so much longer than the others that nobody
should wait for it.

Only time in which the learner looks at the bus counts: while it compiles, is frozen, or cannot hear
the bus, everyone is silent for it, and silence that all share is not lateness.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median_low

PATIENCE = 3.0  # times what the others take
NOTICED_S = 0.1  # turns that are shorter than this are never slow
WAITED_S = 1.0  # before an actor that was not known to be slow is passed over: it may have stumbled
UNKNOWN_S = 60.0  # the same, where nobody has brought anything that it could be measured by
GLANCE_S = 1.0  # the most that counts between two looks


class Lateness:
    """Timed from the grant of a turn, or the arrival of the one before it, to its arrival."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._looked = clock, clock()
        self._now = 0.0  # seconds of looking
        self._since: dict[str, float] = {}  # actors that owe a turn -> when its time began
        self._came: set[str] = set()  # who brought something since the last look
        self._took: dict[str, tuple[float, ...]] = {}  # the last two turns of each actor

    def look(self, owing: Iterable[str], hears: bool = True) -> None:
        """Before and after each look at the bus; `owing`: the actors whose turns should come."""
        before, self._looked = self._looked, self._clock()
        if hears:
            self._now += min(self._looked - before, GLANCE_S)
        self._since = {actor: self._since.get(actor, self._now) for actor in owing}
        self._came.clear()

    def arrived(self, actor: str) -> None:
        """A turn came; of several that are found in one look only the first was timed."""
        if actor in self._since and actor not in self._came:
            took = self._now - self._since[actor]
            self._took[actor] = (*self._took.get(actor, ())[-1:], took)
            self._since[actor] = self._now
            self._came.add(actor)

    def forget(self, actor: str) -> None:
        self._since.pop(actor, None)
        self._took.pop(actor, None)

    def overdue(self) -> set[str]:
        """Whoever owes a turn and is late with it, or is known to be slow."""
        return {actor for actor in self._since if self._is_overdue(actor)}

    def _is_overdue(self, actor: str) -> bool:
        elapsed = self._now - self._since[actor]
        peers = [min(took) for other, took in self._took.items() if other != actor]
        own = self._took.get(actor, ())
        if not peers and not own:
            return elapsed > UNKNOWN_S
        usual = PATIENCE * (median_low(peers) if peers else min(own))
        slow = len(own) == 2 and min(own) > max(usual, NOTICED_S)  # once may be a hiccup
        return slow or elapsed > max(usual, WAITED_S)
