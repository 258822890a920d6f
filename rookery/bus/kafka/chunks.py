"""Messages of any size over a bus that limits each one: checksummed chunks, all or nothing.

    parts = split(payload, limit)                    # [(headers, bytes), ...]; one without headers
    whole = assembler.add(source, headers, part)     # the payload when its last chunk has come

A chunk names its message, its place and the checksum of the whole, so a message is applied complete
and intact or not at all. Chunks of several messages may be mixed.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Mapping
from typing import NamedTuple

CHUNK = "chunk"  # the header: message:place:count:checksum
_MAX_BYTES = 1 << 30  # of one message
_PATIENCE_S = 60.0  # for the rest of a message, by the time of later records


class Chunk(NamedTuple):
    """One part's place in its message."""

    message: str
    place: int
    total: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.message}:{self.place}:{self.total}:{self.checksum:08x}"

    @classmethod
    def parse(cls, text: str) -> Chunk:
        message, place, total, checksum = text.split(":")
        chunk = cls(message, int(place), int(total), int(checksum, 16))
        if not 0 <= chunk.place < chunk.total:
            raise ValueError(f"chunk {chunk.place} of {chunk.total}")
        return chunk


def split(payload: bytes, limit: int) -> list[tuple[dict[str, str], bytes]]:
    """The payload in parts of at most `limit` bytes, each with the header that it needs."""
    if len(payload) <= limit:
        return [({}, payload)]
    view = memoryview(payload)
    count = -(-len(payload) // limit)
    message, checksum = secrets.token_hex(6), zlib.crc32(payload)
    return [
        (
            {CHUNK: str(Chunk(message, place, count, checksum))},
            bytes(view[place * limit : (place + 1) * limit]),
        )
        for place in range(count)
    ]


class _Open:
    def __init__(self, message: str, offset: int, time_s: float) -> None:
        self.message, self.first, self.time_s = message, offset, time_s
        self.parts: dict[int, bytes] = {}


class Damaged(ValueError):
    """A complete message whose bytes are not those that were sent."""


class Assembler:
    """Puts the chunks of one partition together.

    A source sends its messages one after the other: whatever else comes from it shows that the rest
    of an unfinished one will not, because its publisher died.
    """

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}  # source -> its message so far

    def add(
        self, source: str, header: str, part: bytes, offset: int, time_s: float = 0.0
    ) -> bytes | None:
        """The whole payload, when this was the part that lacked."""
        chunk = Chunk.parse(header)
        found = self._open.get(source)
        if found is None or found.message != chunk.message:
            found = self._open[source] = _Open(chunk.message, offset, time_s)
        found.parts[chunk.place] = part
        if sum(map(len, found.parts.values())) > _MAX_BYTES:
            del self._open[source]
            raise Damaged(f"a message in chunks passes {_MAX_BYTES >> 20} MB")
        if len(found.parts) < chunk.total:
            return None
        del self._open[source]
        whole = b"".join(found.parts[place] for place in range(chunk.total))
        if zlib.crc32(whole) != chunk.checksum:
            raise Damaged("a message in chunks does not have its checksum")
        return whole

    def passed(self, source: str, time_s: float) -> None:
        """A message that is not in chunks has come from this source, at this time."""
        self._open.pop(source, None)
        old = [s for s, found in self._open.items() if found.time_s < time_s - _PATIENCE_S]
        for other in old:
            del self._open[other]

    @property
    def oldest(self) -> int | None:
        """The offset of the first chunk that still waits for others."""
        return min((found.first for found in self._open.values()), default=None)


def chunk_key(key: str, headers: Mapping[str, str]) -> str:
    """Chunks of a compacted topic need keys of their own, or only the last would be kept."""
    place = Chunk.parse(headers[CHUNK]).place if CHUNK in headers else 0
    return f"{key}#{place}" if place else key
