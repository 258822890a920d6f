"""Which actors still live, of those that nobody watches over: they say so every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

MISSED = 6  # heartbeats, before an actor counts as gone


class Heartbeats:
    """Silence counts only while the bus can be heard."""

    def __init__(
        self, is_deaf: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_deaf, self._clock = is_deaf, clock
        self._every: dict[str, float] = {}
        self._heard: dict[str, float] = {}
        self._due = 0.0

    def expect(self, actor: str, heartbeat_s: float) -> None:
        self.forget(actor)
        if heartbeat_s > 0:
            self._every[actor], self._heard[actor] = heartbeat_s, self._clock()

    def heard(self, actor: str) -> None:
        if actor in self._heard:
            self._heard[actor] = self._clock()

    def forget(self, actor: str) -> None:
        self._every.pop(actor, None)
        self._heard.pop(actor, None)

    def silent(self) -> list[str]:
        """Whoever has been silent for too long; looked at about once a second."""
        now = self._clock()
        if not self._every or now < self._due:
            return []
        self._due = now + 1.0
        if self._is_deaf():
            self._heard = dict.fromkeys(self._heard, now)
        return [a for a, every in self._every.items() if now - self._heard[a] > MISSED * every]
