"""What a run has for its workers elsewhere: its bus and its stores, on its owner's disk.

Where the owner's machine is a node of the cluster, `RunHost` lives there. Where it is not, nothing
in the cluster can call it: then workers call a `Switchboard` in the cluster, and the driver takes
their calls from there and answers them (`tunnel`). Either way what was acknowledged lies with the
owner, whatever becomes of any node.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from pathlib import Path

import msgspec

from rookery.bus.ray.direct import Listener
from rookery.bus.ray.host import BusHost, listening
from rookery.checkpoints.hosted import answer
from rookery.checkpoints.store import FileStore

TAKE_S = 5.0  # that the driver waits for calls at a time
MOST_CALLS = 64  # that it takes at once


class RunHost:
    """A plain class that the driver places as a Ray actor; what crosses is bytes."""

    def __init__(self, path: str, limits: bytes, directory: str) -> None:
        self._bus = BusHost(path, limits)
        names = ("checkpoints", "snapshots")
        self._stores = {name: FileStore(Path(directory) / name) for name in names}
        self.answers = {"call": self.call, "store": self.store}
        self._listener = Listener(self.answers)

    async def alive(self) -> bytes:
        return await self._bus.alive()

    async def direct(self) -> bytes:
        return await listening(self._listener)

    async def call(self, content: bytes) -> bytes:
        return await self._bus.call(content)

    async def store(self, content: bytes) -> bytes:
        # in a thread: a checkpoint is large, and written through to the disk
        return await asyncio.to_thread(answer, self._stores, content)

    def close(self) -> None:
        self._listener.close()
        self._bus.close()


class Ringing(msgspec.Struct, frozen=True, array_like=True):
    """A call that waits at a switchboard, and later what was answered to it."""

    number: int
    method: str
    content: bytes


_rings = msgspec.msgpack.Decoder(list[Ringing])


class Switchboard:
    """Keeps nothing: if its node is lost, those who called call again at the next one."""

    def __init__(self) -> None:
        self._numbers = itertools.count(secrets.randbits(48))  # no other switchboard has the same
        self._waiting: asyncio.Queue[Ringing] = asyncio.Queue()
        self._answers: dict[int, asyncio.Future[bytes]] = {}

    async def alive(self) -> bytes:
        return b""

    async def direct(self) -> bytes:
        """The owner's machine cannot be called from here."""
        return b""

    async def call(self, content: bytes) -> bytes:
        return await self._ring("call", content)

    async def store(self, content: bytes) -> bytes:
        return await self._ring("store", content)

    async def take(self) -> bytes:
        """The driver's: calls that wait, as soon as there is one."""
        calls: list[Ringing] = []
        try:
            calls.append(await asyncio.wait_for(self._waiting.get(), TAKE_S))
        except TimeoutError:
            return msgspec.msgpack.encode(calls)
        while not self._waiting.empty() and len(calls) < MOST_CALLS:
            calls.append(self._waiting.get_nowait())
        return msgspec.msgpack.encode(calls)

    async def give(self, content: bytes) -> bytes:
        """The driver's: answers."""
        for ring in _rings.decode(content):
            future = self._answers.pop(ring.number, None)
            if future is not None and not future.done():
                future.set_result(ring.content)
        return b""

    async def _ring(self, method: str, content: bytes) -> bytes:
        number = next(self._numbers)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answers[number] = future
        await self._waiting.put(Ringing(number, method, content))
        return await future
