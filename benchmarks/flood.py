"""A server while strangers do what they can to its port, and its owner works on.

    python benchmarks/flood.py [--connections 2000] [--seconds 60] [--json]
    python benchmarks/flood.py attack URL [--connections 2000] [--seconds 60]    # the strangers

The server may open 1,024 descriptors. A run trains and its owner reads, first alone, then beside
the flood: what is printed are the owner's times, the rate of training as a share of that before,
how much the server has grown, and the lines in its log. The strangers have a process of their own
with the lowest priority, for on a network they would not take the server's cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

DESCRIPTORS = 1024
PACE_S = 0.1  # between two requests of the owner
AGAIN_S = 2.0  # after which a stranger whose connection was ended comes again
UPGRADE = (
    "GET /api/v1/stream HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


# --- the strangers -------------------------------------------------------------------------------


async def half_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(f"GET /api/v1/runs HTTP/1.1\r\nHost: {host}\r\n".encode())
    await reader.read()


async def slow_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: ".encode())
    while not reader.at_eof():
        writer.write(b"a")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.5)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
    writer.write(f"GET /healthz HTTP/1.1\r\nHost: {host}\r\nX: ".encode())
    while not reader.at_eof():
        writer.write(b"a" * 65536)
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)


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
            await asyncio.wait_for(reader.read(1024), 0.1)


KINDS: tuple[Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]], ...]
KINDS = (half_open, slow_bytes, endless, no_hello, bad_frames)


async def attack(url: str, connections: int, seconds: float) -> Counter[str]:
    """Keep so many connections up, or at it; returns how many of each kind were made."""
    host, port = url.removeprefix("http://").split(":")
    made: Counter[str] = Counter()

    async def stranger(number: int) -> None:
        kind = KINDS[number % len(KINDS)]
        await asyncio.sleep(2.0 * number / connections)  # come within two seconds, not at once
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(host, int(port))
                made[kind.__name__] += 1
                try:
                    await kind(reader, writer, f"{host}:{port}")
                finally:
                    writer.close()
            await asyncio.sleep(AGAIN_S)

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*(stranger(number) for number in range(connections)))
    return made


def attack_main(arguments: argparse.Namespace) -> None:
    os.nice(19)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(json.dumps(asyncio.run(attack(arguments.url, arguments.connections, arguments.seconds))))


# --- the owner -----------------------------------------------------------------------------------


class Server:
    """`rookery serve` with few descriptors, and a run that trains."""

    def __init__(self, home: Path) -> None:
        self._log = home / "server.err"
        limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]
        with self._log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*limited, sys.executable, "-m", "rookery", "serve", "--json", "--port", "0"],
                env={**os.environ, "ROOKERY_HOME": str(home)},
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.url, self.headers = said["url"], {"Authorization": f"Bearer {said['token']}"}

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines()

    @property
    def megabytes(self) -> float:
        import psutil

        return float(psutil.Process(self.process.pid).memory_info().rss / 2**20)

    def train(self) -> str:
        import httpx2

        never = {"steps": 10**9, "until_return": 10_000.0}
        config = {"environment": {"id": "CartPole-v1"}, "stop": never}
        while (found := httpx2.get(f"{self.url}/readyz")).status_code != 200:
            time.sleep(0.2)
        found = httpx2.post(
            f"{self.url}/api/v1/runs", json={"config": config}, headers=self.headers, timeout=60
        )
        if found.status_code >= 300:
            raise SystemExit(found.text)
        return str(found.json()["run"])

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)


async def work(server: Server, run: str, seconds: float) -> dict[str, float]:
    """Read as a page does, half of it on new connections; the times, and the rate of training."""
    import httpx2

    times: list[float] = []
    paths = ("/runs", f"/runs/{run}", f"/runs/{run}/why")
    async with httpx2.AsyncClient(headers=server.headers, timeout=30) as kept:

        async def get(path: str, client: httpx2.AsyncClient = kept) -> Any:
            found = await client.get(f"{server.url}/api/v1{path}")
            found.raise_for_status()
            return found.json()

        began, steps = time.monotonic(), (await get(f"/runs/{run}"))["env_steps"]
        while time.monotonic() < began + seconds:
            asked = time.monotonic()
            path = paths[len(times) % len(paths)]
            if len(times) % 2:
                await get(path)
            else:
                async with httpx2.AsyncClient(headers=server.headers, timeout=30) as fresh:
                    asked = time.monotonic()
                    await get(path, fresh)
            times.append(time.monotonic() - asked)
            await asyncio.sleep(PACE_S)
        rate = ((await get(f"/runs/{run}"))["env_steps"] - steps) / (time.monotonic() - began)
    times.sort()
    at = {"p50_ms": 0.5, "p99_ms": 0.99, "worst_ms": 1.0}
    found = {
        k: round(1000 * times[min(int(q * len(times)), len(times) - 1)]) for k, q in at.items()
    }
    return {**found, "requests": len(times), "steps_per_s": round(rate)}


def measure(connections: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rookery-flood-") as home:
        server = Server(Path(home))
        try:
            run = server.train()
            asyncio.run(work(server, run, 10))  # warm
            alone, before = asyncio.run(work(server, run, seconds)), server.megabytes
            options = ["--connections", str(connections), "--seconds", str(seconds)]
            strangers = subprocess.Popen(
                [sys.executable, __file__, "attack", server.url, *options], stdout=subprocess.PIPE
            )
            flooded = asyncio.run(work(server, run, seconds))
            made = json.loads(strangers.communicate(timeout=60)[0])
            return {
                "load": [round(load, 1) for load in os.getloadavg()],
                "alone": alone,
                "flooded": flooded,
                "training_kept": round(flooded["steps_per_s"] / alone["steps_per_s"], 2),
                "grown_mb": round(server.megabytes - before, 1),
                "log": server.log,
                "connections": made,
            }
        finally:
            server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", nargs="?", choices=["measure", "attack"], default="measure")
    parser.add_argument("url", nargs="?", default="")
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "attack":
        attack_main(arguments)
        return
    found = measure(arguments.connections, arguments.seconds)
    if arguments.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
