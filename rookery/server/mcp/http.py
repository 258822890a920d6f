"""MCP over streamable HTTP, for the app behind the Guard.

The Guard has checked Host, Origin, the token and the size of the body, so the SDK's own checks of
Host and Origin, which know only loopback, are off. Sessions of the older protocol and questions
that wait for an answer belong to the token that began them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.control.tokens import Token
from rookery.server.mcp.server import RookeryServer

if TYPE_CHECKING:
    from rookery.server.control_plane import ControlPlane
    from rookery.server.security.limits import RateLimits

MOST_SESSIONS = 1024
IDLE_S = 1800.0

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
    return McpDoor(_Endpoint(StreamableHTTPASGIApp(manager)), manager.run)


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
