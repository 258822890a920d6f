"""Watches over the workers of a run: ends whoever makes no progress, and says why; and any other
process that is stopped while it holds the run's files locked.

    with Watcher(config, files) as watcher:
        watcher.lives = {"actor-0.1": seen.life}    # whenever they change
        watcher.trouble                             # who is silent now, in words for a person
        watcher.ended.pop("actor-0.1", None)        # why it was ended, if it was

A thread of its own, that needs neither the bus nor the log: a worker that is frozen may hold either
one locked, and everybody else who could end it may be waiting for that lock.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rookery.config.models import RunConfig
from rookery.control.supervision import Silence, Vigil
from rookery.launchers import Life
from rookery.processes import Seen, look_at, sqlite_writers
from rookery.worker.progress import Progress

LOOK_S = 1.0

logger = logging.getLogger(__name__)


class Watcher:
    def __init__(self, config: RunConfig, files: Sequence[Path] = ()) -> None:
        """`files`: those that every writer locks."""
        self._silent_s = config.restarts.silent_s
        self.vigil = Vigil(self._silent_s, config.environment.deadline_s)
        self._files = tuple(files)
        self._holders: dict[tuple[int, Seen], float] = {}  # strangers that are stopped -> since
        self.lives: Mapping[str, Life] = {}  # by name; exchanged as a whole
        self.ended: dict[str, Silence] = {}  # by us, and why
        self.trouble: str | None = None
        self._first_seen: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self, now: float) -> None:
        """One round; ends whoever has to be ended."""
        if self.vigil.wake(now):
            self._holders.clear()
        lives = self.lives
        self._first_seen = {name: self._first_seen.get(name, now) for name in lives}
        found = {name: self._silence(name, life, now) for name, life in lives.items()}
        silent = {name: silence for name, silence in found.items() if silence is not None}
        for name, silence in silent.items():
            if silence.due and name not in self.ended:
                self.ended[name] = silence
                lives[name].kill()
        self.trouble = silence_text(silent)
        self._look_at_holders(now)

    def _silence(self, name: str, life: Life, now: float) -> Silence | None:
        began, progress, stopped = self._first_seen[name], life.progress(), life.is_stopped()
        if progress is None and not stopped:
            return None  # it has not begun, or its disk was full: nothing is known of it
        progress = progress or Progress(0, "starting", began, began)
        return self.vigil.judge(progress, stopped, now)

    def _look_at_holders(self, now: float) -> None:
        """Who writes to the run's files, and is none of its workers, may be stopped in the middle
        of it: a Ctrl-Z is enough. Everybody else waits for the lock."""
        ours = {p.pid for life in self.lives.values() if (p := life.progress()) is not None}
        held = {pid: path for path in self._files for pid in sqlite_writers(path)}
        found: dict[tuple[int, Seen], float] = {}
        for pid, path in held.items():
            seen = look_at(pid)
            if pid in ours or seen is None or not seen.stopped:
                continue
            since = self._holders.get((pid, seen), now)
            if now - since >= self._silent_s:
                since = math.inf  # once is enough, for another user's too
                logger.warning("process %d is stopped and holds %s: it is ended", pid, path)
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            found[pid, seen] = since
        self._holders = found

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            try:
                self.look(time.monotonic())
            except OSError as error:  # no descriptor left, no such permission: the next look may do
                logger.warning("cannot look after workers now: %s", error)


def silence_text(silent: Mapping[str, Silence]) -> str | None:
    """Who it is, as people name workers, without the incarnation."""
    each = [f"{name.rpartition('.')[0]} is {silence}" for name, silence in silent.items()]
    return ", ".join(each) or None
