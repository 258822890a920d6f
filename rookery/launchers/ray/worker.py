"""A worker inside the cluster: a plain class that the driver places as a Ray actor.

The Ray actor is the worker: its process plays or trains in a thread of `work`, while the driver
asks by `look` how far it is. What it prints goes to a file of its node and from there, a piece with
each look, to its log at the owner's.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import shutil
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from rookery.worker import WorkerId
from rookery.worker.process import Stop
from rookery.worker.progress import read_progress

LOG = "log"
MOST_LOG = 256 << 10  # bytes of a log in one answer
MOST_KEPT = 64 << 20  # on the node

ENTRY = "rookery.cli.workers"  # the package's entry points, which every launcher ends in


class Glance(msgspec.Struct, frozen=True, array_like=True):
    """worker -> driver: how far it is. Times are ages: clocks of machines differ."""

    count: int = 0
    doing: str = "starting"
    same_s: float = 0.0
    silent_s: float = 0.0
    log: bytes = b""
    known: bool = False  # whether it has said anything of itself yet


class End(msgspec.Struct, frozen=True, array_like=True):
    code: int
    log: bytes


class Birth(msgspec.Struct, frozen=True, array_like=True):
    pid: int
    host: str
    node: str
    version: str


class RayWorker:
    def __init__(self, kind: str, index: int, incarnation: int) -> None:
        self._worker = WorkerId(kind, index, incarnation)
        self._stop = Stop()
        self._files = Path(tempfile.mkdtemp(prefix="rookery-worker-"))
        self._sent = 0  # of the log
        with open(self._files / LOG, "ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def born(self) -> bytes:
        import ray

        node, host = ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address()
        return _encode(Birth(os.getpid(), host, node, version("rookery")))

    def work(self, briefing: bytes, namespace: str, host: str, host_node: str) -> bytes:
        import ray

        near = ray.get_runtime_context().get_node_id() == host_node
        entry: Any = importlib.import_module(ENTRY)
        try:
            code = entry.elsewhere(
                self._worker,
                briefing,
                namespace,
                host,
                near,
                self._files,
                self._stop,
                ray.util.get_node_ip_address(),
            )
            return _encode(End(code, self._log()))
        finally:
            shutil.rmtree(self._files, ignore_errors=True)

    def look(self) -> bytes:
        found, now = read_progress(self._files / self._worker.name), time.monotonic()
        if found is None:
            return _encode(Glance(log=self._log()))
        same_s, silent_s = now - found.since, now - found.beat
        return _encode(Glance(found.count, found.doing, same_s, silent_s, self._log(), True))

    def say_where(self) -> bytes:
        """What each thread is doing, before it is ended."""
        faulthandler.dump_traceback(all_threads=True)
        return self._log()

    def stop(self) -> None:
        self._stop.ask()

    def _log(self) -> bytes:
        try:
            with open(self._files / LOG, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                self._sent = max(self._sent, size - MOST_LOG)
                file.seek(self._sent)
                found = file.read(MOST_LOG)
        except FileNotFoundError:
            return b""
        self._sent += len(found)
        if self._sent > MOST_KEPT:  # it is appended to: what is sent can go
            os.truncate(self._files / LOG, 0)
            self._sent = 0
        return found


def _encode(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)
