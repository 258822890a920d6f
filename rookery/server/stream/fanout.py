"""Fanout: what is new is sorted into frames, once for all clients that asked for the same.

A round begins a moment after something came, the later the more clients there are: that many are
sent fewer and larger frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio.to_thread

from rookery.server.feed.follower import Follower, Message
from rookery.server.stream.outbox import Outbox, StreamBatch
from rookery.server.stream.protocol import Selection, batch, entry

READY_S = 10.0  # how long a client waits for a follower that has just begun
CALM_S = 0.00025  # per client, before a round ...
LONGEST_CALM_S = 0.05  # ... but no longer


class Fanout:
    """Groups of outboxes by what they want; used in one event loop."""

    def __init__(self, follower: Follower, most: int) -> None:
        self.most = most  # messages of a frame
        self._follower = follower
        self._groups: dict[Selection, set[Outbox]] = {}
        self._selections: dict[Outbox, Selection] = {}
        self._ends: dict[str, int] = {}  # of each channel, what was sorted into frames
        self._inbox: list[Message] = []
        self._next: asyncio.TimerHandle | None = None
        self._leave: Callable[[], None] | None = None
        self._starting = asyncio.Lock()

    async def start(self) -> bool:
        """Listen to the follower, unless done; False if it has not read yet what there is."""
        async with self._starting:
            if self._leave is None:
                loop = asyncio.get_running_loop()

                def hear(messages: list[Message]) -> None:
                    loop.call_soon_threadsafe(self._take, messages)

                def join() -> tuple[dict[str, int], Callable[[], None]] | None:
                    is_ready = self._follower.ready.wait(READY_S)
                    return self._follower.join(hear) if is_ready else None

                joined = await anyio.to_thread.run_sync(join)
                if joined is None:
                    return False
                ends, self._leave = joined
                self._ends = ends | self._ends  # a round may have come first
            return True

    def close(self) -> None:
        if self._leave is not None:
            self._leave()
        if self._next is not None:
            self._next.cancel()

    def join(self, selection: Selection, outbox: Outbox) -> None:
        """From the next round on."""
        self._groups.setdefault(selection, set()).add(outbox)
        self._selections[outbox] = selection

    def leave(self, outbox: Outbox) -> None:
        selection = self._selections.pop(outbox, None)
        if selection is None:
            return
        group = self._groups[selection]
        group.discard(outbox)
        if not group:
            del self._groups[selection]

    def ends(self, selection: Selection) -> dict[str, int]:
        """The newest seq of each channel in the rounds until now."""
        return {c: end for c, end in self._ends.items() if selection.has_channel(c)}

    def behind(self, selection: Selection, at: dict[str, int]) -> dict[str, int]:
        """Channels of which one who is `at` these seqs lacks something, and up to where."""
        for channel in at.keys() - self._ends.keys():  # of a run of long ago, perhaps
            if (end := self._follower.resting_end(channel)) >= 0:
                self._ends[channel] = end
        return {
            channel: end
            for channel, end in self._ends.items()
            if end > at.setdefault(channel, -1) and selection.has_channel(channel)
        }

    def _take(self, messages: list[Message]) -> None:
        self._inbox += messages
        if self._next is None:
            calm_s = min(LONGEST_CALM_S, CALM_S * len(self._selections))
            self._next = asyncio.get_running_loop().call_later(calm_s, self._round)

    def _round(self) -> None:
        messages, self._inbox, self._next = self._inbox, [], None
        self._ends.update({message.channel: message.seq for message in messages})
        known = {id(message): entry(message) for message in messages} if self._groups else {}
        for selection, outboxes in self._groups.items():
            for frame in frames(selection, messages, self.most, known):
                for outbox in outboxes:
                    outbox.put(frame)


def frames(
    selection: Selection,
    messages: Sequence[Message],
    most: int,
    known: Mapping[int, str] | None = None,
) -> Iterator[StreamBatch]:
    """What is wanted of the messages; `known` are those that were encoded before, by identity."""
    chosen = selection.of(messages)
    for first in range(0, len(chosen), most):
        part = chosen[first : first + most]
        texts = [entry(m) if known is None else known[id(m)] for m in part]
        yield StreamBatch(batch(texts), part)
