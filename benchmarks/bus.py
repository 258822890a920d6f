"""How fast is each embedded bus? Throughput and wake-up between two processes (threads for memory).

    python benchmarks/bus.py [--json] [--directory DIR]

Throughput: one side publishes 330 kB messages as fast as it can, the other reads and retains them.
Wake-up: from before publish to after poll, one message at a time, at random moments 5 to 25 ms
apart so that the reader waits as it does in a run. Takes less than 20 s.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from rookery.bus import EARLIEST, Bus, Outgoing
from rookery.bus.open import open_bus

MESSAGE_BYTES = 330_000
SMALL_BYTES = 200
THROUGHPUT_S = 2.0
WAKE_UPS = 120
LIMITS = {"stream": 64 << 20}
TIMEOUT_S = 15.0


def publish(bus: Bus) -> None:
    """The other side: a stream for a while, then single messages."""
    payload = os.urandom(MESSAGE_BYTES)
    end = time.monotonic() + THROUGHPUT_S
    while time.monotonic() < end:
        bus.publish([Outgoing("stream", payload)])
    bus.publish([Outgoing("stream", b"")])
    assert bus.subscribe("ready", EARLIEST).poll(TIMEOUT_S), "the reader has stopped"
    rng = random.Random(0)
    for topic, size in (("small", SMALL_BYTES), ("large", MESSAGE_BYTES)):
        payload = os.urandom(size)
        for _ in range(WAKE_UPS):
            time.sleep(rng.uniform(0.005, 0.025))
            bus.publish([Outgoing(topic, payload, headers={"sent": str(time.monotonic_ns())})])


def measure(bus: Bus) -> dict[str, float]:
    """This side: read the stream, then time each wake-up."""
    figures = {"MB/s": read_stream(bus)}
    bus.publish([Outgoing("ready", b"")])
    for topic in ("small", "large"):
        waits = sorted(read_wake_ups(bus, topic))
        figures[f"{topic} median ms"] = waits[len(waits) // 2]
        figures[f"{topic} p99 ms"] = waits[int(len(waits) * 0.99)]
    return figures


def read_stream(bus: Bus) -> float:
    """MB/s from the first record to the empty one that ends the stream."""
    subscription = bus.subscribe("stream", EARLIEST)
    began, size = 0.0, 0
    while True:
        records = subscription.poll(TIMEOUT_S)
        assert records, "the publisher has stopped"
        began = began or time.monotonic()
        size += sum(len(record.payload) for record in records)
        bus.retain("stream", subscription.position())
        if not records[-1].payload:
            return size / 1e6 / (time.monotonic() - began)


def read_wake_ups(bus: Bus, topic: str) -> list[float]:
    """Milliseconds from publish to receive of each record."""
    subscription = bus.subscribe(topic, EARLIEST)
    waits: list[float] = []
    while len(waits) < WAKE_UPS:
        records = subscription.poll(TIMEOUT_S)
        now = time.monotonic_ns()  # one clock for all processes of the machine
        assert records, "the publisher has stopped"
        waits += [(now - int(record.headers["sent"])) / 1e6 for record in records]
        bus.retain(topic, subscription.position())
    return waits


def benchmark(uri: str) -> dict[str, float]:
    with ExitStack() as stack:
        bus = open_bus(uri, LIMITS)
        stack.callback(bus.close)
        if uri == "memory:":
            thread = threading.Thread(target=publish, args=(bus,), daemon=True)
            thread.start()
            return measure(bus)
        root = str(Path(__file__).parents[1])
        process = subprocess.Popen(
            [sys.executable, __file__, "--publish", uri], env={**os.environ, "PYTHONPATH": root}
        )
        stack.callback(process.wait, TIMEOUT_S)
        stack.callback(process.terminate)
        return measure(bus)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--directory", help="where the SQLite file goes (default: a temporary one)")
    parser.add_argument("--publish", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.publish:
        publish(open_bus(arguments.publish, LIMITS))
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        uris = {"memory": "memory:", "sqlite": f"sqlite:{directory}/bus.sqlite"}
        results = {name: benchmark(uri) for name, uri in uris.items()}
    if arguments.json:
        print(json.dumps(results))
        return
    columns = list(results["memory"])
    print(f"{'bus':<8}" + "".join(f"{column:>17}" for column in columns))
    for name, figures in results.items():
        print(f"{name:<8}" + "".join(f"{figures[column]:>17.2f}" for column in columns))


if __name__ == "__main__":
    main()
