"""A learner that gets ready before it knows its run.

Importing JAX takes longer than anything else at the start of a run. So `rookery train` starts this
process first, looks at the environment meanwhile, and hands it its work when the run exists. The
waiting side is `cli.workers.wait_for_work`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from rookery.launchers import WorkerSpec
from rookery.worker import LIFELINE, ONE_BLAS_THREAD


class Standby:
    """The waiting process. `close` ends it if nobody took it."""

    def __init__(self, threads: int = 1) -> None:
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-m", "rookery", "standby", "--threads", str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **ONE_BLAS_THREAD, LIFELINE: "stdin"},
            start_new_session=True,
        )

    def take(self, spec: WorkerSpec, log: Path) -> subprocess.Popen[bytes] | None:
        """Hand over the work; None if the process is taken or gone."""
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.poll() is not None:
            return None
        order = {
            "run": spec.argv[1],
            "kind": spec.worker.kind,
            "index": spec.worker.index,
            "incarnation": spec.worker.incarnation,
            "environment": dict(spec.environment),
            "log": str(log),
        }
        try:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        return process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process = None
