"""One Kafka node that keeps running: `make kafka`, `make kafka-stop`.

    python -m tools.kafka.broker start [--port 9092] [--directory DIR]
    python -m tools.kafka.broker stop [--port 9092] [--directory DIR]

The node holds a lock on its pid file for as long as it lives, so a pid that we read beside a held
lock is that of the node and never of a process that was given the same number later.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rookery.errors import InputError, RookeryError
from tools.kafka.broker import POLL_S, STOP_S, Cluster
from tools.kafka.jars import kafka_cache


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kafka.broker")
    parser.add_argument("verb", choices=("start", "stop"))
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument("--directory", type=Path, help="for data, log and pid file")
    told = parser.parse_args(arguments)
    directory = told.directory or kafka_cache() / f"port-{told.port}"
    try:
        print(start(directory, told.port) if told.verb == "start" else stop(directory))
    except RookeryError as error:
        print(f"rookery: {error}", file=sys.stderr)
        return 2
    return 0


def start(directory: Path, port: int) -> str:
    """Start the node unless it runs; returns what to tell."""
    directory.mkdir(parents=True, exist_ok=True)
    with _pid_file(directory) as pid_file:
        if not _lock(pid_file):
            return f"Kafka runs already, pid {_pid(pid_file)}; its files are in {directory}"
        cluster = Cluster(directory=directory, port=port)
        try:
            cluster.launch(keep=pid_file.fileno())
            pid_file.truncate(0)
            pid_file.write(str(cluster.pid(0)))
            pid_file.flush()
            cluster.wait_until_ready(0)
        except BaseException:
            cluster.close()
            raise
    return (
        f"Kafka is ready; try: rookery train CartPole-v1 --bus kafka://{cluster.servers} "
        f"(log: {cluster.log(0)})"
    )


def stop(directory: Path) -> str:
    """Stop the node if it runs; returns what to tell."""
    if not (directory / "pid").exists():
        return f"no Kafka runs in {directory}"
    with _pid_file(directory) as pid_file:
        if _lock(pid_file):
            return f"no Kafka runs in {directory}"
        pid = _pid(pid_file)
        for ask in (signal.SIGTERM, signal.SIGKILL):
            os.kill(pid, ask)
            deadline = time.monotonic() + STOP_S
            while time.monotonic() < deadline:
                if _lock(pid_file):
                    return f"Kafka, pid {pid}, has stopped"
                time.sleep(POLL_S)
    raise InputError(f"Kafka, pid {pid}, does not end")


def _pid_file(directory: Path) -> TextIO:
    return (directory / "pid").open("a+")


def _lock(pid_file: TextIO) -> bool:
    """Take the lock; False while a node holds it."""
    try:
        fcntl.flock(pid_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pid(pid_file: TextIO) -> int:
    pid_file.seek(0)
    written = pid_file.read()
    if not written:
        raise InputError("Kafka is being started by somebody else: try again in a few seconds")
    return int(written)
