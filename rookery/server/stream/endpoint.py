"""The stream: messages of the log and of metrics to many WebSocket clients, from one follower.

    hub = Hub(follower, settings)
    await hub.stream(websocket, authenticate)      # one client, from hello to good-bye
    await hub.close()

A client that resumes first reads what it missed from memory or the bus, at its own pace, up to
what the rounds have sorted, and joins them in the same step of the event loop in which nothing is
missing any more: without a gap and without a double.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import anyio
import anyio.to_thread
from starlette.websockets import WebSocket

from rookery.control.settings import Settings
from rookery.errors import RookeryError
from rookery.server.feed.follower import Follower, Portion
from rookery.server.security.shares import NoPlace, Shares
from rookery.server.stream.fanout import Fanout, frames
from rookery.server.stream.outbox import Outbox
from rookery.server.stream.protocol import Left, Selection, Subscribe, decode, left_out, subscribed
from rookery.server.stream.websocket import (
    BAD_MESSAGE,
    GONE,
    NOT_READY,
    READY,
    TOO_MANY,
    Authenticate,
    Caller,
    Hangup,
    Hello,
    together,
)

FRAME = 256  # messages at most, so that a slow client loses little at a time
PORTION = 500  # messages that a resuming client is given at a time
READERS = 4  # clients whose portions are read from the bus at a time

logger = logging.getLogger(__name__)


class _Client:
    """One conversation."""

    def __init__(self, caller: Caller, queue: int) -> None:
        self.caller, self.websocket = caller, caller.websocket
        self.outbox = Outbox(queue)
        self.wanted: Subscribe | None = None  # and not begun with


class Hub:
    """All clients of the stream."""

    def __init__(self, follower: Follower, settings: Settings) -> None:
        self._shares = Shares(settings.server.stream_clients, "streams")
        self._queue = settings.server.stream_queue
        self._rounds = Fanout(follower, max(1, min(FRAME, self._queue // 4)))
        self._follower = follower
        self._readers: anyio.CapacityLimiter | None = None

    @property
    def clients(self) -> int:
        """How many have said who they are, and follow."""
        return len(self._shares)

    async def close(self) -> None:
        """Hear no more; clients are told by who closes their connections."""
        self._rounds.close()

    async def stream(self, websocket: WebSocket, authenticate: Authenticate) -> None:
        """Converse with one client until it leaves or has to."""
        caller = Caller(websocket, authenticate)
        client = _Client(caller, self._queue)
        try:
            await websocket.accept()
            with self._shares.place(await caller.greet(decode)):
                await self._converse(client)
        except NoPlace as crowded:
            await caller.refuse(Hangup(TOO_MANY, str(crowded)))
        except Hangup as refusal:
            await caller.refuse(refusal)
        except GONE:
            logger.debug("a client of the stream has left")
        finally:
            self._rounds.leave(client.outbox)

    # --- one conversation ------------------------------------------------------------------------

    async def _converse(self, client: _Client) -> None:
        if not await self._rounds.start():
            raise Hangup(NOT_READY, "the server is starting: try again")
        await client.websocket.send_text(READY)
        await together(
            lambda: self._receive(client), client.caller.stay_known, lambda: self._send(client)
        )

    async def _receive(self, client: _Client) -> None:
        """The newest subscription is the one that counts."""
        while True:
            said = decode(await client.caller.received())
            if isinstance(said, Hello):
                raise Hangup(BAD_MESSAGE, "hello was said already: subscribe")
            client.wanted = said
            client.outbox.wake.set()

    async def _send(self, client: _Client) -> None:
        outbox = client.outbox
        while True:
            outbox.wake.clear()
            while (text := outbox.next()) is not None:
                await client.websocket.send_text(text)
                if client.wanted is not None:
                    self._rounds.leave(client.outbox)  # what waits is sent, and no more
            if client.wanted is not None:
                await self._subscribe(client)
            else:
                await outbox.wake.wait()

    async def _subscribe(self, client: _Client) -> None:
        wanted, client.wanted = client.wanted, None
        assert wanted is not None
        self._rounds.leave(client.outbox)
        selection = wanted.selection
        at = self._beginning(selection, wanted.after)
        await client.websocket.send_text(subscribed(at))
        while behind := self._rounds.behind(selection, at):
            for channel, end in behind.items():
                at[channel] = await self._catch_up(client, selection, channel, at[channel], end)
                if client.wanted is not None:
                    return
        self._rounds.join(selection, client.outbox)  # in the same step as the last look

    def _beginning(self, selection: Selection, after: Mapping[str, int]) -> dict[str, int]:
        """The seq after which each channel begins."""
        at = self._rounds.ends(selection)
        for channel, seq in after.items():
            if selection.has_channel(channel):
                at[channel] = min(seq, at.get(channel, seq))
        return at

    async def _catch_up(
        self, client: _Client, selection: Selection, channel: str, after: int, end: int
    ) -> int:
        """Send a portion of what lies between the two; returns how far that came."""
        portion = await self._portion(channel, after)
        messages = [message for message in portion.messages if message.seq <= end]
        first = min(portion.first, end + 1) if messages else end + 1
        if first > after + 1:  # retention took it, or it cannot be read
            left = Left(after + 1, first - 1, first - 1 - after)
            await client.websocket.send_text(left_out(channel, left))
        for frame in frames(selection, messages, self._rounds.most):
            await client.websocket.send_text(frame.text)
        return messages[-1].seq if messages else end

    async def _portion(self, channel: str, after: int) -> Portion:
        def read() -> Portion:
            return self._follower.portion(channel, after, PORTION)

        if self._readers is None:  # it belongs to an event loop
            self._readers = anyio.CapacityLimiter(READERS)
        try:
            return await anyio.to_thread.run_sync(read, limiter=self._readers)
        except (RookeryError, OSError) as problem:
            logger.warning("%s cannot be read for the stream: %s", channel, problem)
            return Portion(after + 1, [])
