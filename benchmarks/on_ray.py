"""What a run on Ray costs, against the same run as local processes, and what its bus carries.

    python benchmarks/on_ray.py train [--repeats 3] [--steps 2_000_000]
    python benchmarks/on_ray.py bus

`train`: CartPole-v1 in turns: local processes; Ray on this machine; and, as root, Ray on two hosts
(network namespaces), with the actor on one and the learner and the bus on the other. Steady steps/s
once all is up; what comes before is told apart. Ray on this machine should reach 0.9.

`bus`: fragments of 330 kB from one process to another, both away from the bus's host, so that each
crosses Ray twice; weights of 36 kB from a learner's side to an actor's. Beside them the same bytes
handed over as a bare ObjectRef, without a bus between. At least 80 MB/s, and at most 30 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

sys.path.append(str(Path(__file__).parents[1]))  # tools/ is no part of the package

from tools.ray import local_ray
from tools.ray.hosts import Hosts, usable

FRAGMENT_BYTES, FRAGMENTS = 330_000, 600
WEIGHTS_BYTES, UPDATES = 36_000, 300
NAMESPACE = "benchmark"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("train", "bus"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2_000_000, help="of each run")
    arguments = parser.parse_args()
    if arguments.what == "bus":
        bus()
    else:
        train(arguments.repeats, arguments.steps)


# --- whole runs ----------------------------------------------------------------------------------


def train(repeats: int, steps: int) -> None:
    with tempfile.TemporaryDirectory(prefix="rookery-on-ray-") as home, _two_hosts() as hosts:
        ways: dict[str, Callable[[int, int], dict[str, Any]]] = {
            "local": lambda n, seed: _trained(home, n, seed, "local"),
            "ray, this machine": lambda n, seed: _trained(home, n, seed, "ray"),
        }
        if hosts is not None:
            far = ("--ray-address", hosts.address, "--set", "placement.actor.labels.role=far")
            ways["ray, two hosts"] = lambda n, seed: _trained(home, n, seed, "ray", hosts, far)
        _trained(home, 50_000, 0, "local")  # fills the compile cache
        found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
        for seed in range(1, repeats + 1):
            for way, run in ways.items():
                found[way].append(run(steps, seed))
    base = _rate(found["local"])
    print(f"{'':20}{'steps/s':>10}{'ratio':>8}{'start s':>9}   each")
    for way, runs in found.items():
        each = "  ".join(f"{run['steady_steps_per_s']:>9,.0f}" for run in runs)
        start = median(run["seconds"] - run["train_s"] for run in runs)
        print(f"{way:20}{_rate(runs):>10,.0f}{_rate(runs) / base:>8.2f}{start:>9.1f}   {each}")


def _rate(runs: list[dict[str, Any]]) -> float:
    return float(median(run["steady_steps_per_s"] for run in runs))


@contextlib.contextmanager
def _two_hosts() -> Iterator[Hosts | None]:
    if (why := usable()) is not None:
        print(f"two hosts are left out: {why}", file=sys.stderr)
        yield None
        return
    with Hosts({"owner": 1, "far": 1}, labels={"far": "role=far"}) as hosts:
        yield hosts


def _trained(
    home: str,
    steps: int,
    seed: int,
    launcher: str,
    hosts: Hosts | None = None,
    more: tuple[str, ...] = (),
) -> dict[str, Any]:
    words = [sys.executable, "-m", "rookery", "train", "CartPole-v1", "--launcher", launcher]
    words += ["--steps", str(steps), "--seed", str(seed), "--json", *more]
    environment = {**(hosts.environment if hosts else os.environ), "ROOKERY_HOME": home}
    began = time.monotonic()
    done = subprocess.run(
        hosts.command("owner", words) if hosts is not None else words,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return {**found, "seconds": time.monotonic() - began}


# --- the bus -------------------------------------------------------------------------------------


class Far:
    """A process away from the host: publishes, or reads."""

    def __init__(self, host: str) -> None:
        from rookery.bus.ray.client import HostedBus
        from rookery.bus.ray.line import HostLine

        self._bus = HostedBus(HostLine(NAMESPACE, host))
        self._read = self._bus.subscribe("t", "earliest")

    def publish(self, count: int, size: int, pause_s: float) -> None:
        from rookery.bus import Outgoing

        payload = os.urandom(size)
        for _ in range(count):
            time.sleep(pause_s)
            self._bus.publish([Outgoing("t", payload, "k", {"sent": str(time.time())})])

    def read(self, count: int) -> list[float]:
        """How old each was when it was there."""
        ages: list[float] = []
        while len(ages) < count:
            records = self._read.poll(10.0)
            now = time.time()
            ages += [now - float(record.headers["sent"]) for record in records]
        self._bus.retain("t", self._read.position())  # as a learner does, now and then
        return ages


class Bare:
    """Takes what it is handed, by reference."""

    def take(self, payload: bytes, sent: float) -> float:
        return time.time() - sent


def bus() -> None:
    with local_ray(), tempfile.TemporaryDirectory(prefix="rookery-bus-") as directory:
        import ray

        from rookery.bus.ray.host import BusHost

        limits = msgspec.json.encode({"t": 256 << 20})
        placed = ray.remote(num_cpus=0)(BusHost).options(name="host", namespace=NAMESPACE)
        host = placed.remote(f"{directory}/bus.sqlite", limits)
        sender, other, reader = (ray.remote(num_cpus=1)(Far).remote("host") for _ in range(3))
        ray.get([sender.publish.remote(5, 1000, 0.0), reader.read.remote(5)])

        began, half = time.perf_counter(), FRAGMENTS // 2
        both = [each.publish.remote(half, FRAGMENT_BYTES, 0.0) for each in (sender, other)]
        ray.get([*both, reader.read.remote(FRAGMENTS)])
        from_two = FRAGMENTS * FRAGMENT_BYTES / (time.perf_counter() - began) / 1e6
        began = time.perf_counter()
        ray.get(
            [sender.publish.remote(FRAGMENTS, FRAGMENT_BYTES, 0.0), reader.read.remote(FRAGMENTS)]
        )
        through = FRAGMENTS * FRAGMENT_BYTES / (time.perf_counter() - began) / 1e6
        asked = [sender.publish.remote(UPDATES, WEIGHTS_BYTES, 0.01), reader.read.remote(UPDATES)]
        ages = sorted(ray.get(asked)[1])

        bare = ray.remote(num_cpus=1)(Bare).remote()
        ray.get(bare.take.remote(b"", 0.0))
        payload, began = os.urandom(FRAGMENT_BYTES), time.perf_counter()
        for _ in range(FRAGMENTS // 4):
            ray.get([bare.take.remote(ray.put(payload), 0.0) for _ in range(4)])
        by_ref = FRAGMENTS * FRAGMENT_BYTES / (time.perf_counter() - began) / 1e6
        small = os.urandom(WEIGHTS_BYTES)
        refs = sorted(
            ray.get(bare.take.remote(ray.put(small), time.time())) for _ in range(UPDATES)
        )
        ray.kill(host)
    print(f"{'':28}{'bus on Ray':>12}{'bare ObjectRef':>16}")
    print(f"{'330 kB fragments, MB/s':28}{through:>12.0f}{by_ref:>16.0f}   at least 80")
    print(f"{'... of two actors':28}{from_two:>12.0f}")
    for name, share in (("36 kB weights, ms, median", 0.5), ("... 99 %", 0.99)):
        at = int(share * (UPDATES - 1))
        print(f"{name:28}{ages[at] * 1e3:>12.1f}{refs[at] * 1e3:>16.1f}   at most 30 (median)")


if __name__ == "__main__":
    main()
