"""Jobs: evaluations and matches that were asked for, each in a process of its own.

A job that its owner's death cut off is begun anew by the next owner, and one that was killed by its
own, until its result, or why there is none, stands in the log.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping

from rookery.control.home import Home
from rookery.control.run_state import exit_text
from rookery.launchers.log_file import bound
from rookery.messages import Job, JobDone, JobStarted
from rookery.worker import LIFELINE, ONE_BLAS_THREAD

KILLS = 3  # of one job, after which it is given up


class Jobs:
    """One after the other, in the order in which they were asked for."""

    def __init__(self, home: Home, run: str) -> None:
        self._home, self._run = home, run
        self._log = home.run_dir(run) / "logs" / "jobs.log"
        self._command = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = Counter[str]()  # by command

    @property
    def busy(self) -> bool:
        return self._process is not None

    def step(self, wanted: Mapping[str, Job]) -> None:
        """Begin the next job, or see to the one at work; one that is not wanted any more is ended.

        `wanted` still holds a job whose process has just ended well: it is told apart by the log.
        """
        if self._process is None:
            if wanted:
                self._begin(next(iter(wanted)))
            return
        code = self._process.poll()
        bound(self._log)
        if code is None and self._command not in wanted:
            self.close()
        elif code is not None:
            self._reap()
            self._killed[self._command] += code < 0
            is_given_up = code > 0 or self._killed[self._command] == KILLS
            if code != 0 and self._command in wanted and is_given_up:
                self._home.record(
                    JobDone(run=self._run, command=self._command, error=exit_text(code))
                )

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._reap()

    def _begin(self, command: str) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rookery", "job", self._run, "--command", command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={
                    **os.environ,
                    **self._home.environment,
                    **ONE_BLAS_THREAD,
                    LIFELINE: "stdin",
                },
                start_new_session=True,
            )
        self._command = command
        started = JobStarted(run=self._run, command=command, pid=self._process.pid)
        self._home.record(started)

    def _reap(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None
