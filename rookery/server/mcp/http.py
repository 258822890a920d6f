"""MCP over streamable HTTP, for the app behind the Guard.

The Guard has checked Host, Origin, the token and the size of the body, so the SDK's own checks of
Host and Origin, which know only loopback, are off. Sessions of the older protocol and questions
that wait for an answer belong to the token that began them.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery.control.tokens import Token
from rookery.server.http.problems import problem
from rookery.server.mcp.server import RookeryServer
from rookery.server.security.bodies import replay
from rookery.server.security.shares import NoPlace, Shares

if TYPE_CHECKING:
    from rookery.server.control_plane import ControlPlane
    from rookery.server.security.limits import RateLimits

MOST_SESSIONS = 256
IDLE_S = 300.0  # after which a session that no request belongs to is forgotten

SESSION = b"mcp-session-id"  # the header

_caller: ContextVar[Token] = ContextVar("caller")  # whose request is being served


class McpDoor(NamedTuple):
    """`Route("/mcp", endpoint=door.endpoint)`, served while `door.lifespan()` is entered, once."""

    endpoint: ASGIApp
    lifespan: Callable[[], AbstractAsyncContextManager[None]]


def http_door(plane: ControlPlane, limits: RateLimits | None) -> McpDoor:
    server = RookeryServer(plane, _caller.get, limits)
    server.streamable_http_app(
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_sessions=MOST_SESSIONS,
        session_idle_timeout=IDLE_S,
    )
    manager = server.session_manager
    sessions = Sessions(StreamableHTTPASGIApp(manager), lambda: manager._server_instances)
    return McpDoor(_Endpoint(sessions), manager.run)


class _Asked(msgspec.Struct):
    """Of a message that waits for an answer, what tells it from others."""

    id: int | str
    method: str


class Sessions:
    """Lets tokens have their share of the sessions; `open_ones` are those that the SDK still has,
    which ends them by itself.

    Of two requests of a session that have one id the SDK answers the second alone, and lets the
    first wait for ever: the second is refused here.
    """

    def __init__(self, app: ASGIApp, open_ones: Callable[[], Container[str]]) -> None:
        self._app, self._open_ones = app, open_ones
        self._shares = Shares(MOST_SESSIONS, "sessions of MCP")
        self._whose: dict[str, Token] = {}  # by session
        self._waiting: set[tuple[bytes, str]] = set()  # sessions, and ids of requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        session = next((value for name, value in scope["headers"] if name == SESSION), None)
        if session is not None and scope["method"] == "POST":
            await self._answered(session, scope, receive, send)
            return
        if session is not None:
            await self._app(scope, receive, send)
            return
        self._forget_ended()
        token: Token = scope["state"]["token"]
        try:
            self._shares.take(token)
        except NoPlace as crowded:
            await problem(429, str(crowded), {"Retry-After": "60"})(scope, receive, send)
            return
        await self._opened(token, scope, receive, send)

    async def _answered(self, session: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        body: bytes = (await receive()).get("body", b"")
        try:
            asked = session, str(msgspec.json.decode(body, type=_Asked).id)
        except (msgspec.DecodeError, UnicodeDecodeError):  # no request, or the SDK refuses it
            await self._app(scope, replay(body, receive), send)
            return
        if asked in self._waiting:
            text = f"request {asked[1][:100]!r} of this session is not answered yet: use another id"
            await problem(409, text)(scope, receive, send)
            return
        self._waiting.add(asked)
        try:
            await self._app(scope, replay(body, receive), send)
        finally:
            self._waiting.discard(asked)

    async def _opened(self, token: Token, scope: Scope, receive: Receive, send: Send) -> None:
        """Most requests that may open a session do not: the place is free again after them."""
        session = ""

        async def sending(message: Message) -> None:
            nonlocal session
            if message["type"] == "http.response.start" and message["status"] < 400:
                session = dict(message["headers"]).get(SESSION, b"").decode("latin-1")
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            if session:
                self._whose[session] = token
            else:
                self._shares.leave(token)

    def _forget_ended(self) -> None:
        open_ones = self._open_ones()
        for session in [session for session in self._whose if session not in open_ones]:
            self._shares.leave(self._whose.pop(session))


class _Endpoint:
    """Tells the SDK whose request it is, as the Guard found out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token: Token = scope["state"]["token"]  # without a Guard there is none, and no way in
        user = AuthenticatedUser(AccessToken(token="", client_id=token.id, scopes=[token.scope]))
        caller, context = _caller.set(token), auth_context_var.set(user)
        try:
            await self._app({**scope, "user": user}, receive, send)
        finally:
            _caller.reset(caller)
            auth_context_var.reset(context)
