"""A toy launcher: workers are threads of this process. One file, as CONTRIBUTING.md says."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

from rookery.actor.main import act
from rookery.launchers import Launch, Observed, WorkerSpec
from rookery.learner.main import train
from rookery.worker.context import RunContext
from rookery.worker.process import Stop, guarded

WORK = {"actor": act, "learner": train}


class ThreadLauncher:
    def __init__(self, here: Callable[[], RunContext]) -> None:
        self._here = here
        self._stops: dict[str, Stop] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._codes: dict[str, int] = {}

    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        for name in self._stops.keys() - specs.keys():
            self._stops[name].ask()
        for name, spec in specs.items():
            if name not in self._stops:
                self._stops[name] = Stop()
                self._threads[name] = threading.Thread(target=self._work, args=(spec,), name=name)
                self._threads[name].start()

    def _work(self, spec: WorkerSpec) -> None:
        context, worker, stop = self._here(), spec.worker, self._stops[spec.name]
        work = WORK[worker.kind]
        code = guarded(context.record, context.run, worker, lambda: work(context, worker, stop))
        self._codes[spec.name] = code

    def observe(self) -> dict[str, Observed]:
        seen = {name: Observed(os.getpid(), self._codes.get(name)) for name in self._threads}
        for name in [name for name, each in seen.items() if each.code is not None]:
            del self._threads[name]
        return seen

    def work(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def close(self) -> None:
        for stop in self._stops.values():
            stop.ask()
        for thread in self._threads.values():
            thread.join(30)


def make_launcher(launch: Launch) -> ThreadLauncher:
    assert launch.here is not None
    return ThreadLauncher(launch.here)
