"""Processes that the server asks: each answers a line with a line, as long as the server lives.

    child = Child(("prepare",), environment, most_bytes=1 << 20)
    answer = await child.ask(b'{"config": {}}', deadline_s=60)
    await child.close()

Started by `subprocess` and never by the event loop: uvloop runs Python between fork and exec, where
a lock that another thread of the server holds, one of SQLite's say, is held for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

import anyio
from anyio import CapacityLimiter, to_thread

from rookery.config.models import RestartConfig
from rookery.processes import look_at
from rookery.worker import ONE_BLAS_THREAD

END_S = 30.0
FROZEN_S = RestartConfig().silent_s
LOOK_S = 1.0


class ChildLost(Exception):
    """No answer will come, in words for a person: it died, hangs or says too much."""


class ChildFrozen(ChildLost):
    """It did nothing at all, through no fault of what it was asked: another one may answer."""


class Child:
    """One `rookery` process, started by the first question; another one after it was lost."""

    def __init__(
        self, verb: Sequence[str], environment: Mapping[str, str], most_bytes: int
    ) -> None:
        """`environment`: what leads it to the same home."""
        self._verb, self._most = tuple(verb), most_bytes
        self._environment = {**environment, **ONE_BLAS_THREAD}
        self._process: subprocess.Popen[bytes] | None = None
        self._frozen = 0  # the pid of one that was ended for it
        self._own_thread = CapacityLimiter(1)  # it may wait long: others do not wait for it

    async def ask(self, line: bytes, deadline_s: float) -> bytes:
        if self._process is None:
            # Here and not in the thread below: a child dies with the thread that started it.
            self._process = self._start()
        process = self._process
        try:
            with anyio.fail_after(deadline_s):
                async with anyio.create_task_group() as group:
                    group.start_soon(self._end_if_frozen, process)
                    answer = await to_thread.run_sync(
                        self._ask, process, line, abandon_on_cancel=True, limiter=self._own_thread
                    )
                    group.cancel_scope.cancel()
        except TimeoutError:
            await self.close()
            raise ChildLost(f"took longer than {deadline_s:g} s: it may hang") from None
        if process.pid == self._frozen:
            await self.close()
            raise ChildFrozen(f"was frozen for {FROZEN_S:g} s and was ended")
        if not answer.endswith(b"\n"):
            await self.close()
            raise ChildLost("said too much" if len(answer) >= self._most else "died")
        return answer

    async def _end_if_frozen(self, process: subprocess.Popen[bytes]) -> None:
        """A process that is stopped answers nobody; the one who reads from it sees the end."""
        silent_since = anyio.current_time()
        while anyio.current_time() - silent_since < FROZEN_S:
            await anyio.sleep(LOOK_S)
            seen = look_at(process.pid)
            if seen is None or not seen.stopped:
                silent_since = anyio.current_time()
        self._frozen = process.pid
        process.kill()

    def _ask(self, process: subprocess.Popen[bytes], line: bytes) -> bytes:
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died: nothing can be read either
            process.stdin.write(line + b"\n")
            process.stdin.flush()
        return process.stdout.readline(self._most)

    async def close(self) -> None:
        """End it with whatever it has started: an engine, say."""
        process, self._process = self._process, None
        if process is not None:
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(_end, process)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "rookery", *self._verb],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._environment},
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait(END_S)
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # what it was asked last is for nobody
        process.stdin.close()
    process.stdout.close()
