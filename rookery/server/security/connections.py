"""Who is connected: so many in all, so many strangers from one address, so many of one token.

    connections = Connections(most=768)
    connection = connections.admit("10.0.0.7", transport.abort)     # a stranger, at first
    connection.belongs_to(token)                                    # once it has shown who it is
    connection.leave()

Whoever has shown no token yet is a stranger, and strangers give way: where there is no room the
one that came first is dropped for the newest. So a flood of connections that say nothing drops
itself, and whoever speaks at once gets through it. While strangers come in a rush, whoever does not
speak at once goes at once: to serve them would cost others.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rookery.control.tokens import Token
from rookery.server.security.refusals import CROWDED, Refusal, RefusalLog
from rookery.server.security.shares import Shares

if TYPE_CHECKING:
    from starlette.types import Scope

STATE = "connection"  # its name in a scope's state
RESERVED = 256  # descriptors for files, pipes and sockets of the server itself, and new arrivals
LEAST = 16
RUSH = 100  # strangers that may come at a time where there are many already ...
RUSH_PER_S = 50.0  # ... and in the long run


class Connection:
    """One of them; `abort` drops it at once."""

    def __init__(self, table: Connections, address: str, abort: Callable[[], None]) -> None:
        self._table, self.address, self._abort = table, address, abort
        self.token: Token | None = None
        self.in_rush = False  # it came with too many others
        self._is_open = True

    def belongs_to(self, token: Token) -> None:
        """Whose it is from now on; raises NoPlace where that token has too many."""
        if self._is_open and (self.token is None or self.token.id != token.id):
            self._table.know(self, token)

    def leave(self) -> None:
        self._is_open = False
        self._table.forget(self)

    def note(self, why: Refusal) -> None:
        """In the log, why it ends."""
        self._table.log.note(why, self.address)

    def drop(self, why: Refusal) -> None:
        """Without an answer; the log says why."""
        self.note(why)
        self.leave()
        self._abort()


class Connections:
    """All of a server; for one thread."""

    def __init__(
        self,
        most: int,
        log: RefusalLog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._calm_at = clock, clock() - RUSH / RUSH_PER_S
        self._most, self._most_strangers = most, max(1, most // 4)
        self._shares = Shares(most - most // 8, "connections")  # those with a token never have all
        self._strangers: dict[Connection, None] = {}  # the oldest first
        self._at: dict[str, dict[Connection, None]] = {}  # the same, by address
        self.log = log or RefusalLog()

    def __len__(self) -> int:
        return len(self._strangers) + len(self._shares)

    def admit(self, address: str, abort: Callable[[], None]) -> Connection:
        """A newcomer, for whom another stranger may have to go."""
        neighbours, connection = self._at.get(address, {}), Connection(self, address, abort)
        if 2 * len(self._strangers) >= self._most_strangers:
            connection.in_rush = self._is_rush()
        if len(neighbours) >= self._most_strangers:
            next(iter(neighbours)).drop(CROWDED)
        elif len(self) >= self._most:
            next(iter(self._strangers)).drop(CROWDED)
        self._strangers[connection] = None
        self._at.setdefault(address, {})[connection] = None
        return connection

    def _is_rush(self) -> bool:
        """Whether more came than may, up to now."""
        now = self._clock()
        if self._calm_at > now:
            return True
        self._calm_at = max(self._calm_at, now - RUSH / RUSH_PER_S) + 1 / RUSH_PER_S
        return False

    def know(self, connection: Connection, token: Token) -> None:
        self._shares.take(token)
        self.forget(connection)
        connection.token = token

    def forget(self, connection: Connection) -> None:
        if connection.token is not None:
            self._shares.leave(connection.token)
            connection.token = None
        elif connection in self._strangers:
            del self._strangers[connection]
            neighbours = self._at[connection.address]
            del neighbours[connection]
            if not neighbours:
                del self._at[connection.address]


def know(scope: Scope, token: Token) -> None:
    """Say whose the connection of a request is, where the server keeps count of them."""
    connection = scope.get("state", {}).get(STATE)
    if connection is not None:
        connection.belongs_to(token)


def room_for(most: int) -> int:
    """How many connections this process has descriptors for: up to `most`, asking for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted, endless = most + RESERVED, resource.RLIM_INFINITY
    if endless != soft < wanted:
        soft = wanted if hard == endless else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(LEAST, (wanted if soft == endless else min(wanted, soft)) - RESERVED)
