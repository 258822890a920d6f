"""Leases: who carries a run, and whether a server lives, as locks on files of the home.

    with take_lock(path) as lease: ...     # None if another has it
    evict(path, silent_s)                   # ends a holder that is frozen; says whom

The system gives a lock back when its holder dies, however it dies. But it belongs to who renews it:
beside the lock lies the holder's progress, and one that gives no sign of life may be ended by
whoever is to take over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rookery.processes import Seen, look_at
from rookery.worker.progress import BEAT_S, Progress, Pulse, read_progress

OWNER = "owner.lock"  # in a run's directory
SERVER = "server.lock"  # in the home
SERVER_PLACE = "server.json"  # beside it: where it listens, and how many CPUs runs have
TICK_S = 0.02
HELD_UP = 5
END_S = 10.0  # for the system to take back what a dead process had


class Lease:
    """A lock that is held, and renewed every second."""

    def __init__(self, lock: BinaryIO, pulse: Pulse) -> None:
        self._lock, self._pulse = lock, pulse

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give it back."""
        self._pulse.close()
        self._lock.close()


def take_lock(path: Path) -> Lease | None:
    """The lock until it is closed or its holder dies; None if another has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = open(path, "a+b")  # noqa: SIM115 closed by whoever gives the lock back
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return Lease(file, Pulse(_renewed(path), "owning"))


def wait_for_lock(path: Path, patience_s: float) -> Lease | None:
    """The same, for somebody who looks at the lock may have it for a moment."""
    lease, deadline = take_lock(path), time.monotonic() + patience_s
    while lease is None and time.monotonic() < deadline:
        time.sleep(TICK_S)
        lease = take_lock(path)
    return lease


@contextlib.contextmanager
def holding(path: Path, patience_s: float) -> Iterator[bool]:
    """True while this process has the lock; False if another has."""
    lease = wait_for_lock(path, patience_s)
    with lease or contextlib.nullcontext():
        yield lease is not None


def is_locked(path: Path) -> bool:
    """Whether somebody has the lock, who may be this process."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


class Holder(NamedTuple):
    """A process of this machine that has a lease."""

    progress: Progress
    seen: Seen

    @property
    def silent_s(self) -> float:
        return time.monotonic() - self.progress.beat

    def is_frozen(self, silent_s: float) -> bool:
        """Where the system does not say so, an environment in its process may hold it up."""
        return self.silent_s >= (silent_s if self.seen.stopped else HELD_UP * silent_s)

    def __str__(self) -> str:
        return f"process {self.progress.pid}"


def holder(path: Path) -> Holder | None:
    """Who has it, where that is known: on this machine, and of a Rookery that says so."""
    progress = read_progress(_renewed(path)) if is_locked(path) else None
    seen = look_at(progress.pid) if progress is not None else None
    if progress is None or seen is None or seen.started != progress.started:
        return None
    return Holder(progress, seen)


def evict(path: Path, silent_s: float) -> str | None:
    """End a holder that has been silent for so long; who that was, in words.

    Looked at twice: a machine that comes back to life wakes its processes one by one.
    """
    found = holder(path)
    if found is None or not found.is_frozen(silent_s):
        return None
    time.sleep(2 * BEAT_S)
    if (again := holder(path)) is None or again.progress.beat != found.progress.beat:
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(found.progress.pid, signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while is_locked(path) and time.monotonic() < deadline:
        time.sleep(TICK_S)
    return f"{found} was frozen for {again.silent_s:.0f} s and was ended"


def _renewed(path: Path) -> Path:
    return path.with_suffix(".progress")
