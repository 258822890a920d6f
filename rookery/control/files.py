"""A run's files: how many there are, their sizes, and how they are removed."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.config.models import is_far
from rookery.control.lease import OWNER
from rookery.errors import RookeryError

if TYPE_CHECKING:
    from rookery.control.home import Home
    from rookery.control.run_state import RunState

FULL_BYTES = 1 << 20  # a disk with less room than this is full: the log may take no command

logger = logging.getLogger(__name__)


def measure(directory: Path) -> tuple[int, int]:
    """How many files there are, and their bytes."""
    sizes = [status.st_size for _, status in files_in(directory)]
    return len(sizes), sum(sizes)


def purge(home: Home, state: RunState, aside: bool = False) -> None:
    """Remove the files of a run that was deleted, and what it wrote to an object store. A directory
    that a person named stays, as it may hold more. `aside`: nobody waits for the store."""
    if is_far(_uri(state)):
        if aside:
            threading.Thread(target=_purge_store, args=(home, state), daemon=True).start()
        else:
            _purge_store(home, state)
    shutil.rmtree(home.run_dir(state.id), ignore_errors=True)


def _purge_store(home: Home, state: RunState) -> None:
    from rookery.checkpoints.removal import remove_run
    from rookery.checkpoints.store import open_store
    from rookery.control.context import allowed_files

    try:
        files = allowed_files(home, state)
        remove_run(open_store(files.checkpoints), open_store(files.snapshots), state.id)
    except RookeryError as error:  # the run is deleted: nobody will ask again
        logger.warning("checkpoints of %s may still be in %s: %s", state.id, _uri(state), error)


def _uri(state: RunState) -> str:
    """Where it keeps its checkpoints, if that was said; also of a config that cannot be read."""
    try:
        return str(state.config["config"]["checkpoint"]["uri"])
    except (KeyError, TypeError):
        return ""


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
