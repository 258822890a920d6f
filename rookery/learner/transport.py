"""The learner's side of `model_updates`: weights and credits go out together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rookery.bus import Bus, Outgoing
from rookery.learner.inbox import Inbox
from rookery.messages import (
    CREDITS_KEY,
    CRITIC_KEY,
    LEAGUE_KEY,
    MODEL_UPDATES,
    Credits,
    LeaguePools,
    WeightsVersion,
    encode_json,
)
from rookery.messages.frame import Arrays
from rookery.messages.weights import Weights, WeightsHeader, encode_weights

_RETAIN_EVERY = 16  # words of credits between removals of what was superseded
REPEAT_S = 5.0  # without a word: then credits are said again, as a message may be lost or damaged
CRITIC_INTERVAL_S = 1.0  # only people who watch want the value networks


class LearnerTransport:
    """Numbers the weights and publishes them with the credits that they allow."""

    def __init__(
        self,
        bus: Bus,
        run: str,
        inbox: Inbox,
        generation: int,
        number: int,
        interval_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.run = run
        self.generation, self.number = generation, number
        self.published = number  # the newest weights that the actors have
        self._bus, self._inbox = bus, inbox
        self._interval_s, self._due = interval_s, 0.0
        self._critic_due = 0.0
        self._clock, self._spoke, self._words = clock, clock(), 0
        self._newest: dict[str, Outgoing] = {}  # weights by policy, as they were published
        self.critics: Callable[[], Mapping[str, Arrays]] = dict  # by policy; nobody's yet

    @property
    def is_silent(self) -> bool:
        """Whether credits should be said again, for whoever did not hear them."""
        return self._clock() - self._spoke >= REPEAT_S and self._bus.trouble is None

    @property
    def version(self) -> WeightsVersion:
        return WeightsVersion(self.generation, self.number)

    def announce(self, arrays: Mapping[str, Arrays], pools: LeaguePools | None = None) -> None:
        """A new generation: its first weights, and credits for nobody until actors join."""
        self._send([*self._league(pools), *self._acting(arrays), self._credits({})])

    def publish(self, arrays: Mapping[str, Arrays], pools: LeaguePools | None = None) -> None:
        """New weights, and the credits that they make possible, in one message to all.

        Large weights go out every `interval_s` only; meanwhile credits stand for the older ones,
        whose deadlines are sooner. They cannot wait beyond the bound.
        """
        self.number += 1
        now, late = time.monotonic(), self.number - self.published >= self._inbox.book.max_lag
        weights: list[Outgoing] = []
        if late or now >= self._due:
            self.published, self._due = self.number, now + self._interval_s
            weights = self._acting(arrays)
        if weights and now >= self._critic_due:
            self._critic_due = now + CRITIC_INTERVAL_S
            weights += self._weights(self.critics(), "critic", CRITIC_KEY)
        self._send([*self._league(pools), *weights, self._granted()])

    def grant(self) -> None:
        """Credits alone: an actor came or went. With the weights, where one could not read them."""
        again = self._newest.values() if self._inbox.asked_again else ()
        self._inbox.asked_again = False
        self._send([*again, self._granted()])

    def _send(self, messages: Sequence[Outgoing]) -> None:
        self._bus.publish(messages)
        self._spoke, self._words = self._clock(), self._words + 1
        if self._words % _RETAIN_EVERY == 0:
            self._bus.retain(MODEL_UPDATES, self._bus.end(MODEL_UPDATES), keep_newest=True)

    def _granted(self) -> Outgoing:
        behind = self.number - self.published + self._inbox.updates_begun
        self._inbox.book.grant(self.published, self._inbox.places_taken, behind)
        return self._credits(self._inbox.book.offers)

    def _acting(self, arrays: Mapping[str, Arrays]) -> list[Outgoing]:
        weights = self._weights(arrays)
        self._newest |= {message.key: message for message in weights}
        return weights

    def _weights(
        self, arrays: Mapping[str, Arrays], kind: str = "weights", prefix: str = ""
    ) -> list[Outgoing]:
        headers = {"kind": kind, "run": self.run, "version": str(self.version)}
        return [
            Outgoing(
                MODEL_UPDATES,
                encode_weights(self._named(policy, found)),
                prefix + policy,
                headers,
            )
            for policy, found in arrays.items()
        ]

    def _named(self, policy: str, arrays: Arrays) -> Weights:
        header = WeightsHeader(
            run=self.run,
            policy=policy,
            version=self.version,
            env_steps=self._inbox.ledger.trained,
        )
        return Weights(header, arrays)

    def _league(self, pools: LeaguePools | None) -> list[Outgoing]:
        if pools is None:
            return []
        headers = {"kind": "league", "run": self.run}
        return [Outgoing(MODEL_UPDATES, encode_json(pools), LEAGUE_KEY, headers)]

    def _credits(self, upto: dict[str, int]) -> Outgoing:
        credits = Credits(generation=self.generation, upto=upto, number=self.published)
        headers = {"kind": "credits", "run": self.run}
        return Outgoing(MODEL_UPDATES, encode_json(credits), CREDITS_KEY, headers)
