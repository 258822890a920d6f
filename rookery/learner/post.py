"""The learner's side of `model_updates`: weights and credits go out together."""

from __future__ import annotations

from rookery.bus import Bus, Outgoing
from rookery.codec import Arrays, Weights, WeightsHeader, encode_weights
from rookery.learner.batching import Inbox
from rookery.messages import CREDITS_KEY, MODEL_UPDATES, Credits, WeightsVersion, encode_json

_RETAIN_EVERY = 16  # updates between removals of superseded weights


class LearnerPost:
    """Numbers the weights and publishes them with the credits that they allow."""

    def __init__(
        self, bus: Bus, run: str, policy: str, inbox: Inbox, generation: int, number: int
    ) -> None:
        self.run, self.policy = run, policy
        self.generation, self.number = generation, number
        self._bus, self._inbox = bus, inbox

    @property
    def version(self) -> WeightsVersion:
        return WeightsVersion(self.generation, self.number)

    def announce(self, arrays: Arrays) -> None:
        """A new generation: its first weights, and credits for nobody until actors join."""
        self._bus.publish([self._weights(arrays), self._credits({})])

    def publish(self, arrays: Arrays) -> None:
        """New weights, and the credits that they make possible, in one message to all."""
        self.number += 1
        self._inbox.book.grant(self.number, len(self._inbox.pending))
        self._bus.publish([self._weights(arrays), self._credits(self._inbox.book.offers)])
        if self.number % _RETAIN_EVERY == 0:
            self._bus.retain(MODEL_UPDATES, self._bus.end(MODEL_UPDATES), keep_newest=True)

    def grant(self) -> None:
        """Credits alone: an actor came or went."""
        self._inbox.book.grant(self.number, len(self._inbox.pending))
        self._bus.publish([self._credits(self._inbox.book.offers)])

    def _weights(self, arrays: Arrays) -> Outgoing:
        header = WeightsHeader(
            run=self.run,
            policy=self.policy,
            version=self.version,
            env_steps=self._inbox.ledger.trained,
        )
        payload = encode_weights(Weights(header, arrays))
        headers = {"kind": "weights", "run": self.run, "version": str(self.version)}
        return Outgoing(MODEL_UPDATES, payload, self.policy, headers)

    def _credits(self, upto: dict[str, int]) -> Outgoing:
        credits = Credits(generation=self.generation, upto=upto)
        headers = {"kind": "credits", "run": self.run}
        return Outgoing(MODEL_UPDATES, encode_json(credits), CREDITS_KEY, headers)
