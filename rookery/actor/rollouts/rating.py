"""Rating games beside training: frozen players alone, a round every few fragments.

They are played by the same kind of rollout at tables of their own; nobody learns from them, and
their results go out with the next fragment.
"""

from __future__ import annotations

import numpy as np

from rookery.actor.loop import Admitted, Played, Rollout
from rookery.actor.saved import prefixed, under
from rookery.messages.frame import Arrays


class WithRatings:
    """A rollout that lets another one play a round after every so many fragments."""

    def __init__(self, training: Rollout, rating: Rollout, every: int, reference: int) -> None:
        self.training, self.rating = training, rating
        self.can_save = training.can_save and rating.can_save
        self._every, self._reference = every, reference
        self._fragments = 0

    def __call__(self, admitted: Admitted) -> Played:
        played = self.training(admitted)
        self._fragments += 1
        pools = admitted.pools
        if self._fragments % self._every or pools is None:
            return played
        if len(pools.files) + self._reference < 2:  # nobody to meet
            return played
        return played._replace(games=played.games + self.rating(admitted).games)

    def restart(self, seed: int) -> None:
        self.training.restart(seed)
        self.rating.restart(seed + 1)

    def close(self) -> None:
        self.training.close()
        self.rating.close()

    def save(self) -> Arrays:
        state = prefixed("training/", self.training.save())
        state |= prefixed("rating/", self.rating.save())
        return state | {"fragments": np.asarray(self._fragments)}

    def restore(self, state: Arrays) -> None:
        self.training.restore(under(state, "training/"))
        self.rating.restore(under(state, "rating/"))
        self._fragments = int(state["fragments"])
