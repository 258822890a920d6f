"""Rating games beside training: frozen players alone, a round every few fragments.

They are played by the same kind of rollout at tables of their own; nobody learns from them, and
their results go out with the next fragment.
"""

from __future__ import annotations

import numpy as np

from rookery.actor.experience import Played
from rookery.actor.loop import Admitted, Rollout
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
        state = {f"training/{n}": a for n, a in self.training.save().items()}
        state |= {f"rating/{n}": a for n, a in self.rating.save().items()}
        return state | {"fragments": np.asarray(self._fragments)}

    def restore(self, state: Arrays) -> None:
        for prefix, rollout in (("training/", self.training), ("rating/", self.rating)):
            rollout.restore({n[len(prefix) :]: a for n, a in state.items() if n.startswith(prefix)})
        self._fragments = int(state["fragments"])
