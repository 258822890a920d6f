"""The stream of a server, from its client's side: what happens to runs, as it happens.

    async for event in events(address, StreamSubscription(["*"], ["events"])): ...
    with Following(address, StreamSubscription([run], ["metrics"])) as stream:
        stream.poll(timeout_s=0.2)

A connection that is lost comes back by itself and goes on after the last message of each channel:
nothing is missed and nothing comes twice (`StreamSubscription`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeAlias

from rookery.client.address import Address
from rookery.client.http import API, refusal
from rookery.client.subscription import Event, StreamSubscription
from rookery.errors import (
    Forbidden,
    InputError,
    RookeryError,
    ServerFailed,
    Unauthorized,
    Unreachable,
)
from rookery.foreign import one_line

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from rookery.client.local_stream import LocalFollowing

MAX_FRAME_BYTES = 64 << 20
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
PATIENCE_S = 300.0  # with a server that was there and is not

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)  # what is below that would show the token


EventStream: TypeAlias = "Following | LocalFollowing"


class _Absence:
    """How long the server has been away, and when to look for it again."""

    def __init__(self, url: str, patience_s: float) -> None:
        self._url, self._patience_s = url, patience_s
        self.trouble: str | None = None
        self._since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def over(self) -> None:
        self.trouble, self._since, self._pause_s = None, None, FIRST_PAUSE_S

    def pause_s(self, error: Exception, subscription: StreamSubscription) -> float:
        """How long to wait before the next try; raises where another can't help."""
        now = time.monotonic()
        why = _final(self._url, error, subscription.refused)
        if why is not None:
            raise why from None
        self._since = self._since or now
        line = one_line(subscription.refused or str(error)) or type(error).__name__
        self.trouble = f"{self._url} is away: {line}"
        if not subscription.is_begun or now - self._since > self._patience_s:
            raise Unreachable(f"no stream from {self._url}: {line}") from None
        pause_s, self._pause_s = self._pause_s, min(LONGEST_PAUSE_S, 2 * self._pause_s)
        return pause_s


def _final(url: str, error: Exception, refused: str) -> RookeryError | None:
    """An error that no other try can mend; None: try again."""
    from websockets.exceptions import ConnectionClosed, InvalidStatus

    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        if status == 429 or status >= 500:
            return None
        try:
            problem = json.loads(error.response.body or b"")
        except ValueError:
            problem = None
        return refusal(url, status, problem)
    if isinstance(error, ConnectionClosed) and error.rcvd is not None:
        line = refused or one_line(error.rcvd.reason)
        kinds = {4400: InputError, 4401: Unauthorized, 4403: Forbidden}
        kind = kinds.get(error.rcvd.code)
        return kind(line or f"{url} refuses the stream") if kind is not None else None
    return None


def _options(address: Address) -> dict[str, Any]:
    return {
        "additional_headers": address.headers,
        "ssl": address.tls,
        "proxy": True if address.is_secure else None,
        "compression": None,
        "max_size": MAX_FRAME_BYTES,
        "close_timeout": 1.0,
        "logger": logger,
    }


def _uri(address: Address) -> str:
    return "ws" + address.url.removeprefix("http") + API + "/stream"


async def events(
    address: Address, subscription: StreamSubscription, patience_s: float = PATIENCE_S
) -> AsyncIterator[Event]:
    """All that is subscribed to, for as long as somebody listens."""
    import asyncio

    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    absence = _Absence(address.url, patience_s)
    while True:
        try:
            connection = await connect(_uri(address), **_options(address))
            try:
                await connection.send(subscription.request())
                while True:
                    found = subscription.take(await connection.recv())
                    absence.over()
                    if subscription.again:
                        await connection.send(subscription.request())
                    for event in found:
                        yield event
            finally:  # without waiting: who leaves this loop may leave the event loop right after
                connection.transport.abort()
        except (OSError, WebSocketException) as error:
            await asyncio.sleep(absence.pause_s(error, subscription))
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(address) from error


class Following:
    """The same for who may block; one thread's."""

    def __init__(
        self, address: Address, subscription: StreamSubscription, patience_s: float = PATIENCE_S
    ) -> None:
        self._address, self._subscription = address, subscription
        self._absence = _Absence(address.url, patience_s)
        self._connection: ClientConnection | None = None
        self._open = contextlib.ExitStack()
        self._try_at = 0.0

    def __enter__(self) -> Following:
        """Returns when the server has begun: what happens from then on will come."""
        deadline = time.monotonic() + 10.0
        while not self._subscription.is_begun:
            self._step(deadline)
            if time.monotonic() > deadline:
                self.close()
                raise Unreachable(f"no stream from {self._address.url}: it says nothing")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def trouble(self) -> str | None:
        """One line while the connection is lost."""
        return self._absence.trouble

    def poll(self, timeout_s: float) -> list[Event]:
        """What is new, as soon as there is something; nothing after so many seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = self._step(deadline)
            if found or time.monotonic() >= deadline:
                return found

    def close(self) -> None:
        self._connection = None
        self._open.close()

    def _step(self, deadline: float) -> list[Event]:
        from websockets.exceptions import WebSocketException

        left_s = deadline - time.monotonic()
        wait_s = self._try_at - time.monotonic()
        if self._connection is None and wait_s > 0:
            time.sleep(max(0.0, min(wait_s, left_s)))
            return []
        try:
            connection = self._connection or self._connect()
            found = self._subscription.take(connection.recv(timeout=max(0.0, left_s)))
            self._absence.over()
            if self._subscription.again:
                connection.send(self._subscription.request())
            return found
        except (OSError, WebSocketException) as error:
            if isinstance(error, TimeoutError) and self._connection is not None:
                return []  # nothing came
            self.close()
            self._try_at = time.monotonic() + self._absence.pause_s(error, self._subscription)
            return []
        except (ValueError, KeyError, TypeError) as error:
            self.close()
            raise _unreadable(self._address) from error

    def _connect(self) -> ClientConnection:
        from websockets.sync.client import connect

        made: ClientConnection = self._open.enter_context(
            connect(_uri(self._address), **_options(self._address))
        )
        made.send(self._subscription.request())
        self._connection = made
        return made


def _unreadable(address: Address) -> ServerFailed:
    return ServerFailed(
        f"{address.url} streams something that cannot be read: use one version of Rookery"
    )
