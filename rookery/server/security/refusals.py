"""What the guard says to those whom it does not let in: answers that are ready to be sent.

None of them repeats anything that a request said, so none can carry a secret or a page's code back,
and nothing is written into a header that came from outside.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from rookery.control.models import Problem

if TYPE_CHECKING:
    from starlette.types import Scope, Send

Headers = list[tuple[bytes, bytes]]

PAGE_HEADERS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]
API_HEADERS: Headers = [
    *PAGE_HEADERS,
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
_LOG_EVERY_S = 60.0
_SERVER_LOG = "uvicorn.error"
_MCP_LOG = "mcp"
_SAID_ELSEWHERE = (
    "ASGI callable returned without completing handshake.",
    "Invalid HTTP request received.",
    "Invalid UTF-8 sequence received from client.",
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Refusal:
    """One answer; `why` is its name in the log."""

    status: int
    why: str
    body: bytes
    headers: Headers


class RequestRefused(Exception):
    """Ends the way of a request through the guard."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.why)
        self.refusal = refusal


def refusal(status: int, why: str, detail: str, *headers: tuple[bytes, bytes]) -> Refusal:
    title = HTTPStatus(status).phrase
    body = Problem(title=title, status=status, detail=detail).model_dump_json().encode()
    described = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
    ]
    return Refusal(status, why, body, [*described, *API_HEADERS, *headers])


BAD_HOST = refusal(
    400,
    "unknown host",
    "the Host header does not name this server: use one of its own names, or let its owner add "
    "this one to server.allowed_hosts in rookery.yaml",
)
BAD_ORIGIN = refusal(
    403, "foreign origin", "pages of another site may not use this server from a browser"
)
NO_TOKEN = refusal(
    401,
    "no token",
    "send `Authorization: Bearer TOKEN`; whoever owns this server makes one with `rookery tokens "
    "create`",
    (b"www-authenticate", b'Bearer realm="rookery"'),
)
BAD_TOKEN = refusal(
    401,
    "bad token",
    "the token is unknown, revoked or expired: whoever owns this server makes another with "
    "`rookery tokens create`",
    (b"www-authenticate", b'Bearer realm="rookery", error="invalid_token"'),
)
BAD_TICKET = refusal(
    401,
    "bad ticket",
    "the ticket was used, is over a minute old, or is for another path: ask for another",
    (b"www-authenticate", b'Bearer realm="rookery"'),
)
TOKEN_IN_QUERY = refusal(
    400,
    "token in an address",
    "addresses are logged and kept: send the token as `Authorization: Bearer TOKEN`, and revoke "
    "this one",
)
NOT_JSON = refusal(415, "not JSON", "send the body as JSON, with `Content-Type: application/json`")
BAD_LENGTH = refusal(400, "bad length", "Content-Length is not one number")
BAD_TEXT = refusal(400, "not UTF-8", "send the JSON in UTF-8")
TOO_DEEP = refusal(400, "JSON too deep", "the JSON nests deeper than 64 levels: flatten it")
TOO_SLOW = refusal(408, "body too slow", "the body did not arrive in time: send it again")
NOT_HTTP = refusal(400, "not HTTP", "this is no request of HTTP/1.1")
NOT_WEBSOCKET = refusal(
    400, "not WebSocket", "this begins no WebSocket: leave out its body, and long headers"
)
HEAD_TOO_LARGE = refusal(
    431, "head too large", "the address and the headers are too long or too many: send fewer"
)
HEAD_TOO_SLOW = refusal(408, "head too slow", "the request did not arrive in time: send it again")
# said in the log alone: whom they are about does not listen, or says nothing
CROWDED = refusal(503, "gave way to newer connections", "too many connections: try again later")
UNREAD = refusal(408, "answer not read", "the answer was not read in time")
TOO_MUCH_SAID = refusal(401, "much said before hello", "say hello first, with a token")


def too_large(limit_kb: int) -> Refusal:
    return refusal(413, "body too large", f"a body may have at most {limit_kb} kB")


def too_crowded(detail: str) -> Refusal:
    return refusal(429, "too many connections", detail, (b"retry-after", b"1"))


def too_often(wait_s: float) -> Refusal:
    seconds = max(1, math.ceil(wait_s))
    return refusal(
        429,
        "too many requests",
        f"this token asks too often: wait {seconds} s and try again",
        (b"retry-after", str(seconds).encode()),
    )


def as_bytes(refusal: Refusal) -> bytes:
    """The answer as it goes over the wire, where no request was understood; nothing comes after."""
    phrase = HTTPStatus(refusal.status).phrase
    lines = [f"HTTP/1.1 {refusal.status} {phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in refusal.headers]
    return b"\r\n".join([*lines, b"", refusal.body])


def address_of(scope: Scope) -> str:
    return (scope.get("client") or ("unknown",))[0]


async def answer(refusal: Refusal, send: Send, close: bool) -> None:
    """`close`: with a body that nobody has read the connection is of no use any more."""
    headers = [*refusal.headers, (b"connection", b"close")] if close else refusal.headers
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})


async def answer_upgrade(refusal: Refusal, scope: Scope, send: Send) -> None:
    """The same answer instead of a WebSocket; a server that can't send one says 403."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 4000 + refusal.status, "reason": ""})
        return
    start = "websocket.http.response.start"
    await send({"type": start, "status": refusal.status, "headers": refusal.headers})
    await send({"type": "websocket.http.response.body", "body": refusal.body})


def quieten_server_log() -> None:
    """Keep secrets, and what clients can make them say without end, out of the libraries' logs.

    At DEBUG uvicorn has the headers of every upgrade and all that a WebSocket says, a token in
    `hello` included; at INFO a line for every upgrade; and it takes each refusal of one for an
    error. Of what is left each kind is said once a minute. The SDK of MCP has a line or two for
    every session and for each request that it refuses.
    """
    logging.getLogger(_MCP_LOG).setLevel(logging.ERROR)
    log = logging.getLogger(_SERVER_LOG)
    log.setLevel(logging.WARNING)
    log.addFilter(Seldom())


class Seldom(logging.Filter):
    """Lets each kind of line through once a minute: a text before it is filled in, an error."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._due: dict[tuple[str, str], float] = {}  # few: kinds are in the code of libraries

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[0] if record.exc_info else None
        kind = str(record.msg)[:200], str(error)
        if record.msg in _SAID_ELSEWHERE or self._clock() < self._due.get(kind, -math.inf):
            return False
        self._due[kind] = self._clock() + _LOG_EVERY_S
        return True


class RefusalLog:
    """Says that somebody is refused, once a minute for each reason, however often it happens."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}
        self._due: dict[str, float] = {}

    def note(self, refusal: Refusal, address: str) -> None:
        why, now = refusal.why, self._clock()
        self._counts[why] = self._counts.get(why, 0) + 1
        if now < self._due.get(why, -math.inf):
            return
        logger.warning("refused %d (%s), the last from %s", self._counts[why], why, address)
        self._counts[why], self._due[why] = 0, now + _LOG_EVERY_S
