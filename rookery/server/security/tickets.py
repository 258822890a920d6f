"""Tickets: links to one file that work once, within a minute, for whoever holds them.

A browser that downloads a file or shows a video cannot send an Authorization header, and a token
must not stand in an address, where it would be logged and kept. So a client with a token asks for a
ticket and puts that into the address instead.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable

from rookery.errors import InputError

LIFETIME_S = 60.0
MAX_TICKETS = 4096  # beyond that the oldest is void
_RUNS = "/api/v1/runs/"


def is_artifact(path: str) -> bool:
    """Whether a path, with its percent-escapes undone, is /api/v1/runs/RUN/artifacts/FILE."""
    run, slash, rest = path.removeprefix(_RUNS).partition("/")
    return bool(path.startswith(_RUNS) and run and slash and rest.startswith("artifacts/")) and (
        len(rest) > len("artifacts/") and ".." not in rest.split("/") and run != ".."
    )


class Tickets:
    """The tickets that were not used yet, as hashes; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[bytes, tuple[str, float]] = {}  # oldest first

    def issue(self, path: str) -> str:
        """A ticket for one artifact's path, written without percent-escapes."""
        if not is_artifact(path) or len(path) > 1000:
            raise InputError(f"a ticket is for {_RUNS}RUN/artifacts/FILE, not for another path")
        ticket = secrets.token_urlsafe(32)
        with self._lock:
            self._forget()
            if len(self._open) >= MAX_TICKETS:
                del self._open[next(iter(self._open))]
            self._open[_key(ticket)] = (path, self._clock() + LIFETIME_S)
        return ticket

    def take(self, ticket: str, path: str) -> bool:
        """Whether it is good for that path now; a ticket that was shown is void from then on."""
        with self._lock:
            self._forget()
            found = self._open.pop(_key(ticket), None)
        return found is not None and found[0] == path

    def _forget(self) -> None:
        """Drop those that are too old: all live equally long, so they stand in front."""
        now = self._clock()
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest][1] > now:
                return
            del self._open[oldest]


def _key(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogateescape")).digest()
