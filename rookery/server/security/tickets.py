"""Tickets: links to one file that work for one download, for whoever holds them.

A browser that downloads a file or shows a video cannot send an Authorization header, and a token
must not stand in an address, where it would be logged and kept. So a client with a token asks for a
ticket and puts that into the address instead.

A download is the whole file once, or what a video player or a download manager makes of it: a HEAD,
then ranges, one after another. So those leave a ticket good for another while; the whole ends it.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from rookery.errors import InputError

LIFETIME_S = 60.0  # from its issue, or from the last range
LONGEST_S = 3600.0  # from its issue, whatever is asked for
MAX_TICKETS = 4096  # beyond that the oldest is void
_RUNS = "/api/v1/runs/"


def is_artifact(path: str) -> bool:
    """Whether a path, with its percent-escapes undone, is /api/v1/runs/RUN/artifacts/FILE."""
    run, slash, rest = path.removeprefix(_RUNS).partition("/")
    return bool(path.startswith(_RUNS) and run and slash and rest.startswith("artifacts/")) and (
        len(rest) > len("artifacts/") and ".." not in rest.split("/") and run != ".."
    )


class _Ticket(NamedTuple):
    path: str
    until_s: float
    last_s: float


class Tickets:
    """The tickets that are good, as hashes; safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[bytes, _Ticket] = {}  # those that end first stand in front

    def issue(self, path: str) -> str:
        """A ticket for one artifact's path, written without percent-escapes."""
        if not is_artifact(path) or len(path) > 1000:
            raise InputError(f"a ticket is for {_RUNS}RUN/artifacts/FILE, not for another path")
        ticket = secrets.token_urlsafe(32)
        with self._lock:
            self._forget()
            if len(self._open) >= MAX_TICKETS:
                del self._open[next(iter(self._open))]
            now = self._clock()
            self._open[_key(ticket)] = _Ticket(path, now + LIFETIME_S, now + LONGEST_S)
        return ticket

    def take(self, ticket: str, path: str, whole: bool = True) -> bool:
        """Whether it is good for that path now; from then on it is void, unless only a part was
        asked for."""
        with self._lock:
            self._forget()
            found = self._open.pop(_key(ticket), None)
            if found is None or found.path != path or found.last_s <= self._clock():
                return False
            if not whole:
                self._open[_key(ticket)] = found._replace(until_s=self._clock() + LIFETIME_S)
        return True

    def _forget(self) -> None:
        """Drop those that are too old: each lives equally long from its last use."""
        now = self._clock()
        while self._open:
            oldest = next(iter(self._open))
            if self._open[oldest].until_s > now:
                return
            del self._open[oldest]


def _key(ticket: str) -> bytes:
    return hashlib.sha256(ticket.encode("utf-8", "surrogateescape")).digest()
