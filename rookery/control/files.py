"""A run's files: how many there are, their sizes, and how they are removed."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.control.lease import OWNER

if TYPE_CHECKING:
    from rookery.control.home import Home

FULL_BYTES = 1 << 20  # a disk with less room than this is full: the log may take no command


def measure(directory: Path) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    sizes = [status.st_size for _, status in files_in(directory)]
    return len(sizes), sum(sizes)


def purge(home: Home, run: str) -> None:
    """Remove the files of a run that was deleted."""
    shutil.rmtree(home.run_dir(run), ignore_errors=True)


def make_room(home: Home, run: str) -> None:
    """On a full disk, let the files of a run that is about to be deleted go before the command is
    written down: there is no room for it. Cut off here, the run can be deleted again."""
    directory = home.run_dir(run)
    if not directory.is_dir() or shutil.disk_usage(directory).free >= FULL_BYTES:
        return
    lease = home.take_lease(run)
    if lease is None:
        return  # somebody is at it
    with lease:
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != OWNER:
                path.unlink(missing_ok=True)


def files_in(directory: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every plain file below, links and what vanishes meanwhile left out."""
    for folder, _, names in os.walk(directory, followlinks=False):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                yield path, status
