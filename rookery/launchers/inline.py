"""Inline: actor and learner take turns in this process, so a run is deterministic."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping

from rookery.launchers import Observed, WorkerSpec

Work = Callable[[WorkerSpec, Callable[[], bool]], Iterator[int | None]]
"""Makes a worker's stream of turns; the last item is its exit code, all others are None."""


class InlineLauncher:
    def __init__(self, make_work: Work) -> None:
        self._make_work = make_work
        self._work: dict[str, Iterator[int | None]] = {}
        self._stopping: set[str] = set()
        self._ended: dict[str, int] = {}

    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        self._stopping |= self._work.keys() - specs.keys()
        for name, spec in specs.items():
            if name not in self._work and name not in self._ended:
                self._work[name] = self._make_work(spec, lambda n=name: n in self._stopping)  # type: ignore[misc]

    def observe(self) -> dict[str, Observed]:
        ended, self._ended = self._ended, {}
        seen = {name: Observed(os.getpid(), None) for name in self._work}
        return seen | {name: Observed(os.getpid(), code) for name, code in ended.items()}

    def work(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._work and time.monotonic() < until:
            for name, turns in list(self._work.items()):
                code = next(turns, 0)
                if code is not None:
                    self._ended[name] = code
                    del self._work[name]
        if not self._work and not self._ended:
            time.sleep(seconds)

    def close(self) -> None:
        self._work.clear()
