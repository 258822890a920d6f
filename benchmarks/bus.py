"""How fast is each bus? Throughput and wake-up between two processes (threads for memory).

    python benchmarks/bus.py [--json] [--directory DIR] [--kafka]

Throughput: one side publishes 330 kB messages as fast as it can, the other reads and retains them.
Frames: the same with whole fragments of images (16 x 32 of 84 x 84 x 4), decoded by the reader.
Wake-up: from before publish to after poll, one message at a time, at random moments 5 to 25 ms
apart so that the reader waits as it does in a run. Weights (330 kB) are encoded before and decoded
after that. With `--kafka` a real broker is started on loopback, and shares the machine. Takes less
than 30 s.
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
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from rookery.bus import EARLIEST, Bus, Outgoing
from rookery.bus.open import open_bus
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader, decode_fragment, encode_fragment
from rookery.messages.steps import Steps
from rookery.messages.weights import Weights, WeightsHeader, decode_weights, encode_weights
from tools.kafka.broker import Cluster

MESSAGE_BYTES = 330_000
SMALL_BYTES = 200
THROUGHPUT_S = 2.0
WAKE_UPS = 200
LIMITS = {"stream": 64 << 20, "experiences": 64 << 20}
TIMEOUT_S = 15.0


def publish(bus: Bus) -> None:
    """The other side: a stream for a while, then single messages."""
    payload = os.urandom(MESSAGE_BYTES)
    end = time.monotonic() + THROUGHPUT_S
    while time.monotonic() < end:
        bus.publish([Outgoing("stream", payload)])
    bus.publish([Outgoing("stream", b"")])
    frames = encode_fragment(image_fragment())
    end = time.monotonic() + THROUGHPUT_S
    while time.monotonic() < end:
        bus.publish([Outgoing("experiences", frames, "0.1")])
    bus.publish([Outgoing("experiences", b"", "0.1")])
    assert bus.subscribe("ready", EARLIEST).poll(TIMEOUT_S), "the reader has stopped"
    rng = random.Random(0)
    for topic, make in MESSAGES.items():
        for _ in range(WAKE_UPS):
            time.sleep(rng.uniform(0.005, 0.025))
            sent = str(time.monotonic_ns())
            bus.publish([Outgoing(topic, make(), "main", {"sent": sent})])


def image_fragment() -> Fragment:
    steps, lanes = 16, 32
    header = FragmentHeader(
        run="r",
        policy="main",
        actor="0.1",
        sequence=0,
        first_step=0,
        steps=steps * lanes,
        version=WeightsVersion(1, 1),
        seats=("player",),
        players=("policy",),
    )
    flags, small = np.zeros((steps, lanes), bool), np.zeros((steps, lanes), np.uint8)
    numbers = np.zeros((steps, lanes), np.float32)
    frames = np.frombuffer(os.urandom((steps + 1) * lanes * 84 * 84 * 4), np.uint8)
    observation = {"": frames.reshape(steps + 1, lanes, 84, 84, 4)}
    rows = Steps(
        observation,
        small.astype(np.int64),
        numbers,
        flags,
        flags,
        ~flags,
        numbers,
        *(small,) * 3,
    )
    return Fragment(header, rows)


WEIGHTS = Weights(
    WeightsHeader(run="r", policy="main", version=WeightsVersion(1, 1), env_steps=0),
    {"w": np.random.default_rng(0).random((MESSAGE_BYTES // 4,), np.float32)},
)
MESSAGES: dict[str, Callable[[], bytes]] = {
    "small": lambda: bytes(SMALL_BYTES),
    "large": lambda: bytes(MESSAGE_BYTES),
    "model_updates": lambda: encode_weights(WEIGHTS),
}


def measure(bus: Bus) -> dict[str, float]:
    """This side: read the stream, then time each wake-up."""
    figures = {"MB/s": read_stream(bus, "stream", lambda payload: None)}
    figures["frames MB/s"] = read_stream(bus, "experiences", decode_fragment)
    bus.publish([Outgoing("ready", b"")])
    for topic in MESSAGES:
        name = "weights" if topic == "model_updates" else topic
        waits = sorted(read_wake_ups(bus, topic, name == "weights"))
        figures[f"{name} median ms"] = waits[len(waits) // 2]
        figures[f"{name} p99 ms"] = waits[int(len(waits) * 0.99)]
    return figures


def read_stream(bus: Bus, topic: str, decode: Callable[[bytes], object]) -> float:
    """MB/s from the first record to the empty one that ends the stream."""
    subscription = bus.subscribe(topic, EARLIEST)
    began, size = 0.0, 0
    while True:
        records = subscription.poll(TIMEOUT_S)
        assert records, "the publisher has stopped"
        began = began or time.monotonic()
        for record in records:
            size += len(record.payload)
            if record.payload:
                decode(record.payload)
        bus.retain(topic, subscription.position())
        if not records[-1].payload:
            return size / 1e6 / (time.monotonic() - began)


def read_wake_ups(bus: Bus, topic: str, weights: bool) -> list[float]:
    """Milliseconds from publish to receive of each record."""
    subscription = bus.subscribe(topic, EARLIEST)
    waits: list[float] = []
    while len(waits) < WAKE_UPS:
        records = subscription.poll(TIMEOUT_S)
        for record in records if weights else ():
            decode_weights(record.payload)
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
    parser.add_argument("--kafka", action="store_true", help="also on a real broker")
    parser.add_argument("--publish", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.publish:
        publish(open_bus(arguments.publish, LIMITS))
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        uris = {"memory": "memory:", "sqlite": f"sqlite:{directory}/bus.sqlite"}
        with ExitStack() as stack:
            if arguments.kafka:
                cluster = stack.enter_context(Cluster(directory=Path(directory)))
                uris["kafka"] = f"kafka://{cluster.servers}"
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
