"""A command typed in a terminal of its own: what was on the screen, and how long nothing moved."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[()][0-9A-B]|[=>78])")
LINES = re.compile(r"[\r\n]+")
READ_BYTES = 65536
TICK_S = 0.2
END_S = 60.0  # for a command that was interrupted


class Shown(NamedTuple):
    """A command that has ended, as its user saw it."""

    code: int
    text: str
    silence_s: float  # the longest time in which nothing new was shown
    last: str  # what stood there meanwhile
    took_s: float


class Terminal:
    """One command in a pseudo-terminal.

        with Terminal("rookery serve", env, cwd) as serving:
            serving.wait_for("http://", 60)
            shown = serving.interrupt()

    A progress line that is drawn again as it was has not moved.
    """

    def __init__(self, line: str, env: Mapping[str, str], cwd: Path) -> None:
        self.line = line
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            ["sh", "-c", line],
            env={**env, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"},
            cwd=cwd,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._began = self._moved = time.monotonic()
        self._silence_s, self._silent_after = 0.0, ""
        self._raw = ""
        self._lines: list[str] = []
        self.idle = False  # it has nothing to do: silence is as it should be

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait(END_S)
        os.close(self._master)

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def wait_for(self, words: str, timeout: float) -> str:
        """Until these words are on the screen; returns all of it."""
        deadline = time.monotonic() + timeout
        while words not in self.text:
            if not self._read() or time.monotonic() > deadline:
                raise AssertionError(f"{self.line}: no {words!r} in {timeout:g} s:\n{self.text}")
        return self.text

    def finish(self, timeout: float) -> Shown:
        """Until it ends by itself; one that does not is killed, and the test fails."""
        deadline = time.monotonic() + timeout
        while self._read():
            if time.monotonic() > deadline:
                self._signal(signal.SIGKILL)
                raise AssertionError(f"{self.line}: not over in {timeout:g} s:\n{self.text}")
        self._process.wait(END_S)
        self._note_silence()
        took = time.monotonic() - self._began
        code = self._process.returncode
        return Shown(code, self.text, self._silence_s, self._silent_after, took)

    def type(self, line: str) -> None:
        os.write(self._master, f"{line}\n".encode())

    def interrupt(self) -> Shown:
        """Ctrl-C, as a terminal gives it: to everyone in front."""
        self._signal(signal.SIGINT)
        return self.finish(END_S)

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def _read(self) -> bool:
        """What there is to read within a tick; False at the end."""
        ready, _, _ = select.select([self._master], [], [], TICK_S)
        if not ready:
            return self._process.poll() is None
        try:
            found = os.read(self._master, READ_BYTES)
        except OSError:  # Linux says so when the last one has closed its side
            return False
        if not found:
            return False
        pieces = LINES.split(ESCAPES.sub("", self._raw + found.decode("utf-8", "replace")))
        self._raw = pieces[-1]
        for piece in pieces:
            self._show(piece.rstrip())
        return True

    def _show(self, line: str) -> None:
        if not line or (self._lines and line == self._lines[-1]):
            return
        self._note_silence()
        if self._lines and line.startswith(self._lines[-1]):
            self._lines[-1] = line  # the rest of a line that came in parts
        else:
            self._lines.append(line)

    def _note_silence(self) -> None:
        now = time.monotonic()
        if now - self._moved > self._silence_s and not self.idle:
            self._silence_s = now - self._moved
            self._silent_after = self._lines[-1] if self._lines else ""
        self._moved = now
