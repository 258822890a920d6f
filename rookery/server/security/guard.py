"""The one door: every request and every upgrade passes `Guard` before anything else sees it.

    app = Guard(app, TokenStore(home.path / "tokens.json"), Tickets(), settings.server)

What it asks, in this order:

    Host            one of our names, else it is a page whose name was bound to our address (400)
    Origin          our own, if there is one: no other site's page may ask, by any method (403)
    Authorization   Bearer and a token that holds, or a ticket for an artifact (401)
    rate            of that token, and its connections (429)
    body            JSON (415), not larger (413), not slower (408), not deeper (400) than the limits

There are no cookies, so that a browser never carries anyone's authority to us by itself. A request
that gets through has `scope["state"]["token"]`, and no secret any more, neither in its headers nor
in its query. Plain ASGI on bytes, because it runs for every request beside training.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode

from rookery.control.settings import ServerSettings
from rookery.control.tokens import Token, TokenStore
from rookery.server.security.bodies import Bodies, Gone, Seen, declares_body
from rookery.server.security.connections import know
from rookery.server.security.limits import RateLimits
from rookery.server.security.refusals import (
    API_HEADERS,
    BAD_HOST,
    BAD_ORIGIN,
    BAD_TICKET,
    BAD_TOKEN,
    NO_TOKEN,
    PAGE_HEADERS,
    TOKEN_IN_QUERY,
    Headers,
    RefusalLog,
    RequestRefused,
    address_of,
    answer,
    answer_upgrade,
    too_crowded,
    too_often,
)
from rookery.server.security.shares import ASKER, NoPlace
from rookery.server.security.tickets import Tickets, is_artifact

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
CONVERSATIONS = ("/api/v1/stream", "/api/v1/watch")  # may say who it is in the first message
MCP = "/mcp"  # all of it is POST: whoever serves it counts what changes something
TICKET_HOLDER = Token("ticket", "read", "ticket")

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_WATCHED = frozenset(
    {b"host", b"origin", b"authorization", b"content-type", b"content-length", b"transfer-encoding"}
)
_TOKEN = re.compile(rb"rk_[0-9a-f]{8}_")
_COOKIE = b"set-cookie"
_API_OWN = frozenset({name for name, _ in API_HEADERS} | {_COOKIE})
_PAGE_OWN = frozenset({name for name, _ in PAGE_HEADERS} | {_COOKIE})


class Guard:
    """ASGI middleware around everything, for HTTP and WebSocket alike."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: TokenStore,
        tickets: Tickets,
        server: ServerSettings,
        limits: RateLimits | None = None,
        *,
        open_paths: Collection[str] = OPEN_PATHS,
        open_pages: Collection[str] = (),
        open_prefixes: tuple[str, ...] = (),
        body_timeout_s: float = 30.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`open_paths`, `open_pages` and what is below `open_prefixes` need no token to be read;
        the last two are the page's files, which bring a policy of their own."""
        self._app, self._tokens, self._tickets, self._now = app, tokens, tickets, now
        self.limits = limits or RateLimits(
            server.requests_per_s, server.burst, server.changes_per_s, server.change_burst
        )
        self._open_paths, self._open_prefixes = frozenset(open_paths), open_prefixes
        self._open_pages = frozenset(open_pages)
        self._hosts = _names_of(server)
        self._schemes = (b"https://",) if server.tls_cert else (b"http://", b"https://")
        self._bodies = Bodies(server.max_body_kb, body_timeout_s)
        self._log = RefusalLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "websocket":
                await self._websocket(scope, receive, send)
            case "lifespan":
                await self._app(scope, receive, send)
            case kind:
                raise RuntimeError(f"a connection of an unknown type {kind!r}")

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        seen = _seen(scope["headers"])
        try:
            self._admit(scope, seen)
            if scope["method"] not in _SAFE or declares_body(seen):
                receive = await self._bodies.checked(seen, receive)
        except RequestRefused as refused:
            self._log.note(refused.refusal, address_of(scope))
            await answer(refused.refusal, send, close=declares_body(seen))
        except Gone:
            return
        else:
            await self._app(scope, receive, self._with_headers(scope, send))

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._admit(scope, _seen(scope["headers"]))
        except RequestRefused as refused:
            self._log.note(refused.refusal, address_of(scope))
            await receive()  # that it wants to connect
            await answer_upgrade(refused.refusal, scope, send)
        else:
            await self._app(scope, receive, send)

    # --- who asks --------------------------------------------------------------------------------

    def _admit(self, scope: Scope, seen: Seen) -> None:
        """Raise RequestRefused, or leave whose request it is in the scope."""
        query: bytes = scope["query_string"]
        has_token = b"rk_" in query and _TOKEN.search(unquote_to_bytes(query)) is not None
        ticket = _take_ticket(scope, query) if has_token or b"ticket" in query else None
        host = (seen.get(b"host") or b"").lower()
        if not self._is_ours(host):
            raise RequestRefused(BAD_HOST)
        if b"origin" in seen and not self._is_own_origin(seen[b"origin"], host):
            raise RequestRefused(BAD_ORIGIN)
        if has_token:
            raise RequestRefused(TOKEN_IN_QUERY)
        if scope["type"] == "http":
            token = self._asker(scope, seen, ticket)
            if b"authorization" in seen:
                kept = [pair for pair in scope["headers"] if pair[0] != b"authorization"]
                scope["headers"] = kept
        else:
            token = self._connecting(scope, seen)
        scope.setdefault("state", {})["token"] = token
        ASKER.set(token)
        if token is not None:
            self._count(token, scope)

    def _is_ours(self, host: bytes) -> bool:
        """By its name: behind a tunnel or a proxy the port may be any."""
        if host in self._hosts:
            return True
        name, colon, port = host.rpartition(b":")
        return bool(colon) and port.isdigit() and len(port) <= 5 and name in self._hosts

    def _is_own_origin(self, origin: bytes | None, host: bytes) -> bool:
        """The address of this very request; a page of another port is another site's."""
        return origin is not None and any(origin.lower() == s + host for s in self._schemes)

    def _asker(self, scope: Scope, seen: Seen, ticket: str | None) -> Token | None:
        """Whose request it is; None where nobody needs to be known."""
        path, method = scope["path"], scope["method"]
        if method in ("GET", "HEAD") and (path in self._open_paths or self._is_page(path)):
            return None
        if b"authorization" in seen:
            return self._bearer(seen[b"authorization"])
        if ticket is None or method not in ("GET", "HEAD") or not is_artifact(path):
            raise RequestRefused(NO_TOKEN)
        whole = method == "GET" and all(name != b"range" for name, _ in scope["headers"])
        if not self._tickets.take(ticket, path, whole):
            raise RequestRefused(BAD_TICKET)
        return TICKET_HOLDER

    def _connecting(self, scope: Scope, seen: Seen) -> Token | None:
        """Whose upgrade it is; a conversation keeps its header, to ask again while it is open."""
        if b"authorization" in seen:
            return self._bearer(seen[b"authorization"])
        if scope["path"] not in CONVERSATIONS:
            raise RequestRefused(NO_TOKEN)
        return None

    def _bearer(self, value: bytes | None) -> Token:
        """None stands for two headers, of which nobody can say which one counts."""
        if value is None:
            raise RequestRefused(BAD_TOKEN)
        scheme, _, text = value.partition(b" ")
        if scheme.lower() != b"bearer":
            raise RequestRefused(NO_TOKEN)
        token = self._tokens.check(text.strip(b" ").decode("latin-1"), self._now())
        if token is None:
            raise RequestRefused(BAD_TOKEN)
        return token

    def _count(self, token: Token, scope: Scope) -> None:
        wait_s = self.limits.take(token.id, "request")
        changes = scope.get("method", "GET") not in _SAFE and scope["path"].rstrip("/") != MCP
        if not wait_s and changes:
            wait_s = self.limits.take(token.id, "change")
        if wait_s:
            raise RequestRefused(too_often(wait_s))
        try:
            know(scope, token)
        except NoPlace as crowded:
            raise RequestRefused(too_crowded(str(crowded))) from None

    # --- what is answered ------------------------------------------------------------------------

    def _is_page(self, path: str) -> bool:
        return path in self._open_pages or path.startswith(self._open_prefixes)

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        """The app's answer with our headers in place of its own; a page has its own policy."""
        is_page = scope["method"] in ("GET", "HEAD") and self._is_page(scope["path"])
        ours, dropped = (PAGE_HEADERS, _PAGE_OWN) if is_page else (API_HEADERS, _API_OWN)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [pair for pair in message.get("headers", ()) if pair[0] not in dropped]
                message = {**message, "headers": own + ours}
            await send(message)

        return sending


def _names_of(server: ServerSettings) -> frozenset[bytes]:
    host = server.host.strip("[]").lower()
    bound = f"[{host}]" if ":" in host else host
    names = {bound, "localhost", "127.0.0.1", "[::1]", *server.allowed_hosts}
    return frozenset(name.encode() for name in names if name)


def _seen(headers: Headers) -> Seen:
    """The headers that matter here; None for one that came twice, and so means nothing."""
    seen: Seen = {}
    for name, value in headers:
        if name in _WATCHED:
            seen[name] = None if name in seen else value
    return seen


def _take_ticket(scope: Scope, query: bytes) -> str | None:
    """The ticket in a query, which is left without it and without any token."""
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True, encoding="latin-1")
    kept = [
        (key, value)
        for key, value in pairs
        if key != "ticket" and not _TOKEN.search(f"{key}={value}".encode("latin-1"))
    ]
    scope["query_string"] = urlencode(kept, encoding="latin-1").encode()
    tickets = [value for key, value in pairs if key == "ticket"]
    return tickets[0] if len(tickets) == 1 else None
