"""What a run's workers and the machine take: how many cores and how much memory.

The system counts seconds of work, so how busy a process is takes two looks: who asks for the first
time, or after a long while, learns it the next time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from rookery.control.models import MachineUse, Use, Worker, WorkerUse
from rookery.messages import JOINED_FROM
from rookery.processes import Used, memory_bytes, used_by, used_by_all

SHORT_S, LONG_S = 0.5, 30.0  # between two looks that tell how busy someone is now
MOST = 4096  # processes that are remembered


class UseMeter:
    """Remembers the last looks; one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[int, tuple[float, float, float | None]] = {}  # when, cpu_s, cores

    def of(self, workers: Sequence[Worker]) -> Use:
        """Of those that live, on this machine."""
        here = [w for w in workers if not w.host and w.index < JOINED_FROM]
        alive = [w for w in here if w.alive and w.pid]
        return Use(workers=[self._worker(worker) for worker in alive], machine=self._machine())

    def _worker(self, worker: Worker) -> WorkerUse:
        pid = worker.pid or 0
        used = used_by(pid)
        return WorkerUse(
            kind=worker.kind,
            index=worker.index,
            cpu=self._cores(pid, used),
            memory_bytes=used.memory_bytes if used else None,
        )

    def _machine(self) -> MachineUse:
        used = used_by_all()
        return MachineUse(
            cpus=os.cpu_count() or 1,
            cpu=self._cores(0, used),
            memory_bytes=memory_bytes(),
            memory_used_bytes=used.memory_bytes if used else None,
        )

    def _cores(self, pid: int, used: Used | None) -> float | None:
        """Since the look before; several who ask at once share one."""
        if used is None:
            return None
        now = self._clock()
        then, cpu_s, cores = self._seen.get(pid, (-LONG_S, 0.0, None))
        if now - then < SHORT_S:
            return cores
        known = now - then < LONG_S and used.cpu_s >= cpu_s  # else another process has its pid
        cores = (used.cpu_s - cpu_s) / (now - then) if known else None
        if len(self._seen) >= MOST:
            self._seen.clear()
        self._seen[pid] = (now, used.cpu_s, cores)
        return cores
