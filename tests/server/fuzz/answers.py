"""Answers of a server as they come over a socket, and what none of them may be."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

MOST_BYTES = 64 << 20


class Answer(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    closes: bool  # the connection is of no use any more

    @property
    def is_bad(self) -> str:
        """Why it must not be; empty: it may.

        Nothing may be an error that the server did not expect, however it is said.
        """
        if self.status >= 500:
            return f"status {self.status}"
        for words in (b"an error inside the server", b"Traceback", b"Internal server error"):
            if words in self.body:
                return f"the answer says {words.decode()!r}"
        return ""


async def read_answer(reader: asyncio.StreamReader, method: str) -> Answer:
    """The next one; raises IncompleteReadError where the connection ends before."""
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head[:-4].split(b"\r\n")
        status = int(lines[0].split(b" ", 2)[1])
        if status >= 200 or status == 101:
            break
    pairs = (line.partition(b":") for line in lines[1:])
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    closes = headers.get(b"connection", b"").lower() == b"close" or status == 101
    if method == "HEAD" or status in (101, 204, 304):
        return Answer(status, headers, b"", closes)
    if headers.get(b"transfer-encoding") == b"chunked":
        endless = method == "GET" and headers.get(b"content-type") == b"text/event-stream"
        body = b"" if endless else await _chunks(reader)
        return Answer(status, headers, body, closes or endless)
    length = int(headers.get(b"content-length", b"0"))
    assert length <= MOST_BYTES
    return Answer(status, headers, await reader.readexactly(length), closes)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)
