"""A worker's log, kept small from outside: its beginning and its newest part stay.

    bound(path)     # many times a second: a look at its size, as a rule

Workers write by themselves, with O_APPEND, whether anybody reads or lives: a pipe would hold them
up when their launcher is slow or frozen, and lose their last words when it dies. So the launcher
cuts the file under them. What a worker writes within the microsecond of the cut is lost; after its
death nothing is.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

MOST_BYTES = 8 << 20  # before it is cut
FIRST_BYTES, NEWEST_BYTES = 256 << 10, 1 << 20  # that stay
LIVES = 10  # incarnations of a worker whose logs are kept
_LEFT_OUT = re.compile(rb"\[rookery left out ([\d,]+) bytes here[^\n]*\n")

logger = logging.getLogger(__name__)


def bound(path: Path, most: int = MOST_BYTES) -> None:
    """Cut the middle out of a log that has become too long."""
    try:
        if path.stat().st_size > most:
            file = os.open(path, os.O_RDWR)
            try:
                _cut(file)
            finally:
                os.close(file)
    except FileNotFoundError:
        return
    except OSError as error:  # a log is no reason to stop training
        logger.debug("%s is not cut: %s", path, error)


def forget_old(directory: Path, worker: str) -> None:
    """Remove the logs of a worker's earliest incarnations."""
    lives = re.compile(rf"{re.escape(worker)}\.(\d+)\.log")
    found = {int(m[1]): p for p in directory.iterdir() if (m := lives.fullmatch(p.name))}
    for incarnation in sorted(found)[:-LIVES]:
        found[incarnation].unlink(missing_ok=True)


def _cut(file: int) -> None:
    """Move the newest part up, and end the file there; what is written meanwhile comes along."""
    first, left_out = _beginning(file)
    start = os.fstat(file).st_size - NEWEST_BYTES
    newest = os.pread(file, NEWEST_BYTES, start)
    line_end = newest.find(b"\n") + 1
    gone = left_out + start + line_end - first
    said = b"[rookery left out %s bytes here: a log keeps its first and its newest part]\n"
    moved = said % f"{gone:,}".encode() + newest[line_end:]
    end, read = first, start + len(newest)
    while moved:
        os.pwrite(file, moved, end)
        end += len(moved)
        moved = os.pread(file, NEWEST_BYTES, read)
        read += len(moved)
    os.ftruncate(file, end)


def _beginning(file: int) -> tuple[int, int]:
    """Where the beginning that stays is over, and how much was left out after it before."""
    head = os.pread(file, FIRST_BYTES + 200, 0)
    found = _LEFT_OUT.search(head)
    if found is not None:
        return found.start(), int(found[1].replace(b",", b"")) - len(found[0])
    return head.rfind(b"\n", 0, FIRST_BYTES) + 1 or FIRST_BYTES, 0
