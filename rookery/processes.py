"""Other processes of this machine, as the system sees them: whether one is stopped, who has a lock,
what each takes of the machine.

A pid alone names nobody for long: with the time at which its process started it does.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

PS_PATIENCE_S = 10.0
SQLITE_WRITER_LOCKS = range(120, 123)  # bytes of the -shm file: write, checkpoint, recover


class Seen(NamedTuple):
    """A process that exists."""

    started: int  # tells it from another one with its pid
    stopped: bool  # by SIGSTOP, a debugger, Ctrl-Z: it does nothing until it is let go on


def look_at(pid: int) -> Seen | None:
    """What the system says of a process; None: there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _asked(pid)
    fields = stat.rpartition(")")[2].split()  # the name before may hold anything
    return None if fields[0] in "ZX" else Seen(int(fields[19]), fields[0] in "Tt")


def session_of(leader: int) -> list[int]:
    """Who was started by it, however far below, unless they began a session of their own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


def _asked(pid: int) -> Seen | None:
    """The same where there is no /proc."""
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        said = subprocess.run(asked, capture_output=True, timeout=PS_PATIENCE_S, check=False).stdout
    except subprocess.TimeoutExpired:  # then nobody is accused
        return None
    state, _, started = said.decode(errors="replace").strip().partition(" ")
    if not state or state.startswith("Z"):
        return None
    return Seen(zlib.crc32(started.strip().encode()), state.startswith("T"))


class Used(NamedTuple):
    """What a process, or all of them together, has taken of the machine so far."""

    cpu_s: float  # of one core
    memory_bytes: int


def used_by(pid: int) -> Used | None:
    """None: there is no such process, or the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return Used(ticks / os.sysconf("SC_CLK_TCK"), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"))


def used_by_all() -> Used | None:
    """The same of the whole machine; its caches can be had back, and count as free."""
    try:
        ticks = [int(part) for part in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
    except OSError:
        return None
    kilobytes = {fields[0].rstrip(":"): int(fields[1]) for fields in lines}
    idle = ticks[3] + ticks[4]  # the fifth: idle while a disk is waited for
    taken = kilobytes["MemTotal"] - kilobytes["MemAvailable"]
    return Used((sum(ticks) - idle) / os.sysconf("SC_CLK_TCK"), taken << 10)


def memory_bytes() -> int:
    """That the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def machine() -> int:
    """Tells this machine, since it was last started, from every other: whose clock counts."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        first = look_at(1)
        name = f"{socket.gethostname()} {first.started if first else 0}".encode()
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")


def sqlite_writers(path: Path) -> list[int]:
    """Pids that hold up the writers of a database in WAL mode, as far as the system tells."""
    try:
        inode = str(os.stat(f"{path}-shm").st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    found = []
    for fields in (line.split() for line in lines if "->" not in line):
        _, _, _, mode, pid, place, first, last = fields
        mine = place.rpartition(":")[2] == inode and mode == "WRITE" and last != "EOF"
        if mine and not {*SQLITE_WRITER_LOCKS}.isdisjoint(range(int(first), int(last) + 1)):
            found.append(int(pid))
    return [pid for pid in found if pid > 0]
