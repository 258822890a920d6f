"""The connections themselves: uvicorn's protocols, held to bounds that it does not have.

    uvicorn.Config(app, http=http_connections(Connections(768)), ws=WebSocketConnection)

A request's head has to come within a time and a size, and so has whatever else the parser takes in
without handing it on (extensions of chunks, trailers, which are dropped). An answer has to be read,
and a WebSocket that has not said who it is says little. Whoever exceeds a bound is told where that
is possible, and the log says so once a minute for each kind.
"""

from __future__ import annotations

import re
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from rookery.server.security.connections import STATE, Connection, Connections
from rookery.server.security.refusals import (
    CROWDED,
    HEAD_TOO_LARGE,
    HEAD_TOO_SLOW,
    NOT_HTTP,
    NOT_WEBSOCKET,
    TOO_MUCH_SAID,
    UNREAD,
    Refusal,
    as_bytes,
)

HEAD_S = 10.0  # for a request's head, from the first byte or the connection on
HEAD_BYTES = 32 << 10
HEADERS = 100
PIPELINED = 128  # requests that wait for the answer to the one before
STALL_S = 30.0  # for a client to read what fills its buffer
LINGER_S = 1.0  # to read why it was refused, before the connection goes
LINGER_BYTES = 1 << 20  # and to send what was under way
HELLO_BYTES = 4 << 10  # that a WebSocket may say before we know whose it is

_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:", re.IGNORECASE)
_TOKEN = re.compile(rb"\r\nauthorization[ \t]*:", re.IGNORECASE)
_SLICE = 16 << 10  # bytes parsed at a time, so that a head is measured while it comes


class HttpConnection(HttpToolsProtocol):
    """A connection, up to its end or its upgrade."""

    _table: Connections

    def __init__(self, *settings: Any, **options: Any) -> None:
        super().__init__(*settings, **options)
        self._timer: TimerHandle | None = None  # for a head, or for the end
        self._stalled: TimerHandle | None = None
        self._why = NOT_HTTP
        self._in_head, self._is_over, self._has_delivered = True, False, False
        self._undelivered = 0  # bytes that the parser has taken in
        self._answered: RequestResponseCycle | None = None  # uvicorn knows the newest request alone

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = self._table.admit(self._address, transport.abort)
        self.app_state = {**self.app_state, STATE: self._connection}
        self._in(HEAD_S, self._head_is_late)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else "unknown"

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(self._timer, self._stalled)
        self._connection.leave()
        self._forsake()
        super().connection_lost(exc)

    # --- what comes ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            self._undelivered += len(data)
            if self._undelivered > LINGER_BYTES:
                self.transport.abort()
            return
        if self._connection.in_rush and not _speaks(data):
            self._is_over = True
            self._connection.drop(CROWDED)
            return
        self._connection.in_rush = False
        if self._timer is None and (self.cycle is None or self.cycle.response_complete):
            self._in(HEAD_S, self._head_is_late)
        for begin in range(0, len(data), _SLICE):
            if self._is_over or self.transport.is_closing():
                return
            self._has_delivered, part = False, data[begin : begin + _SLICE]
            super().data_received(part)
            self._undelivered = 0 if self._has_delivered else self._undelivered + len(part)
            if self._undelivered > HEAD_BYTES:
                self._refuse(HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._in_head = self._has_delivered = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEADERS:
            self._fail(HEAD_TOO_LARGE)
        if self._in_head:  # the app has read them when trailers come
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._has_delivered = False, True
        if len(self.pipeline) >= PIPELINED:
            self._fail(NOT_HTTP)
        self._end(self._timer)
        self._timer = None
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._has_delivered = True
        super().on_body(body)

    def handle_websocket_upgrade(self) -> None:
        self._is_over = True
        self._end(self._timer, self._stalled)
        super().handle_websocket_upgrade()
        upgraded = self.transport.get_protocol()
        if isinstance(upgraded, WebSocketConnection) and not upgraded.handshake_initiated:
            self._refuse(NOT_WEBSOCKET)  # its parser takes less than ours, and says nothing

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    # --- how it ends -----------------------------------------------------------------------------

    def _forsake(self) -> bool:
        """Let whoever answers know that nobody listens; whether an answer is under way."""
        cycle = self._answered
        if cycle is None or cycle.response_complete:
            return False
        is_answering = cycle.response_started or cycle is not self.cycle
        cycle.disconnected, cycle.waiting_for_100_continue = True, False
        cycle.message_event.set()
        self.pipeline.clear()
        return is_answering

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._why)

    def _fail(self, why: Refusal) -> None:
        """Out of the parser, which then says that there was an error."""
        self._why = why
        raise ValueError(why.why)

    def _head_is_late(self) -> None:
        self._refuse(HEAD_TOO_SLOW)

    def _refuse(self, refusal: Refusal) -> None:
        """Say why, unless an answer to something else is under way, and hear no more."""
        self._is_over = True
        if self.transport.is_closing():
            self.transport.abort()
            return
        self._table.log.note(refusal, self._address)
        if self._forsake():
            self.transport.abort()
            return
        self.transport.write(as_bytes(refusal))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._in(LINGER_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_S, self._is_not_read)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end(self._stalled)

    def _is_not_read(self) -> None:
        self._connection.drop(UNREAD)

    def _in(self, seconds: float, then: Callable[[], None]) -> None:
        self._end(self._timer)
        self._timer = self.loop.call_later(seconds, then)

    def _end(self, *timers: TimerHandle | None) -> None:
        for timer in timers:
            if timer is not None:
                timer.cancel()


def _speaks(data: bytes) -> bool:
    """Whether what came first is a whole request; one for a conversation comes with a token."""
    head, end, _ = data.partition(b"\r\n\r\n")
    return bool(end) and (not _UPGRADE.search(head) or bool(_TOKEN.search(head)))


def http_connections(connections: Connections) -> type[HttpConnection]:
    """The class that uvicorn makes one of for each connection, counted in `connections`."""
    return type("HttpConnection", (HttpConnection,), {"_table": connections})


class WebSocketConnection(WebSocketsSansIOProtocol):
    """The same connection after its upgrade."""

    _heard = 0  # bytes since
    _is_broken = False  # it said what is no frame, or no text

    @property
    def _connection(self) -> Connection:
        found: Connection = self.app_state[STATE]
        return found

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated and self._connection.token is None:
            self._heard += len(data)
            if self._heard > HELLO_BYTES:
                self._connection.drop(TOO_MUCH_SAID)
                return
        try:
            super().data_received(data)
        except InvalidState:  # what came with the end of the conversation was no text either
            self._connection.drop(NOT_WEBSOCKET)

    def handle_parser_exception(self) -> None:
        self._is_broken = True
        self._connection.note(NOT_WEBSOCKET)
        super().handle_parser_exception()

    async def send(self, message: Any) -> None:
        """The app does not know yet what it is told in its next message."""
        if self._is_broken:
            raise ClientDisconnected
        await super().send(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.leave()
        super().connection_lost(exc)
