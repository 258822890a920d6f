"""The body of a request, whole and checked before anything parses it.

Bodies are small by the limit, so they are kept: the size holds for those that come in chunks and
tell no length, and a parser never sees JSON that is too deep for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rookery.server.security.limits import is_too_deep
from rookery.server.security.refusals import (
    BAD_LENGTH,
    BAD_TEXT,
    NOT_JSON,
    TOO_DEEP,
    TOO_SLOW,
    RequestRefused,
    too_large,
)

if TYPE_CHECKING:
    from starlette.types import Message, Receive

Seen = dict[bytes, bytes | None]  # header -> its value; None for one that came twice

_READ_ON = 8  # times the limit


class Gone(Exception):
    """The client left before it had sent everything."""


class Bodies:
    """Reads bodies within limits."""

    def __init__(self, max_kb: int, timeout_s: float) -> None:
        self._max_bytes, self._timeout_s = max_kb << 10, timeout_s
        self._too_large = too_large(max_kb)

    async def checked(self, seen: Seen, receive: Receive) -> Receive:
        """The same request with its body at hand; raises RequestRefused, or Gone."""
        length = seen.get(b"content-length", b"0")
        if length is None or not length.isdigit():
            raise RequestRefused(BAD_LENGTH)
        if declares_body(seen) and not _is_json(seen.get(b"content-type")):
            raise RequestRefused(NOT_JSON)
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._read(receive)
        except TimeoutError:
            raise RequestRefused(TOO_SLOW) from None
        if body and not _is_json(seen.get(b"content-type")):
            raise RequestRefused(NOT_JSON)
        if b"\0" in body:  # UTF-16 or UTF-32, in which a count of bytes misses brackets
            raise RequestRefused(BAD_TEXT)
        if is_too_deep(body):
            raise RequestRefused(TOO_DEEP)
        return replay(body, receive)

    async def _read(self, receive: Receive) -> bytes:
        """All of it. Some of what is too much is read as well, and thrown away: a client that is
        still sending when the connection closes never sees why."""
        parts: list[bytes] = []
        size, more = 0, True
        while more and size <= _READ_ON * self._max_bytes:
            message = await receive()
            if message["type"] != "http.request":
                raise Gone
            part: bytes = message.get("body", b"")
            size += len(part)
            if size <= self._max_bytes:
                parts.append(part)
            more = message.get("more_body", False)
        if size > self._max_bytes:
            raise RequestRefused(self._too_large)
        return b"".join(parts)


def declares_body(seen: Seen) -> bool:
    return seen.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in seen


def _is_json(content_type: bytes | None) -> bool:
    if content_type is None:
        return False
    return content_type.partition(b";")[0].strip().lower() == b"application/json"


def replay(body: bytes, receive: Receive) -> Receive:
    """What tells a body that was read already, and then what comes."""
    told = False

    async def replayed() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
