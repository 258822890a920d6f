"""The page in a browser: `/` and its assets, as the build left them in `built/`.

    page = Page()
    app = Guard(..., open_pages=PAGES, open_prefixes=PREFIXES)

Anyone may read these files without a token: they are the same for everybody, and a page without a
token asks for one. Nothing outside is ever asked for, and nothing inline is ever run, so the policy
below can be strict. The files are few and small: they are read once and answered from memory, so
no path that a request names ever reaches the disk. `hatch_build.py` builds them from `web/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

PAGES = frozenset({"/"})
PREFIXES = ("/assets/",)
BUILT = Path(__file__).parent / "built"

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
FOREVER = "public, max-age=31536000, immutable"  # an asset's name holds the digest of its bytes
MISSING = """\
The page is not built.

Everything else works: `rookery --help`, the REST API under /api/v1, MCP at /mcp.
To build the page, install Rookery again (`pip install .`), or in a checkout run `make page`.
"""


@dataclass(frozen=True)
class _File:
    kind: str
    plain: bytes
    packed: bytes | None  # gzip, made by the build
    etag: str


class Page:
    """An ASGI app over the built files; one that says what to do where there are none."""

    def __init__(self, built: Path = BUILT) -> None:
        self._built = built
        self._files: Mapping[str, _File] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope["path"], Headers(scope=scope))(scope, receive, send)

    def _answer(self, path: str, asked: Headers) -> Response:
        if not self._files:
            self._files = read(self._built)  # it may have been built since
        headers = {
            "Content-Security-Policy": POLICY,
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-cache",
        }
        found = self._files.get(path)
        if found is None:
            status, text = (503, MISSING) if not self._files else (404, "there is no such file\n")
            return PlainTextResponse(text, status, headers)
        if path not in PAGES:
            headers["Cache-Control"] = FOREVER
        headers |= {"ETag": found.etag, "Vary": "Accept-Encoding"}
        if found.etag in asked.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        body = found.plain
        if found.packed is not None and "gzip" in asked.get("accept-encoding", ""):
            headers["Content-Encoding"], body = "gzip", found.packed
        return Response(body, 200, {**headers, "Content-Type": found.kind})


def read(built: Path) -> dict[str, _File]:
    """The files of a build by the paths that they are asked for with; empty: there is no build."""
    files: dict[str, _File] = {}
    for path in sorted(built.rglob("*")):
        if path.suffix not in KINDS or not path.is_file():
            continue
        plain = path.read_bytes()
        packed = path.with_name(path.name + ".gz")
        name = "/" + path.relative_to(built).as_posix()
        files["/" if name == "/index.html" else name] = _File(
            KINDS[path.suffix],
            plain,
            packed.read_bytes() if packed.is_file() else None,
            f'"{hashlib.sha256(plain).hexdigest()[:24]}"',
        )
    return files if "/" in files else {}
