"""The owner's end of the line to its driver, which is a process of its own.

    link = Link(settings)
    link.open()                             # starts the driver; connecting takes seconds
    link.wait(30)                           # raises InputError with what is wrong, in one line
    link.ask(Match(run, orders))            # raises LinkDown when the driver is gone

Nothing of Ray is imported here. A driver that ended, as its cluster did, is started again when it
is next needed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from rookery.errors import InputError, MissingExtra, RookeryError
from rookery.launchers.ray.settings import RaySettings
from rookery.launchers.ray.words import (
    Answer,
    Node,
    Nodes,
    Ready,
    Refused,
    Request,
    receive_word,
    send,
)
from rookery.processes import look_at
from rookery.worker import LIFELINE

CONNECT_S = 90.0  # a loaded machine starts Ray slowly
ANSWER_S = 30.0  # after which a driver is taken for hung, and ended
COUNT_S = 2.0  # between two looks at the nodes
TRIES = 3  # of a driver that ends before it is up
AGAIN_S = 2.0  # until a driver that ended is started again
LAST_WORDS = 4096
GRACE_VARIABLE = "RAY_CLIENT_RECONNECT_GRACE_PERIOD"  # Ray's own, of a client
GRACE_S = "5"  # that a cluster keeps what a client placed whose connection broke
TOKEN_VARIABLE = "RAY_AUTH_TOKEN"  # Ray's own too
PREFIX = "rookery-ray-"


class LinkDown(RookeryError):
    """The driver is gone, or not there yet."""


class Link:
    """One owner's; safe to use from several threads."""

    def __init__(self, settings: RaySettings) -> None:
        self.settings = settings
        self.ready: Ready | None = None
        self._why = "it is being started"
        self._refused: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._line: socket.socket | None = None
        self._directory: Path | None = None
        self._heard = threading.Event()  # the driver's first word, or its end
        self._lock = threading.Lock()
        self._again_at = 0.0
        self._crashes = 0  # one after the other, before it was up
        self.lives = 0  # how many drivers there were
        self._cpus, self._counted = 0, -COUNT_S

    @property
    def is_up(self) -> bool:
        return self.ready is not None

    @property
    def trouble(self) -> str:
        """What is waited for, while it is not up."""
        return f"the Ray cluster {self.settings.place}: {self._why}"

    def open(self) -> None:
        """Start the driver, unless one is there or the last one has only just ended."""
        with self._lock:
            if self._process is None and time.monotonic() >= self._again_at:
                self._start()

    def wait(self, seconds: float = CONNECT_S) -> Ready:
        """Until it is on the cluster; InputError: it cannot be, and why."""
        self.open()
        self._heard.wait(seconds)
        if self.ready is not None:
            return self.ready
        raise InputError(
            self._refused or f"{self.trouble}, and was not up within {seconds:g} s: try again"
        )

    def ask(self, request: Request) -> Any:
        with self._lock:
            if self.ready is None or self._line is None:
                raise LinkDown(self.trouble)
            try:
                send(self._line, request)
                word = receive_word(self._line)
            except (OSError, msgspec.DecodeError) as error:  # a time-out is one
                self._end(f"its driver did not answer: {error}")
                raise LinkDown(self.trouble) from error
            if not isinstance(word, Answer):
                self._end(self._last_words() or "its driver ended")
                raise LinkDown(self.trouble)
        if word.error:
            raise LinkDown(word.error)
        return word.result

    def nodes(self) -> list[Node]:
        """Of its cluster, lost ones too; LinkDown: it cannot be asked now."""
        found, ready = msgspec.convert(self.ask(Nodes()), list[Node]), self.ready
        if self.settings.address or ready is None:
            return found
        # one that we started believes to have plenty: what counts is what the machine has
        return [msgspec.structs.replace(node, cpus=ready.cpus) for node in found]

    @property
    def cpus(self) -> int:
        """Of all nodes, as they are now; while it is not up, none."""
        if self.ready is None:
            return 0
        if not self.settings.address:
            return int(self.ready.cpus)
        now = time.monotonic()
        if now - self._counted >= COUNT_S:
            self._counted = now
            try:
                nodes = self.nodes()
            except LinkDown:
                return 0
            self._cpus = int(sum(node.cpus for node in nodes if node.alive))
        return self._cpus

    def close(self) -> None:
        with self._lock:
            self._end("it was closed")

    def _start(self) -> None:
        if find_spec("ray") is None:
            raise MissingExtra("launcher=ray", "ray")
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_S)
        self._directory = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        _forget_dead()
        with theirs, open(self._directory / "driver.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rookery", "ray-driver", "--line", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env=self._environment() | {LIFELINE: "stdin"},
                start_new_session=True,
            )
        self._line, self.lives = ours, self.lives + 1
        self._heard.clear()
        self._refused = None
        if self.lives == 1:  # later, why the last one ended is worth more
            self._why = "connecting" if self.settings.address else "it is being started"
        threading.Thread(
            target=self._listen, args=(self._process, ours), name="ray-link", daemon=True
        ).start()

    def _environment(self) -> dict[str, str]:
        """A cluster that we start is ours alone: it wants a token, and notices a lost node soon."""
        assert self._directory is not None
        told = {**os.environ, "ROOKERY_RAY": self.settings.model_dump_json()}
        if self.settings.address:
            return {GRACE_VARIABLE: GRACE_S, **told}
        told.pop(TOKEN_VARIABLE, None)  # it would go before the file, and others may know it
        token = self._directory / "token"
        descriptor = os.open(token, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        return told | {
            "ROOKERY_RAY_DIRECTORY": str(self._directory),
            # what Ray calls a cluster is reachable from elsewhere; without it, all is on loopback
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_timeout_ms": "2000",
            "RAY_health_check_failure_threshold": "3",
        }

    def _listen(self, process: subprocess.Popen[bytes], line: socket.socket) -> None:
        """For the driver's first word. After it, only answers come, to whoever asks."""
        line.settimeout(None)
        try:
            word = receive_word(line)
            line.settimeout(ANSWER_S)
        except OSError:
            return  # it was closed meanwhile
        with self._lock:
            if process is not self._process:
                return
            if isinstance(word, Ready):
                self.ready, self._crashes = word, 0
            else:
                why = word.why if isinstance(word, Refused) else self._last_words()
                why = why or "the driver of the Ray cluster ended without a word"
                self._end(why)
                self._crashes += 1
                is_final = isinstance(word, Refused) and self.settings.address
                if not is_final and self._crashes < TRIES:
                    self._start()  # somebody killed what was just coming up
                    return
                self._refused = why
        self._heard.set()

    def _last_words(self) -> str:
        """Of a driver that said nothing: the last line of its log."""
        if self._directory is None:
            return ""
        with contextlib.suppress(OSError):
            text = (
                (self._directory / "driver.log")
                .read_bytes()[-LAST_WORDS:]
                .decode("utf-8", "replace")
            )
            lines = [line for line in text.splitlines() if line.strip()]
            return lines[-1].strip()[:300] if lines else ""
        return ""

    def _end(self, why: str) -> None:
        self._why, self.ready = why, None
        process, self._process = self._process, None
        line, self._line = self._line, None
        if line is not None:
            line.close()
        if process is not None:
            self._again_at = time.monotonic() + AGAIN_S
            assert process.stdin is not None
            process.stdin.close()  # its lifeline: Ray's processes end with it
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30.0)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


class Links:
    """The links of one owner, one for each cluster; closed with it."""

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}

    def to(self, settings: RaySettings) -> Link:
        key = settings.model_dump_json()
        if key not in self._links:
            self._links[key] = Link(settings)
        return self._links[key]

    def cpus(self, launcher: str, settings: RaySettings) -> int:
        """That runs with a launcher share: the cluster's, as they are now, or this machine's."""
        return self.to(settings).cpus if launcher == "ray" else os.cpu_count() or 1

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()


def _forget_dead() -> None:
    """Directories of owners that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdecimal() and look_at(int(pid)) is None:
            shutil.rmtree(path, ignore_errors=True)
