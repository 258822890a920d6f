"""Ends an actor whose environment hangs."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback

from rookery.messages import RunEnded, WorkerFailed
from rookery.output import say_aloud
from rookery.worker import HUNG, WorkerId
from rookery.worker.context import RecordEvents
from rookery.worker.progress import Progress, Pulse


class DeadlineWatch:
    """Ends the process when an environment takes longer than its deadline, and says where.

    Used as a context: what happens after it is none of its business.
    """

    def __init__(
        self,
        record: RecordEvents,
        run: str,
        worker: WorkerId,
        deadline_s: float,
        pulse: Pulse,
    ) -> None:
        self._record, self._run, self._worker = record, run, worker
        self._deadline_s, self._pulse = deadline_s, pulse
        self._thread_id = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="deadline-watch", daemon=True)

    def __enter__(self) -> DeadlineWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()  # before the pulse that it looks at ends

    def _look(self) -> None:
        while not self._over.wait(min(1.0, self._deadline_s / 4)):
            now = self._pulse.now()
            late = time.monotonic() - now.since > self._deadline_s
            if late and now.doing in ("step", "reset"):
                self._end(now)

    def _end(self, late: Progress) -> None:
        frame = sys._current_frames().get(self._thread_id)
        error = (
            f"the environment hung: {late.doing} took longer than "
            f"environment.deadline_s = {self._deadline_s:g} s"
        )
        failed = WorkerFailed(
            run=self._run,
            kind=self._worker.kind,
            index=self._worker.index,
            incarnation=self._worker.incarnation,
            error=error,
            detail="".join(traceback.format_stack(frame)) if frame else "",
        )
        self._record(failed)
        if self._worker.kind == "inline":  # nobody is left to give up but this process
            self._record(RunEnded(run=self._run, status="failed", reason=error))
            say_aloud(f"rookery: {error}")
            os._exit(1)
        os._exit(HUNG)
