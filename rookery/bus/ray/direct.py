"""A direct line to a host: a socket past Ray's calls, over which large messages cross much faster.

    listener = Listener({"call": answer})      # the host's side
    address = await listener.address(host)     # what Ray hands to whoever may call the host

    line = DirectLine(address, "call")         # a worker's side; for several threads
    answer = line.ask(content)

A connection begins with the secret of this life of the host and what its calls are for; then each
call is answered before the next. Both are a length and so many bytes, as `calls` makes them.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from rookery.bus.ray.calls import LARGEST_CALL

CONNECT_S = 2.0  # else workers call by Ray
SLOWEST = 5e6  # bytes a second, of a network and a disk together: what takes longer is broken
GREET_S = 5.0
LARGEST_GREETING = 256  # bytes
SECRET_BYTES = 32
BUFFER = 4 << 20

_LENGTH = struct.Struct("<Q")
_WELCOME = b"\x01"
logger = logging.getLogger(__name__)

Answer = Callable[[bytes], Awaitable[bytes]]


class Address(msgspec.Struct, array_like=True, frozen=True):
    """host -> worker, by Ray."""

    host: str
    port: int
    secret: bytes


class Greeting(msgspec.Struct, array_like=True, frozen=True):
    """worker -> host, first on each connection."""

    secret: bytes
    method: str


_addresses = msgspec.msgpack.Decoder(Address)
_greetings = msgspec.msgpack.Decoder(Greeting)


class Listener:
    """Answers whoever knows the secret; in the event loop that first asked for its address."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._answers = answers
        self._secret = secrets.token_bytes(SECRET_BYTES)
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()

    async def address(self, host: str) -> bytes:
        """Where it listens from now on; empty where it cannot."""
        async with self._starting:
            if self._server is None:
                try:
                    self._server = await asyncio.start_server(self._serve, host, limit=BUFFER)
                except OSError as error:
                    logger.info("no direct line at %s: %s", host, error)
                    return b""
        port = self._server.sockets[0].getsockname()[1]
        return msgspec.msgpack.encode(Address(host, port, self._secret))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self._greeted(reader)
            if answer is None:
                return
            writer.write(_WELCOME)
            while True:
                content = await _read(reader, LARGEST_CALL)
                if content is None:
                    return
                found = await answer(content)
                writer.write(_LENGTH.pack(len(found)))
                writer.write(found)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # they left
        finally:
            writer.close()

    async def _greeted(self, reader: asyncio.StreamReader) -> Answer | None:
        """What answers the calls of a connection; None: whoever it is does not know the secret."""
        try:
            async with asyncio.timeout(GREET_S):
                content = await _read(reader, LARGEST_GREETING)
            greeting = _greetings.decode(content or b"")
        except (TimeoutError, msgspec.DecodeError):
            return None
        if not hmac.compare_digest(greeting.secret, self._secret):
            return None
        return self._answers.get(greeting.method)


def patience_s(answer_s: float, content: bytes) -> float:
    """For the answer to a call: a host has to take in, and to write, what is large."""
    return answer_s + len(content) / SLOWEST


class DirectLine:
    """To one life of a host. Raises OSError as soon as that is over, or does not answer in time."""

    def __init__(self, address: bytes, method: str, answer_s: float) -> None:
        self._address, self._method, self._answer_s = _addresses.decode(address), method, answer_s
        self._lock = threading.Lock()
        self._idle: list[socket.socket] | None = []  # None: closed
        self._put_back(self._connected())

    def ask(self, content: bytes) -> bytes:
        line = self._taken()
        try:
            line.settimeout(self._answer_s)
            _send(line, content)
            line.settimeout(patience_s(self._answer_s, content))
            answer = _received(line)
        except BaseException:
            line.close()
            raise
        self._put_back(line)
        return answer

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle or [], None
        for line in idle:
            line.close()

    def _taken(self) -> socket.socket:
        """One that nobody uses."""
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connected()

    def _put_back(self, line: socket.socket) -> None:
        with self._lock:
            if self._idle is not None:
                self._idle.append(line)
                return
        line.close()

    def _connected(self) -> socket.socket:
        where = (self._address.host, self._address.port)
        line = socket.create_connection(where, CONNECT_S)
        try:
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _send(line, msgspec.msgpack.encode(Greeting(self._address.secret, self._method)))
            _exactly(line, len(_WELCOME))
        except BaseException:
            line.close()
            raise
        return line


async def _read(reader: asyncio.StreamReader, largest: int) -> bytes | None:
    """None: it is larger than it may be."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(length) if length <= largest else None


def _send(line: socket.socket, content: bytes) -> None:
    line.sendall(_LENGTH.pack(len(content)))
    rest = memoryview(content)
    while rest:  # a slow network is not gone while some bytes come through
        rest = rest[line.send(rest) :]


def _received(line: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
    return _exactly(line, length)


def _exactly(line: socket.socket, count: int) -> bytes:
    found = bytearray(count)
    rest = memoryview(found)
    while rest:
        came = line.recv_into(rest)
        if came == 0:
            raise ConnectionResetError("the host closed the line")
        rest = rest[came:]
    return bytes(found)
