"""A worker's process: how it is asked to stop, whose death it follows, and its last words.

A worker stops after a checkpoint on SIGTERM and writes down what went wrong before it dies of it.
Under the local launcher it lives only as long as its standard input is open: the launcher holds the
other end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rookery.errors import BusAway, CrewLost, EnvironmentFailed, LearnerFenced, RookeryError
from rookery.messages import WorkerFailed
from rookery.worker import FENCED, LEFT_ALONE, WorkerId
from rookery.worker.context import RecordEvents

T = TypeVar("T")

WAIT_S = 0.1  # how long a worker sleeps on the bus before it looks up
PATIENCE_S = 180.0  # with a bus that is away when a worker starts
SAY_WHERE = signal.SIGUSR1  # makes a worker write to its log what each of its threads is doing


class Stop:
    """Set by SIGTERM; a worker looks at it between fragments or updates."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def ask(self, *_: object) -> None:
        self.asked = True


def reached(opened: Callable[[], T], stop: Callable[[], bool]) -> T:
    """What takes a bus to open. That of a run which goes on was there, and is waited for."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return opened()
        except BusAway:
            if stop() or time.monotonic() >= deadline:
                raise
        time.sleep(WAIT_S)


def guarded(record: RecordEvents, run: str, worker: WorkerId, work: Callable[[], int]) -> int:
    """Do the work; whatever ends it is written to the log of events first."""
    try:
        return work()
    except (LearnerFenced, CrewLost) as error:
        print(f"rookery: {error}", file=sys.stderr, flush=True)
        return exit_code(error)
    except Exception as error:  # noqa: BLE001 the worker's outermost frame: report, then die
        traceback.print_exc()
        record(failure(run, worker, error))
        return exit_code(error)


def exit_code(error: BaseException) -> int:
    """Of a worker that this ends."""
    if isinstance(error, CrewLost):
        return LEFT_ALONE
    return FENCED if isinstance(error, LearnerFenced) else 1


def failure(run: str, worker: WorkerId, error: BaseException) -> WorkerFailed:
    """What a person should read: one line, and the traceback of their own code if it is theirs."""
    detail = "".join(traceback.format_exception(error))
    text = str(error)
    if isinstance(error, EnvironmentFailed):
        detail = error.user_traceback
    elif not isinstance(error, RookeryError):
        text = f"{type(error).__name__}: {error}"
    final = isinstance(error, RookeryError) and not isinstance(error, EnvironmentFailed)
    return WorkerFailed(
        run=run,
        kind=worker.kind,
        index=worker.index,
        incarnation=worker.incarnation,
        error=" ".join(text.split()),
        detail=detail,
        final=final,
    )


def step_back(niceness: int) -> None:
    """Let whoever answers people go first; training takes what is left, which is nearly all."""
    if niceness:
        os.nice(niceness)
        with contextlib.suppress(OSError):  # Linux weighs sessions too, and each worker has its own
            Path("/proc/self/autogroup").write_text(str(niceness))


def die_with_parent() -> None:
    """At once, whatever kills it; on Linux only."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def end_with_parent() -> None:
    """Die with the process that holds our standard input, whatever kills it."""
    die_with_parent()

    def wait() -> None:
        while os.read(0, 4096):
            continue
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
