"""The weights that an actor plays with: those of one publication, whole.

    incoming.note(record)        # of each policy, in the order of the topic
    incoming.seal()              # a credit came: all that was published with it stands before it
    incoming.due = version       # what the credit is for
    incoming.take()              # before playing: whoever waits decodes little
    if incoming.whole: incoming.weights["main"]

Large weights come in several polls, and anybody may write to the bus: what cannot be read, or is
not what its key says, is passed over, and what it would have replaced stands.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rookery.bus import Record
from rookery.errors import MessageError
from rookery.messages import WeightsVersion
from rookery.messages.weights import Weights, decode_weights

logger = logging.getLogger(__name__)

MOST_WAITING = 256  # records without a credit after them: more are nobody's we know
MOST_SEALED = 8  # records that are kept undecoded


class IncomingWeights:
    """`weights` are exchanged as a whole, and those of policies that learn have one version."""

    def __init__(self, run: str, policies: Sequence[str], learning: Sequence[str]) -> None:
        self.weights: dict[str, Weights] = {}
        self.whole = False  # whether all that is due could be read
        self.due = WeightsVersion(0, 0)  # of the policies that learn
        self._run, self._policies, self._learning = run, frozenset(policies), tuple(learning)
        self._newest: dict[str, Weights] = {}
        self._waiting: list[Record] = []
        self._sealed: list[Record] = []

    def note(self, record: Record) -> None:
        if record.key in self._policies:
            self._waiting = [*self._waiting[1 - MOST_WAITING :], record]

    def seal(self) -> None:
        self._sealed += self._waiting
        self._waiting = []
        if len(self._sealed) > MOST_SEALED:
            self.take()

    def take(self) -> None:
        """Take up what was sealed; of each policy the newest that can be read."""
        sealed, self._sealed = self._sealed, []
        seen: set[str] = set()
        for record in reversed(sealed):  # weights that were replaced meanwhile are not decoded
            if record.key not in seen and (found := self._decoded(record)) is not None:
                seen.add(record.key)
                self._newest[record.key] = found
        versions = {self._newest[p].header.version for p in self._learning if p in self._newest}
        everybody = len(versions) == 1 and self._newest.keys() == self._policies
        self.whole = everybody and min(versions) >= self.due
        if self.whole:
            self.weights = dict(self._newest)

    def _decoded(self, record: Record) -> Weights | None:
        """None: older than what is known, or nothing that this policy could act with."""
        known = self._newest.get(record.key)
        try:
            found = decode_weights(record.payload)
            self._check(record.key, found, known)
        except MessageError as error:
            logger.warning("%s offset %d: skipped: %s", record.topic, record.offset, error)
            return None
        return found if known is None or found.header.version > known.header.version else None

    def _check(self, policy: str, found: Weights, known: Weights | None) -> None:
        header = found.header
        if (header.run, header.policy) != (self._run, policy):
            raise MessageError(f"weights of {header.policy!r} of run {header.run!r}, not {policy}")
        if known is not None and _shapes(found) != _shapes(known):
            raise MessageError(f"weights of another network than that of {policy}")


def _shapes(weights: Weights) -> dict[str, tuple[object, ...]]:
    return {name: (array.shape, array.dtype) for name, array in weights.arrays.items()}
