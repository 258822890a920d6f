"""Who writes to a store: a name for this process, by which others can tell whether it lives.

A store that several machines share cannot lock. So what a writer has not finished carries its name:
who is on the same machine can see whether that process is gone.
"""

from __future__ import annotations

import os
import re
import secrets
from functools import cache

from rookery.processes import look_at, machine

_NAME = re.compile(r"([0-9a-f]+-[0-9a-f]+)-(\d+)-(\d+)-[0-9a-f]+")


def writer_name() -> str:
    """Of this process, for one save: place, pid, when it started, and something that is new."""
    seen = look_at(os.getpid())
    started = seen.started if seen is not None else 0
    return f"{_place()}-{os.getpid()}-{started}-{secrets.token_hex(4)}"


def is_gone(name: str) -> bool:
    """Whether that process was of this machine and has ended; False where nobody here can know."""
    found = _NAME.fullmatch(name)
    if found is None or found[1] != _place():
        return False
    seen = look_at(int(found[2]))
    return seen is None or seen.started != int(found[3])


@cache
def _place() -> str:
    """This machine since it was started, and whose pids we see: those of another container on it
    are not ours to judge."""
    try:
        pids = re.sub(r"\D", "", os.readlink("/proc/self/ns/pid"))
    except OSError:
        pids = "0"
    return f"{machine():x}-{int(pids):x}"
