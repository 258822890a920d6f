"""A rollout that plays nothing: it hands over what another run has recorded, off the log.

Everything else (credits, ledger, checkpoints) is as in any run. The recorded probabilities of the
behaviour go along, so an algorithm that corrects for it learns from them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rookery.actor.loop import Admitted, Played
from rookery.bus import EARLIEST, Bus, Position
from rookery.errors import InputError, MessageError
from rookery.messages import EXPERIENCES
from rookery.messages.fragment import Fragment, decode_fragment
from rookery.messages.frame import Arrays

POLL_S = 1.0


class RecordedRollout:
    """Turn after turn of a recording, from its beginning again when it is through."""

    can_save = True

    def __init__(self, bus: Bus, learning: Sequence[str], start: Position | str) -> None:
        self._bus, self._learning = bus, tuple(learning)
        self._start = start or EARLIEST
        self._subscription = bus.subscribe(EXPERIENCES, self._start)
        self._waiting: list[Played] = []

    def __call__(self, admitted: Admitted) -> Played:
        rounds = 0
        while not self._waiting:
            self._read()
            if not self._waiting and self._subscription.lag() == 0:
                rounds += 1
                if rounds > 1:
                    raise InputError("the recording holds no whole turn of the policies that learn")
                self._subscription.close()
                self._subscription = self._bus.subscribe(EXPERIENCES, self._start)
        return self._waiting.pop(0)

    def _read(self) -> None:
        """Poll until a whole turn of some actor is there; its parts lie side by side."""
        parts: list[Fragment] = []
        for record in self._subscription.poll(POLL_S, limit=len(self._learning)):
            if record.headers.get("kind") != "fragment":
                continue
            try:
                parts.append(decode_fragment(record.payload))
            except MessageError:
                continue  # the run that recorded it has skipped and counted it too
        parts = [part for part in parts if not part.header.walk_in]  # of any size
        by_policy = {part.header.policy: part for part in parts}
        if by_policy.keys() >= set(self._learning):
            found = {policy: by_policy[policy] for policy in self._learning}
            steps = {policy: part.steps for policy, part in found.items()}
            episodes = {policy: part.header.episodes for policy, part in found.items()}
            players = max((part.header.players for part in found.values()), key=len)
            self._waiting.append(Played(steps, episodes, players=players))

    def save(self) -> Arrays:
        return {"position": np.asarray(self._subscription.position(), np.int64)}

    def restore(self, state: Arrays) -> None:
        position = tuple(int(at) for at in state["position"])
        self._subscription.close()
        self._subscription = self._bus.subscribe(EXPERIENCES, position)
        self._waiting.clear()

    def restart(self, seed: int) -> None:
        """A recording goes on where it was."""

    def close(self) -> None:
        """Nobody plays."""


def recorded_steps(bus: Bus, start: Position | str) -> int:
    """Agent steps from `start` on that the log still holds."""
    subscription = bus.subscribe(EXPERIENCES, start or EARLIEST)
    first = subscription.position()
    subscription.close()
    return sum(int(headers.get("steps", 0)) for headers in bus.headers(EXPERIENCES, first))
