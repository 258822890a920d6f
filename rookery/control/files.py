"""A run's files: how many there are, and their sizes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def measure(directory: Path) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    sizes = [status.st_size for _, status in files_in(directory)]
    return len(sizes), sum(sizes)


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
