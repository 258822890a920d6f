"""How many actors a run should have, by what its learner can take. Without I/O.

    auto = AutoActors(most=16, wanted=1)
    wanted = auto.look(Look(now, actors, env_steps, waiting))       # None: leave them as they are

More actors while those there hardly wait for credit, as the learner starves then; fewer while they
wait most of their time. Whether that was right is measured: each change is a trial, and one that
does not pay is taken back. What pays is steps a second, so it holds for a learner of any speed and
for actors on any machine. What did not pay bounds the next trials, and is tried again after a
while, twice as long each time.
"""

from __future__ import annotations

import math
from typing import NamedTuple

AUTHOR = "auto"  # of the commands that come of it
WINDOW_S = 10.0  # in which a number of actors is measured
SETTLE_S = 4.0  # that a change has to take hold
STARVES, WAITS = 0.25, 0.6  # shares of their time that actors wait, below and above which we try
SPARE = 1.5  # times the actors that would be busy all the time, when there are to be fewer
GAIN, LOSS = 1.05, 0.97  # what more actors must bring, and what fewer may cost
AGAIN_S, LATEST_S = 120.0, 3600.0  # until what did not pay is tried again: at first, at most
COMES_S = 90.0  # within which an actor plays that is asked for, where there is room for it


class Look(NamedTuple):
    """A run at one moment."""

    now: float
    actors: int  # that play
    env_steps: int
    waiting: float  # the mean share of their time that actors wait for credit


class Trial(NamedTuple):
    """What a new number of actors is compared with."""

    actors: int
    rate: float


class AutoActors:
    def __init__(self, most: int, wanted: int) -> None:
        """`wanted`: how many the run is to have now, who may not all play yet."""
        self._most, self._wanted = most, wanted
        self._changed: float | None = None
        self._window: list[Look] = []
        self._trial: Trial | None = None
        self._low, self._high = 0.0, math.inf  # numbers of actors that did not pay
        self._again, self._again_s = 0.0, AGAIN_S  # when both are forgotten

    def look(self, look: Look) -> int | None:
        """The number that is wanted from now on; None: as it is."""
        if self._changed is None:
            self._changed = look.now
        found = self._judged(look, look.now - self._changed)
        if found is not None:
            self._wanted, self._changed, self._window = found, look.now, []
        return found

    def _judged(self, look: Look, waited: float) -> int | None:
        if look.actors != self._wanted or waited < SETTLE_S:
            self._window = []
            return self._failed(look) if self._trial is not None and waited >= COMES_S else None
        self._window.append(look)
        first = self._window[0]
        steps, seconds = look.env_steps - first.env_steps, look.now - first.now
        if steps < 0:  # the learner went back to a checkpoint
            self._window = [look]
        if seconds < WINDOW_S or steps <= 0:
            return None
        rate = steps / seconds
        waiting = sum(each.waiting for each in self._window) / len(self._window)
        self._window = []
        if self._trial is not None:
            pays = GAIN if look.actors > self._trial.actors else LOSS
            if rate < self._trial.rate * pays:
                return self._failed(look)
            self._trial, self._again_s = None, AGAIN_S
        return self._tried(rate, waiting, look)

    def _failed(self, look: Look) -> int:
        """The number before, and none like this one for a while."""
        assert self._trial is not None
        if self._wanted > self._trial.actors:
            self._high = self._wanted
        else:
            self._low = self._wanted
        self._again = look.now + self._again_s
        self._again_s = min(2 * self._again_s, LATEST_S)
        before, self._trial = self._trial.actors, None
        return before

    def _tried(self, rate: float, waiting: float, look: Look) -> int | None:
        if look.now >= self._again:
            self._low, self._high = 0.0, math.inf
        if waiting <= STARVES:
            wanted = self._more(look.actors)
        elif waiting >= WAITS:
            wanted = self._fewer(look.actors, waiting)
        else:
            return None
        if wanted == look.actors:
            return None
        self._trial = Trial(look.actors, rate)
        return wanted

    def _more(self, actors: int) -> int:
        """Twice as many, or half the way to what was too many."""
        wanted = 2 * actors if 2 * actors < self._high else int(actors + self._high) // 2
        return max(actors, min(wanted, self._most))

    def _fewer(self, actors: int, waiting: float) -> int:
        busy = actors * (1.0 - waiting)
        return min(actors, max(1, math.ceil(busy * SPARE), int(self._low) + 1))
