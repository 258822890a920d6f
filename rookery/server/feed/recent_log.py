"""The newest messages of a channel in memory: an unbroken stretch up to the channel's end.

One thread adds; any thread reads, without a lock: what a reader needs hangs on one reference that
is exchanged as a whole when old messages are let go.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from rookery.control.log_messages import Message

_seq = attrgetter("seq")


class _Kept(NamedTuple):
    floor: int  # every message after this seq is here
    messages: list[Message]
    by_run: dict[str, list[Message]]


class Stretch:
    """Up to `most` messages or `most_bytes` of payload; a quarter is let go at once."""

    def __init__(self, floor: int, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept = _Kept(floor, [], {})
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept.messages)

    def add(self, messages: Sequence[Message]) -> None:
        """The next messages of the channel, in order."""
        _, kept, by_run = self._kept
        for message in messages:
            kept.append(message)
            by_run.setdefault(message.run, []).append(message)
            self._bytes += len(message.payload)
        if len(kept) > self._most or self._bytes > self._most_bytes:
            self._let_go()

    def since(self, after: int, limit: int, run: str | None = None) -> list[Message] | None:
        """The first messages after a seq, of all runs or of one; None if it is older than this."""
        floor, messages, by_run = self._kept
        if after < floor:
            return None
        chosen = messages if run is None else by_run.get(run, [])
        first = bisect_right(chosen, after, key=_seq)
        return chosen[first : first + limit]

    def _let_go(self) -> None:
        messages, size = self._kept.messages, self._bytes
        gone = 0
        while gone < len(messages) and (
            len(messages) - gone > 0.75 * self._most or size > 0.75 * self._most_bytes
        ):
            size -= len(messages[gone].payload)
            gone += 1
        by_run: dict[str, list[Message]] = {}
        for message in messages[gone:]:
            by_run.setdefault(message.run, []).append(message)
        self._kept = _Kept(messages[gone - 1].seq, messages[gone:], by_run)
        self._bytes = size
