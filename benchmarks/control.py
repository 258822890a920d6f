"""The control plane under load, on loopback, with a true server and true training.

    python benchmarks/control.py stream [--clients 200] [--seconds 60]   # 4 paced runs
    python benchmarks/control.py reads [--rate 300] [--seconds 30]       # beside a run that trains
    python benchmarks/control.py cost [--rounds 6]                       # what watching costs it
    python benchmarks/control.py live [--rounds 3]                       # ready, set, scale

`stream` counts every sequence number of every channel at every client: nothing may be missing or
come twice; the delay is from the moment a record was published to that at which a client has it.
`cost` alternates stretches with and without 20 clients and 50 reads/s and compares steps/s. `live`
is how long a server takes to be ready, how many updates a changed learning rate takes to hold, and
how long the processes take to match when a run is scaled.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import websockets

from rookery.control.home import Home
from rookery.messages import MODEL_UPDATES

PACED = "rookery.testing.envs:PacedEnv"


class Server:
    """`rookery serve` in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {**os.environ, "ROOKERY_HOME": str(home)}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rookery", "serve", "--json", "--port", "0", "--cpus", "64"],
            env=self.environment,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.url, self.token = said["url"], said["token"]
        self.headers = {"Authorization": f"Bearer {self.token}"}

    def get(self, path: str) -> Any:
        found = httpx2.get(f"{self.url}/api/v1{path}", headers=self.headers, timeout=30)
        found.raise_for_status()
        return found.json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        found = httpx2.post(f"{self.url}/api/v1{path}", json=body, headers=self.headers, timeout=30)
        found.raise_for_status()
        return found.json()

    def submit(self, *options: str) -> str:
        """As the owner at this machine: through the log."""
        command = [sys.executable, "-m", "rookery", "submit", *options, "--json"]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, check=True, timeout=120
        )
        run: str = json.loads(done.stdout)["run"]
        return run

    def wait_for_steps(self, run: str, steps: int) -> None:
        deadline = time.monotonic() + 120
        while self.get(f"/runs/{run}")["env_steps"] < steps:
            if time.monotonic() > deadline:
                raise SystemExit(f"{run} did not get to {steps} steps: {self.get(f'/runs/{run}')}")
            time.sleep(0.2)

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    home = Path(tempfile.mkdtemp(prefix="rookery-control-"))
    server = Server(home)
    try:
        yield server
    finally:
        server.close()
        shutil.rmtree(home, ignore_errors=True)


# --- the stream ----------------------------------------------------------------------------------


class Watcher:
    """One client of the stream: what it got, and how late."""

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = {}
        self.delays_s: list[float] = []
        self.left_out = 0

    async def watch(self, server: Server, runs: list[str], stop: asyncio.Event) -> None:
        url = server.url.replace("http", "ws", 1) + "/api/v1/stream"
        kinds = ["events", "commands", "metrics", "actors"]
        async with websockets.connect(
            url, additional_headers=server.headers, max_size=1 << 24
        ) as socket:
            await socket.send(json.dumps({"type": "subscribe", "runs": runs, "kinds": kinds}))
            while not stop.is_set():
                try:
                    frame = await asyncio.wait_for(socket.recv(), 1.0)
                except TimeoutError:
                    continue
                self.note(json.loads(frame))

    def note(self, frame: dict[str, Any]) -> None:
        now = time.time()
        if frame["type"] == "left_out":
            self.left_out += frame["count"]
        for message in frame.get("messages", ()):
            self.seen.setdefault(message["channel"], []).append(message["seq"])
            self.delays_s.append(now - message["time_s"])


def holes(watchers: list[Watcher]) -> tuple[int, int]:
    """(missed, doubled): against what any of them saw between a channel's first and last for it."""
    everything: dict[str, set[int]] = {}
    for watcher in watchers:
        for channel, seqs in watcher.seen.items():
            everything.setdefault(channel, set()).update(seqs)
    missed = doubled = 0
    for watcher in watchers:
        for channel, known in everything.items():
            seqs = watcher.seen.get(channel, [])
            doubled += len(seqs) - len(set(seqs))
            if seqs:
                expected = {seq for seq in known if seqs[0] <= seq <= seqs[-1]}
                missed += len(expected - set(seqs))
                if channel.startswith(("metrics/", "actors/")):  # there the offsets have no holes
                    missed += seqs[-1] - seqs[0] + 1 - len(expected)
            else:
                missed += len(known)
    return missed, doubled


async def stream(server: Server, clients: int, seconds: float, runs: list[str]) -> dict[str, Any]:
    stop = asyncio.Event()
    watchers = [Watcher() for _ in range(clients)]
    tasks = [asyncio.create_task(w.watch(server, runs, stop)) for w in watchers]
    await asyncio.sleep(3)  # all have come
    for watcher in watchers:
        watcher.delays_s.clear()
    await asyncio.sleep(seconds)
    delays = sorted(delay for watcher in watchers for delay in watcher.delays_s)
    stop.set()
    await asyncio.gather(*tasks)
    missed, doubled = holes(watchers)
    return {
        "clients": clients,
        "runs": len(runs),
        "seconds": seconds,
        "messages": len(delays),
        "missed": missed + sum(w.left_out for w in watchers),
        "doubled": doubled,
        "delay_ms": quantiles([1000 * d for d in delays]),
    }


def stream_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    with serving() as server:
        paced = ["--envs-per-actor", "8", "--env.step_s=0.008", "--set", "actors.rollout_steps=32"]
        runs = [
            server.submit(PACED, *paced, "--steps", "100_000_000", "--seed", str(seed))
            for seed in range(4)
        ]
        for run in runs:
            server.wait_for_steps(run, 2000)
        before = {run: server.get(f"/runs/{run}")["env_steps"] for run in runs}
        began = time.monotonic()
        found = asyncio.run(stream(server, arguments.clients, arguments.seconds, runs))
        elapsed = time.monotonic() - began
        found["steps_per_s"] = [
            round((server.get(f"/runs/{run}")["env_steps"] - before[run]) / elapsed) for run in runs
        ]
        return found


# --- reads ---------------------------------------------------------------------------------------


class Connection:
    """A kept-alive connection that costs the machine little: it is the server that is measured."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._host = server.url.removeprefix("http://")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> None:
        if self._streams is None:
            host, port = self._host.split(":")
            self._streams = await asyncio.open_connection(host, int(port))
        reader, writer = self._streams
        lines = (
            f"GET /api/v1{path} HTTP/1.1",
            f"Host: {self._host}",
            f"Authorization: Bearer {self._server.token}",
        )
        writer.write("\r\n".join((*lines, "", "")).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{path}: {head.decode()}")
        length = next(line for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(int(length.partition(b":")[2]))

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def reads(server: Server, rate: float, seconds: float, run: str) -> list[float]:
    """Latencies in seconds of reads at a steady rate, whoever is late (an open loop)."""
    paths = ["/runs", f"/runs/{run}", f"/runs/{run}/config", f"/runs/{run}/events?limit=50"]
    paths.append(f"/runs/{run}/metrics?names=mean_return_100&points=200")
    free: asyncio.Queue[Connection] = asyncio.Queue()
    connections = [Connection(server) for _ in range(32)]
    latencies: list[float] = []

    async def read(path: str) -> None:
        began = time.perf_counter()
        connection = await free.get()
        await connection.get(path)
        free.put_nowait(connection)
        latencies.append(time.perf_counter() - began)

    for connection in connections:
        await connection.get(paths[-1])  # warm
        free.put_nowait(connection)
    tasks, began = [], time.perf_counter()
    for i in range(int(rate * seconds)):
        late = began + i / rate - time.perf_counter()
        if late > 0:
            await asyncio.sleep(late)
        tasks.append(asyncio.create_task(read(paths[i % len(paths)])))
    await asyncio.gather(*tasks)
    for connection in connections:
        connection.close()
    return latencies


def reads_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    with serving() as server:
        run = server.submit("CartPole-v1", "--steps", "1_000_000_000")
        server.wait_for_steps(run, 200_000)
        latencies = asyncio.run(reads(server, arguments.rate, arguments.seconds, run))
        return {
            "rate": arguments.rate,
            "reads": len(latencies),
            "latency_ms": quantiles([1000 * latency for latency in latencies]),
            "steps_per_s": round(server.get(f"/runs/{run}")["steps_per_s"] or 0),
        }


# --- the price of being watched ------------------------------------------------------------------


async def _watched(server: Server, run: str, seconds: float) -> None:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(Watcher().watch(server, ["*"], stop)) for _ in range(20)]
    await reads(server, 50, seconds, run)
    stop.set()
    await asyncio.gather(*tasks)


def cost_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    rates: dict[str, list[float]] = {"alone": [], "watched": []}
    with serving() as server:
        run = server.submit("CartPole-v1", "--steps", "1_000_000_000")
        server.wait_for_steps(run, 500_000)
        for _ in range(arguments.rounds):
            for kind in ("alone", "watched"):
                before, began = server.get(f"/runs/{run}")["env_steps"], time.monotonic()
                if kind == "alone":
                    time.sleep(arguments.seconds)
                else:
                    asyncio.run(_watched(server, run, arguments.seconds))
                steps = server.get(f"/runs/{run}")["env_steps"] - before
                rates[kind].append(steps / (time.monotonic() - began))
    alone, watched = (statistics.median(rates[kind]) for kind in ("alone", "watched"))
    return {
        "alone": round(alone),
        "watched": round(watched),
        "ratio": round(watched / alone, 3),
        "rounds": {kind: [round(rate) for rate in found] for kind, found in rates.items()},
    }


# --- how soon a change holds ---------------------------------------------------------------------


def live_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, list[float]] = {"ready_s": [], "set_updates": []}
    for _ in range(arguments.rounds):
        with serving() as server:
            while httpx2.get(f"{server.url}/readyz").status_code != 200:
                time.sleep(0.01)
            found["ready_s"].append(round(time.monotonic() - server.began, 2))
            run = server.submit("CartPole-v1", "--steps", "1_000_000_000")
            server.wait_for_steps(run, 200_000)
            found["set_updates"].append(_updates_until_set(server, run))
            for count in (1, 4, 0, 2):
                seconds = _seconds_until_scaled(server, run, count)
                found.setdefault(f"scale_to_{count}_s", []).append(round(seconds, 2))
    return found


def _updates_until_set(server: Server, run: str) -> float:
    """From the newest weights at the moment of the answer to the first update with the new rate."""
    home = Home(server.home)
    bus = home.read_run_bus(home.state(run))
    assert bus is not None
    server.post(f"/runs/{run}/set-hyperparameters", {"values": {"algorithm.learning_rate": 1e-4}})
    version = bus.newest_headers(MODEL_UPDATES)["main"]["version"]
    bus.close()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for entry in server.get(f"/runs/{run}/events?limit=1000")["entries"]:
            if entry["kind"] == "hyperparameters_changed":
                return float(entry["data"]["update"] - int(version.partition(".")[2]))
        time.sleep(0.05)
    raise SystemExit("the learner did not take up the new rate")


def _seconds_until_scaled(server: Server, run: str, count: int) -> float:
    """Until exactly so many processes of actors live, by the system's own list."""
    began = time.monotonic()
    server.post(f"/runs/{run}/scale-actors", {"count": count})
    while _living_actors(server.process.pid) != count:
        if time.monotonic() - began > 60:
            raise SystemExit(f"{count} actors did not come to be")
        time.sleep(0.02)
    return time.monotonic() - began


def _living_actors(server: int) -> int:
    count = 0
    for child in psutil.Process(server).children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # it ended meanwhile
            count += "actor" in child.cmdline()
    return count


def quantiles(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    last = len(ordered) - 1
    return {name: round(ordered[int(share * last)], 1) for name, share in at.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["stream", "reads", "cost", "live"])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    usual = {"stream": 60.0, "reads": 30.0, "cost": 10.0, "live": 0.0}
    arguments.seconds = arguments.seconds or usual[arguments.what]
    benchmark = {
        "stream": stream_benchmark,
        "reads": reads_benchmark,
        "cost": cost_benchmark,
        "live": live_benchmark,
    }
    print(json.dumps(benchmark[arguments.what](arguments), indent=2))


if __name__ == "__main__":
    main()
