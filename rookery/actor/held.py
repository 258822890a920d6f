"""Held steps: those that wait for their seat's next turn over the end of a fragment, by policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rookery.actor.packing import Turns
from rookery.actor.saved import prefixed, under
from rookery.messages import WeightsVersion
from rookery.messages.frame import Arrays
from rookery.messages.steps import LONG_AGO


class HeldSteps(dict[str, Turns]):
    """What a rollout carries from fragment to fragment; `blank` are no turns of each policy."""

    def __init__(self, blank: Mapping[str, Turns]) -> None:
        super().__init__(blank)
        self.blank = dict(blank)
        self._generation = 0  # of the learner under which they were decided; 0: not said yet

    def drop(self) -> None:
        """New episodes begin everywhere."""
        self.update(self.blank)

    def go_on(self, version: WeightsVersion) -> None:
        """Before the next fragment is played, with these weights.

        A learner that came back may have taken weights back: which ones an actor cannot know, and
        their numbers come again for other weights. So all steps from before are as old as can be.
        """
        if self._generation not in (0, version.generation):
            for policy, turns in self.items():
                self[policy] = replace(turns, number=np.full(len(turns), -LONG_AGO, np.int64))
        self._generation = version.generation

    def save(self) -> Arrays:
        found: Arrays = {}
        for policy, turns in self.items():
            found |= prefixed(f"held/{policy}/", turns.arrays())
        return found

    def restore(self, state: Arrays) -> None:
        """From a checkpoint: its weights are those that the learner goes on from."""
        self._generation = 0
        for policy in self:
            self[policy] = Turns.from_arrays(under(state, f"held/{policy}/"))
