"""Lines of a worker's log, to be searched and followed.

    found = read_log(path, after=-1, limit=200)              # the newest
    found = read_log(path, after=found.next, limit=200)      # what came since

What is in a log was written by environments and libraries as much as by us: colours go, and so does
what would move a cursor or turn text round.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

from rookery.control.models import LogLine, LogLines
from rookery.foreign import clean

MOST_BYTES = 16 << 20  # that one answer looks at; a launcher cuts logs that become half as long
MOST_CHARACTERS = 2000  # of a line
NEWEST = -1


def read_log(path: Path, after: int = NEWEST, limit: int = 200, search: str = "") -> LogLines:
    """The newest lines that hold `search`, whatever its case; or the first ones after a place."""
    size = path.stat().st_size
    newest = not 0 <= after <= size  # a log that was cut since is shorter than it was
    start = max(0, size - MOST_BYTES) if newest else after
    with open(path, "rb") as file:
        file.seek(start)
        content = file.read(MOST_BYTES)
    if newest and start:
        start, content = _from_next_line(start, content)
    found, ends = [], start
    for at, raw in _lines(start, content):
        text = cleaned(raw)
        ends = at + len(raw) if raw.endswith(b"\n") else at  # one that is not ended comes again
        if search.casefold() in text.casefold():
            found.append(LogLine(at=at, text=text))
        if len(found) == limit and not newest:
            break
    shown = found[-limit:]
    more = start > 0 or len(found) > limit if newest else ends < size and len(found) == limit
    return LogLines(file=path.name, lines=shown, next=ends, more=more)


def _from_next_line(start: int, content: bytes) -> tuple[int, bytes]:
    cut = content.find(b"\n") + 1
    return start + cut, content[cut:]


def _lines(start: int, content: bytes) -> Iterator[tuple[int, bytes]]:
    """At line feeds alone: a progress bar returns to its beginning many times in a line."""
    for line in io.BytesIO(content):
        yield start, line
        start += len(line)


def cleaned(raw: bytes) -> str:
    """A line as text; of one that was written over, what stood there last."""
    text: str = clean(raw.rstrip(b"\r\n").rpartition(b"\r")[2].decode(errors="replace"))
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"
