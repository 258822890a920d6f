"""What waits to be sent to one client: bounded, and exact about what found no room.

Once a frame finds no room, all that follow are left out too, until what waits was sent; then the
client is told what it missed, at the place where it is missing, and goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from rookery.control.log_messages import Message
from rookery.server.stream.protocol import Left, left_out

MOST_BYTES = 8 << 20  # waiting for one client; most of it is shared with others


class StreamBatch(NamedTuple):
    """A batch as it is sent, the same for all who asked for the same."""

    text: str
    messages: list[Message]


class Outbox:
    """Frames in their order; used in the event loop only."""

    def __init__(self, most: int, most_bytes: int = MOST_BYTES) -> None:
        self.wake = asyncio.Event()  # something to send, or something else to do
        self._most, self._most_bytes = most, most_bytes
        self._frames: deque[StreamBatch] = deque()
        self._count = self._bytes = 0
        self._left: dict[str, Left] = {}  # by channel
        self._notices: deque[str] = deque()

    def put(self, frame: StreamBatch) -> None:
        count, size = self._count + len(frame.messages), self._bytes + len(frame.text)
        fits = count <= self._most and size <= self._most_bytes
        if self._left or (self._frames and not fits):  # one frame of any size has room
            self._leave_out(frame)
        else:
            self._frames.append(frame)
            self._count, self._bytes = count, size
        self.wake.set()

    def next(self) -> str | None:
        """The next frame to send; None: nothing waits."""
        if self._notices:
            return self._notices.popleft()
        if self._frames:
            frame = self._frames.popleft()
            self._count -= len(frame.messages)
            self._bytes -= len(frame.text)
            return frame.text
        if self._left:
            self._notices.extend(left_out(channel, left) for channel, left in self._left.items())
            self._left = {}
            return self._notices.popleft()
        return None

    @property
    def waiting(self) -> int:
        return self._count

    def _leave_out(self, frame: StreamBatch) -> None:
        for message in frame.messages:
            left = self._left.get(message.channel, Left(message.seq, message.seq, 0))
            self._left[message.channel] = Left(left.first, message.seq, left.count + 1)
