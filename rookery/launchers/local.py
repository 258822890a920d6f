"""Local processes: subprocesses of the package's own entry points.

Each worker's standard input is a pipe that only this process holds open. When this process dies,
however it dies, the pipe closes and the worker ends itself: no orphan is left.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rookery.launchers import Launch, Observed, WorkerSpec
from rookery.launchers.log_file import bound, forget_old
from rookery.launchers.standby import Standby
from rookery.processes import look_at
from rookery.worker import LIFELINE, NICENESS, WorkerId
from rookery.worker.process import SAY_WHERE
from rookery.worker.progress import Progress, forget, read_progress

SAY_S = 0.5  # to say where it hangs
GRACE_S = {"learner": 60.0, "inline": 60.0, "actor": 5.0}


@dataclass(frozen=True)
class LocalLife:
    """A process of ours, and the file in which it says how far it is."""

    process: subprocess.Popen[bytes]
    file: Path | None

    def progress(self) -> Progress | None:
        return read_progress(self.file) if self.file is not None else None

    def is_stopped(self) -> bool:
        seen = look_at(self.process.pid)
        return seen is not None and seen.stopped

    def kill(self) -> None:
        """One that hangs says where in its log; one that the system has stopped cannot."""
        if not self.is_stopped():
            self.process.send_signal(SAY_WHERE)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(SAY_S)
        self.process.kill()


@dataclass
class _Child:
    spec: WorkerSpec
    process: subprocess.Popen[bytes]
    life: LocalLife
    kill_at: float | None = None  # set once it was asked to stop


class LocalLauncher:
    def __init__(
        self,
        log_dir: Path,
        standby: Standby | None = None,
        niceness: int = 0,
        progress: Path | None = None,
    ) -> None:
        """`niceness`: how far workers step back behind whoever answers people."""
        self._log_dir, self._niceness, self._progress = log_dir, niceness, progress
        self._standby = standby  # becomes the first learner
        self._children: dict[str, _Child] = {}

    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        for name, child in self._children.items():
            if name not in specs and child.kill_at is None:
                child.kill_at = time.monotonic() + GRACE_S.get(child.spec.worker.kind, 5.0)
                child.process.terminate()
        for name, spec in specs.items():
            if name not in self._children:
                process = self._start(name, spec)
                file = self._progress / name if self._progress is not None else None
                self._children[name] = _Child(spec, process, LocalLife(process, file))

    def observe(self) -> dict[str, Observed]:
        seen = {}
        for name, child in list(self._children.items()):
            code = child.process.poll()
            bound(self._log(name))
            seen[name] = Observed(child.process.pid, code, child.life)
            if code is not None:
                _close_pipe(child.process)
                forget(child.life.file)
                del self._children[name]
            elif child.kill_at is not None and time.monotonic() > child.kill_at:
                child.process.kill()
        return seen

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        for child in self._children.values():
            child.process.kill()
        for child in self._children.values():
            child.process.wait(timeout=30)
            _close_pipe(child.process)
        self._children.clear()
        if self._standby is not None:
            self._standby.close()

    def _start(self, name: str, spec: WorkerSpec) -> subprocess.Popen[bytes]:
        self._log_dir.mkdir(parents=True, exist_ok=True)
        path = self._log(name)
        path.touch()
        forget_old(self._log_dir, name.rpartition(".")[0])
        if spec.worker.kind == "learner" and self._standby is not None:
            ready = self._standby.take(spec, path)
            if ready is not None:
                return ready
        with open(path, "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "rookery", *spec.argv],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    **spec.environment,
                    LIFELINE: "stdin",
                    NICENESS: str(self._niceness + behind(spec.worker)),
                },
                start_new_session=True,  # Ctrl-C in the terminal is the controller's to handle
            )

    def _log(self, name: str) -> Path:
        return self._log_dir / f"{name}.log"


def behind(worker: WorkerId) -> int:
    """By how much a worker steps back: where cores are scarce the learner goes first, since many
    play and one trains. Actors beyond one a core step further back, as all together would take from
    it what a few leave it; a few that stepped so far would stand still beside other work."""
    if worker.kind != "actor":
        return 0
    return 5 if worker.index < (os.cpu_count() or 1) else 10


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()


def make_launcher(launch: Launch) -> LocalLauncher:
    return LocalLauncher(launch.logs, launch.standby, launch.niceness, launch.progress)
