"""Handing over a file: the whole of it, or one range (RFC 9110), in portions.

The file is opened once and its length taken from there, so that a log that grows or a picture that
is replaced meanwhile cannot break the answer.
"""

from __future__ import annotations

import os
import re
from email.utils import formatdate
from pathlib import Path
from urllib.parse import quote

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PORTION_BYTES = 256 << 10
SHOWN = {".png": "image/png", ".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif"}
SAVED = "application/octet-stream"
_RANGE = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})\s*", re.ASCII)


class Unsatisfiable(Exception):
    """A range that begins after the end of the file."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"the file has {size} bytes: ask for a range within them")


def parse_range(text: str, size: int) -> tuple[int, int] | None:
    """Its first byte and the one after its last; None for what is no single range: all is sent."""
    found = _RANGE.fullmatch(text)
    if found is None or found.groups() == ("", ""):
        return None
    first, last = found.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
        if not int(last):
            raise Unsatisfiable(size)
    else:
        start, stop = int(first), min(size, int(last) + 1 if last else size)
        if last and int(last) < start:
            return None
    if start >= size:
        raise Unsatisfiable(size)
    return start, stop


class FileAnswer(Response):
    """A file, or what was asked for of it. Pictures and videos may be shown, all else is saved."""

    def __init__(self, path: Path, asked: Headers) -> None:
        """Opens the file; Unsatisfiable if it has no such range."""
        self._name = path.name
        self._file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(self._file)
            headers = _headers(path, found)
            part = _part(asked, headers, found.st_size)
        except BaseException:
            os.close(self._file)
            raise
        self._start, self._stop = part or (0, found.st_size)
        headers["content-length"] = str(self._stop - self._start)
        if part is not None:
            headers["content-range"] = f"bytes {self._start}-{self._stop - 1}/{found.st_size}"
        super().__init__(status_code=200 if part is None else 206, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                self._stop = self._start
            await self._send(send)
        finally:
            os.close(self._file)

    async def _send(self, send: Send) -> None:
        at = self._start
        while at < self._stop:
            size = min(PORTION_BYTES, self._stop - at)
            body = await to_thread.run_sync(os.pread, self._file, size, at)
            if not body:
                raise OSError(f"{self._name} became shorter while it was sent")
            at += len(body)
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _part(asked: Headers, headers: dict[str, str], size: int) -> tuple[int, int] | None:
    """The range that was asked for; None: all, also where the file is not the same any more."""
    text, only_if = asked.get("range"), asked.get("if-range")
    same = only_if is None or only_if in (headers["etag"], headers["last-modified"])
    return parse_range(text, size) if text is not None and same else None


def _headers(path: Path, found: os.stat_result) -> dict[str, str]:
    kind = SHOWN.get(path.suffix.lower(), SAVED)
    how = "inline" if kind != SAVED else "attachment"
    return {
        "content-type": kind,
        "content-disposition": f"{how}; filename*=utf-8''{quote(path.name, safe='')}",
        "accept-ranges": "bytes",
        "etag": f'"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}"',
        "last-modified": formatdate(found.st_mtime, usegmt=True),
    }
