"""Leases: who carries a run, and whether a server lives, as locks on files of the home.

The system gives a lock back when its holder dies, however it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

OWNER = "owner.lock"  # in a run's directory
SERVER = "server.lock"  # in the home
TICK_S = 0.02


def take_lock(path: Path) -> BinaryIO | None:
    """A lock on a file until it is closed or its holder dies; None if another has it."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = open(path, "a+b")  # noqa: SIM115 closed by whoever gives the lock back
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


@contextlib.contextmanager
def holding(path: Path, patience_s: float) -> Iterator[bool]:
    """True while this process has the lock; False if another has."""
    lock = take_lock(path)
    deadline = time.monotonic() + patience_s
    while lock is None and time.monotonic() < deadline:
        time.sleep(TICK_S)
        lock = take_lock(path)
    with lock or contextlib.nullcontext():
        yield lock is not None


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
