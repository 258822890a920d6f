"""Watches over the workers of a run: ends whoever makes no progress, and says why.

    with Watcher(config) as watcher:
        watcher.lives = {"actor-0.1": seen.life}    # whenever they change
        watcher.trouble                             # who is silent now, in words for a person
        watcher.ended.pop("actor-0.1", None)        # why it was ended, if it was

A thread of its own, that needs neither the bus nor the log: a worker that is frozen may hold either
one locked, and everybody else who could end it may be waiting for that lock.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from rookery.config.models import RunConfig
from rookery.control.supervision import Silence, Vigil
from rookery.launchers import Life
from rookery.worker.progress import Progress

LOOK_S = 1.0

logger = logging.getLogger(__name__)


class Watcher:
    def __init__(self, config: RunConfig) -> None:
        silent_s = config.restarts.silent_s
        self.vigil = Vigil(silent_s, config.environment.deadline_s)
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
        self.vigil.wake(now)
        lives = self.lives
        self._first_seen = {name: self._first_seen.get(name, now) for name in lives}
        found = {name: self._silence(name, life, now) for name, life in lives.items()}
        silent = {name: silence for name, silence in found.items() if silence is not None}
        for name, silence in silent.items():
            if silence.due and name not in self.ended:
                self.ended[name] = silence
                lives[name].kill()
        self.trouble = silence_text(silent)

    def _silence(self, name: str, life: Life, now: float) -> Silence | None:
        began = self._first_seen[name]
        progress = life.progress() or Progress(0, "starting", began, began)
        return self.vigil.judge(progress, life.is_stopped(), now)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look(time.monotonic())


def silence_text(silent: Mapping[str, Silence]) -> str | None:
    """Who it is, as people name workers, without the incarnation."""
    each = [f"{name.rpartition('.')[0]} is {silence}" for name, silence in silent.items()]
    return ", ".join(each) or None
