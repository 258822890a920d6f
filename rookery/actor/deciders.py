"""Who decided: kinds of player as the numbers that rows carry; the names go into the header."""

from __future__ import annotations

import numpy as np

from rookery.actor.saved import from_json_array, json_array
from rookery.messages.frame import Arrays
from rookery.messages.steps import POLICY
from rookery.players import Decision


class Deciders:
    """The kinds that have decided so far in a rollout, the policy's own first."""

    def __init__(self) -> None:
        self._names = [POLICY]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._names)

    def number(self, kind: str) -> int:
        if kind not in self._names:
            self._names.append(kind)
        return self._names.index(kind)

    def told(self, decision: Decision, lanes: int) -> tuple[np.ndarray, np.ndarray]:
        """(player, log_prob) of a policy's lanes; unknown wherever another decided for it."""
        if decision.deciders is None:
            return np.zeros(lanes, np.uint8), decision.log_prob
        player = np.array([self.number(kind or POLICY) for kind in decision.deciders], np.uint8)
        return player, np.where(player == 0, decision.log_prob, np.float32(np.nan))

    def save(self) -> Arrays:
        return {"deciders": json_array(self._names)}

    def restore(self, state: Arrays) -> None:
        if "deciders" in state:
            self._names = from_json_array(state["deciders"])
