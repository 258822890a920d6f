"""Sends what is made elsewhere to a server, many at a time, and says what must not have been.

    fuzzer = Fuzzer(world, pid, seed=7, costly=0.0)
    asyncio.run(fuzzer.run(requests=3000, messages=2000, calls=1000))
    fuzzer.bad              # a line each: what was sent, by seed and number, and what came of it

Whole requests go many to a connection, one after the other without waiting; what ends a connection
early is taken up on the next. All the while the server's health is asked for; the time for which
the machine let either of the two wait for a processor is not the server's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from tests.server.fuzz.answers import Answer, read_answer
from tests.server.fuzz.calls import Calls
from tests.server.fuzz.conversations import CLOSE, Conversation, Conversations
from tests.server.fuzz.requests import Request, Requests, World

CLIENTS = 6
PIPELINED = 16
ANSWER_S = 60.0  # a config that is looked at takes seconds, and others wait before it
END_S = 30.0  # for a conversation, or half a request, to be ended
PULSE_S = 0.2
MOST_BAD = 20
FAILED = (1011, 1006)  # codes of a server's own mistake
LOST = (asyncio.IncompleteReadError, OSError)  # a TimeoutError is one of the latter


class Fuzzer:
    """One fuzz of one server."""

    def __init__(self, world: World, pid: int, seed: int, costly: float) -> None:
        """`pid`: of the server; `costly`: see `Requests`."""
        self._world, self._pid, self._seed = world, pid, seed
        self._requests = Requests(world, seed, costly)
        self._conversations = Conversations(world, seed, costly)
        self._calls = Calls(world, seed, costly)
        self.bad: list[str] = []
        self.statuses: Counter[int] = Counter()
        self.codes: Counter[int] = Counter()  # how WebSockets ended; 0: without one
        self.messages = 0
        self.slowest_pulse_s = 0.0

    async def run(self, requests: int, messages: int, calls: int) -> None:
        """So many of each; messages are those over WebSockets."""
        pulse = asyncio.create_task(self._pulse())
        try:
            await self._share(self._whole(self._requests.make, requests), self._send)
            self._world.sessions.update(await self._open_sessions() if calls else {})
            await self._share(self._whole(self._calls.request, calls), self._send)
            await self._share(self._talks(messages), self._converse)
        finally:
            pulse.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pulse

    # --- who does what ---------------------------------------------------------------------------

    async def _share(self, work: Iterable[object], do: Callable[..., object]) -> None:
        """All of it, by several clients."""
        left = iter(work)

        async def client() -> None:
            for piece in left:
                await do(piece)  # type: ignore[misc]
                if len(self.bad) >= MOST_BAD:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())

    def _whole(self, make: Callable[[int], Request], count: int) -> Iterable[list[Request]]:
        """In portions for a connection; what is no whole request goes alone."""
        portion: list[Request] = []
        for number in range(count):
            request = make(number)
            if not request.is_framed:
                yield [request]
                continue
            portion.append(request)
            if len(portion) == PIPELINED:
                yield portion
                portion = []
        yield portion

    def _talks(self, messages: int) -> Iterable[Conversation]:
        number = 0
        while self.messages < messages:
            conversation = self._conversations.make(number)
            self.messages += len(conversation.frames)
            number += 1
            yield conversation

    # --- requests --------------------------------------------------------------------------------

    async def _send(self, requests: list[Request]) -> None:
        while requests:
            answered = await self._send_some(requests)
            if not answered and len(requests) > 1:
                answered = await self._send_some(requests[:1])
            if not answered:
                self._note(requests[0], "no answer: the connection ended")
                answered = 1
            requests = requests[answered:]

    async def _send_some(self, requests: list[Request]) -> int:
        """On one connection; returns how many were answered."""
        count = 0
        async with self._connection() as (reader, writer):
            writer.write(b"".join(request.data for request in requests))
            if not requests[0].is_framed:
                await self._end(requests[0], reader, writer)
                return 1
            for request in requests:
                try:
                    async with asyncio.timeout(ANSWER_S):
                        answer = await read_answer(reader, request.method)
                except TimeoutError:
                    self._note(request, f"no answer within {ANSWER_S:g} s")
                    return count + 1
                except LOST:
                    return count
                count += 1
                self._judge(request, answer)
                if answer.closes:
                    return count
        return count

    async def _end(
        self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Of a connection whose request may have no end: the client says that there is no more."""
        try:
            async with asyncio.timeout(END_S):
                writer.write_eof()
                data = await reader.read()
        except TimeoutError:
            self._note(request, f"the connection was not ended within {END_S:g} s")
            return
        except LOST:
            return
        if data.startswith(b"HTTP/1.1 "):
            again = asyncio.StreamReader()
            again.feed_data(data)
            again.feed_eof()
            with contextlib.suppress(asyncio.IncompleteReadError):
                self._judge(request, await read_answer(again, request.method))

    def _judge(self, request: Request | Conversation, answer: Answer) -> None:
        self.statuses[answer.status] += 1
        if answer.is_bad:
            self._note(request, f"{answer.is_bad}: {answer.body[:300]!r}")

    async def _open_sessions(self) -> dict[str, str]:
        """One of MCP for each token."""
        found = {}
        for scope in ("read", "operate", "admin"):
            async with self._connection() as (reader, writer):
                writer.write(self._calls.opening(scope))
                answer = await read_answer(reader, "POST")
                found[scope] = answer.headers[b"mcp-session-id"].decode()
        return found

    # --- conversations ---------------------------------------------------------------------------

    async def _converse(self, conversation: Conversation) -> None:
        async with self._connection() as (reader, writer):
            try:
                async with asyncio.timeout(END_S):
                    writer.write(conversation.data if conversation.hastens else conversation.head)
                    answer = await read_answer(reader, "GET")
                    if answer.status != 101:
                        self._judge(conversation, answer)
                        return
                    if not conversation.hastens:
                        writer.write(b"".join(conversation.frames))
                    if conversation.leaves:
                        writer.write_eof()
                    code = await _last_words(reader)
            except TimeoutError:
                self._note(conversation, f"not ended within {END_S:g} s")
                return
            except LOST:
                code = 0
        self.codes[code] += 1
        if code in FAILED:
            self._note(conversation, f"ended with {code}")

    # --- the server ------------------------------------------------------------------------------

    async def _pulse(self) -> None:
        """Ask for its health now and then, as somebody new."""
        ask = f"GET /healthz HTTP/1.1\r\nHost: {self._world.host}\r\n\r\n".encode()
        while True:
            began, waited_s = time.monotonic(), self._waited_s()
            async with self._connection() as (reader, writer):
                writer.write(ask)
                try:
                    async with asyncio.timeout(ANSWER_S):
                        assert (await read_answer(reader, "GET")).status == 200
                except LOST as problem:
                    self.bad.append(f"/healthz: {problem!r}")
            took_s = time.monotonic() - began - (self._waited_s() - waited_s)
            self.slowest_pulse_s = max(self.slowest_pulse_s, took_s)
            await asyncio.sleep(PULSE_S)

    def _waited_s(self) -> float:
        """How long the server's event loop and this one have waited for a processor, in all."""
        found = 0
        for pid in (self._pid, os.getpid()):
            with contextlib.suppress(OSError):  # not every system tells
                found += int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
        return found / 1e9

    @contextlib.asynccontextmanager
    async def _connection(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(*self._world.address, limit=1 << 20)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _note(self, sent: Request | Conversation, what: str) -> None:
        kind, data = type(sent).__name__.lower(), self._world.hidden(sent.data)
        self.bad.append(f"seed {self._seed}, {kind} {sent.number}: {what}\n  sent {data}")


async def _last_words(reader: asyncio.StreamReader) -> int:
    """Read a WebSocket to its end; the code it ends with, or 0."""
    while True:
        first, size = await reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack("!H", await reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await reader.readexactly(8))
        payload = await reader.readexactly(size)
        if first & 15 == CLOSE:
            return int.from_bytes(payload[:2], "big")
