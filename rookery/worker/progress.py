"""How far a worker is, said where anyone on its machine can see it without asking it.

    with Pulse(directory / worker.name) as pulse:
        pulse.busy("step")                  # the loop: what it does now
    progress = read_progress(path)          # anyone: how far, and when it last gave a sign of life

A record of 64 bytes in a file, mapped into memory: to say something costs no lock, no bus and no
call of the system, so it is said at each step of an environment. A thread stamps the time every
second: a process that is frozen does not beat, one whose loop hangs beats and does not count. All
times are those of the machine's own clock, which stands still while the machine sleeps.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rookery.processes import look_at, machine

FOLDER = "progress"  # in a run's directory: a file for each of its workers
BEAT_S = 1.0
BYTES = 64
FORMAT = 0x526F6F6B_00000001
OUT_OF_REACH = "out of reach"
DOING = (
    "",
    "starting",
    "making the environment",
    "reset",
    "step",
    "playing",
    "waiting",  # for a credit
    "sending",  # to the bus, which may have to be waited for
    "full bus",
    "training",
    "saving",
    "owning",
    OUT_OF_REACH,  # on another machine, and whoever asks it gets no answer
)
LONG_BEGINNINGS = ("starting", "making the environment")  # in which nobody may answer for minutes
_FORMAT, _MACHINE, _PID, _STARTED, _COUNT, _DOING, _SINCE, _BEAT = range(8)  # cells of 8 bytes
_CODES = {doing: code for code, doing in enumerate(DOING)}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """What is known of a worker at one moment."""

    count: int  # grows whenever its loop begins something
    doing: str
    since: float  # when it began that, by `time.monotonic`
    beat: float  # its last sign of life
    pid: int = 0
    started: int = 0  # of the process, as `processes.Seen` has it


def read_progress(path: Path) -> Progress | None:
    """The record in a file; None where there is none, or where it is of another machine."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    if len(content) != BYTES:
        return None
    cells, times = memoryview(content).cast("Q"), memoryview(content).cast("d")
    if cells[_FORMAT] != FORMAT or cells[_MACHINE] != machine():
        return None
    doing = DOING[cells[_DOING]] if cells[_DOING] < len(DOING) else ""
    return Progress(cells[_COUNT], doing, times[_SINCE], times[_BEAT], cells[_PID], cells[_STARTED])


class Pulse:
    """The worker's side; its file is gone when it ends in good order.

    `excused` says whether something else than the worker is waited for, whatever it is doing. That
    may take a while, as with a bus that is away: a thread of its own asks, and the other beats on.
    """

    def __init__(
        self,
        path: Path | None,
        doing: str = "starting",
        excused: Callable[[], bool] | None = None,
    ) -> None:
        self._path = path
        self._memory = _mapped(path) if path is not None else mmap.mmap(-1, BYTES)
        self._cells = memoryview(self._memory).cast("Q")
        self._times = memoryview(self._memory).cast("d")
        seen = look_at(os.getpid())
        self._cells[_MACHINE], self._cells[_PID] = machine(), os.getpid()
        self._cells[_STARTED] = seen.started if seen is not None else 0
        self._times[_BEAT] = time.monotonic()
        self.busy(doing)
        self._cells[_FORMAT] = FORMAT  # last: from now on it counts
        self._over = threading.Event()
        self._writing = threading.Lock()  # its memory is not taken away meanwhile
        jobs = [self._keep_beating, *([lambda: self._keep_asking(excused)] if excused else [])]
        self._threads = [threading.Thread(target=job, name="pulse", daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Pulse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def busy(self, doing: str) -> None:
        """Something new begins."""
        self._times[_SINCE] = time.monotonic()
        self._cells[_COUNT] += 1
        self._cells[_DOING] = _CODES.get(doing, 0)

    def now(self) -> Progress:
        cells, times = self._cells, self._times
        return Progress(cells[_COUNT], DOING[cells[_DOING]], times[_SINCE], times[_BEAT])

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * BEAT_S)  # one may be asking for longer, in vain
        with self._writing:
            self._cells.release()
            self._times.release()
        with contextlib.suppress(
            BufferError
        ):  # of a view that the garbage collector has yet to see
            self._memory.close()
        forget(self._path)

    def _keep_beating(self) -> None:
        while not self._over.wait(BEAT_S):
            self._stamp(_BEAT)

    def _keep_asking(self, excused: Callable[[], bool]) -> None:
        while not self._over.wait(BEAT_S):
            if excused():
                self._stamp(_SINCE)

    def _stamp(self, cell: int) -> None:
        with self._writing:
            if not self._over.is_set():
                self._times[cell] = time.monotonic()


class Mirror:
    """The progress of a worker on another machine, shown here by whoever asks it: times are those
    of this machine's clock, and whoever looks cannot tell the difference."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._memory: mmap.mmap | None = None
        self._doing = 0  # before it was lost

    def show(self, count: int, doing: str, same_s: float, silent_s: float) -> None:
        """How far it is, how long it has been at that, and how long it gave no sign of life."""
        if self._memory is None:
            self._memory = _mapped(self._path)
        seen, now = look_at(os.getpid()), time.monotonic()
        with memoryview(self._memory) as memory, memory.cast("Q") as cells:
            cells[_MACHINE], cells[_PID] = machine(), os.getpid()
            cells[_STARTED] = seen.started if seen is not None else 0
            cells[_COUNT], cells[_DOING] = count, _CODES.get(doing, 0)
        with memoryview(self._memory) as memory, memory.cast("d") as times:
            times[_SINCE], times[_BEAT] = now - same_s, now - silent_s
        with memoryview(self._memory) as memory, memory.cast("Q") as cells:
            cells[_FORMAT] = FORMAT

    def lose(self) -> None:
        """It does not answer: what it is doing now is not known, and when it last was alive is."""
        if self._memory is not None:
            with memoryview(self._memory) as memory, memory.cast("Q") as cells:
                if DOING[cells[_DOING]] not in (*LONG_BEGINNINGS, OUT_OF_REACH):
                    self._doing, cells[_DOING] = cells[_DOING], _CODES[OUT_OF_REACH]

    def find(self) -> None:
        """Its node answers again: it is at what it was at, as far as anybody knows."""
        if self._memory is not None:
            with memoryview(self._memory) as memory, memory.cast("Q") as cells:
                if DOING[cells[_DOING]] == OUT_OF_REACH:
                    cells[_DOING] = self._doing

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
            self._memory = None
        forget(self._path)


def forget(path: Path | None) -> None:
    """Remove the file of a worker that is gone; one that cannot be removed harms nobody."""
    if path is not None:
        with contextlib.suppress(OSError):
            path.unlink()


def _mapped(path: Path) -> mmap.mmap:
    """The file's memory. Its bytes are written before they are mapped: a full disk is an error
    here and not a signal later. A worker whose progress cannot be shown still works."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.unlink(missing_ok=True)  # a former one's, who may have it mapped
        with open(path, "x+b") as file:
            file.write(bytes(BYTES))
            file.flush()
            return mmap.mmap(file.fileno(), BYTES)
    except OSError as error:
        logger.warning("progress cannot be shown in %s: %s", path, error.strerror)
        return mmap.mmap(-1, BYTES)
