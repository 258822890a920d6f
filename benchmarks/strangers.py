"""Strangers who do what they can to a server's port: benchmarks/flood.py starts them.

    python benchmarks/strangers.py URL [--connections 2000] [--seconds 60]

A fifth of them each leave a request half-open, send a byte at a time, a header without end, no
hello on a WebSocket, frames that are none. Whoever is ended comes again. Prints how many
connections there were of each kind, how many at a time, and how much of a core it took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import uvloop

from rookery.worker.process import step_back

AGAIN_S = 2.0  # after which a stranger whose connection was ended comes again
UPGRADE = (
    "GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def half_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(f"GET /api/v1/runs HTTP/1.1\r\nHost: {host}\r\n".encode())
    await reader.read()


async def slow_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: ".encode())
    while not reader.at_eof():
        writer.write(b"a")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(4096), 0.5)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: ".encode())
    while not reader.at_eof():
        writer.write(b"a" * 4096)
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(4096), 0.2)


async def no_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(UPGRADE.format(host).encode())
    await reader.read()


async def bad_frames(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(UPGRADE.format(host).encode())
    await reader.readuntil(b"\r\n\r\n")
    while not reader.at_eof():
        writer.write(os.urandom(512))
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(4096), 0.2)


KINDS: tuple[Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]], ...]
KINDS = (half_open, slow_bytes, endless, no_hello, bad_frames)


class Strangers:
    """So many that are connected, or about to be."""

    def __init__(self, url: str) -> None:
        self._host, port = url.removeprefix("http://").split(":")
        self._port = int(port)
        self.made: Counter[str] = Counter()  # connections, by kind
        self.most = self._open = 0  # connections at a time

    async def attack(self, count: int, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._stay(number, count) for number in range(count)))

    async def _stay(self, number: int, count: int) -> None:
        """Come within two seconds, not all at once; and again after each end."""
        kind = KINDS[number % len(KINDS)]
        await asyncio.sleep(2.0 * number / count)
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                self.made[kind.__name__] += 1
                self._open += 1
                self.most = max(self.most, self._open)
                try:
                    await kind(reader, writer, f"{self._host}:{self._port}")
                finally:
                    self._open -= 1
                    writer.close()
            await asyncio.sleep(AGAIN_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("url")
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    step_back(19)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    strangers = Strangers(arguments.url)
    began = time.process_time()
    uvloop.run(strangers.attack(arguments.connections, arguments.seconds))
    cores = (time.process_time() - began) / arguments.seconds
    found = {"made": strangers.made, "most_at_a_time": strangers.most, "cores": round(cores, 2)}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
