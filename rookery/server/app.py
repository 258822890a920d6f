"""The server's application: every door over one plane, behind one guard.

    app = build_app(plane, tokens, settings)

An ASGI app with REST, the stream and watching under /api/v1, MCP at /mcp, /metrics, /healthz and
/readyz, and the page at /.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from anyio import Event, create_task_group, move_on_after, sleep_forever, to_thread
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from rookery.control.models import Health
from rookery.control.settings import Settings
from rookery.control.tokens import Token, TokenStore
from rookery.server.control_plane import ControlPlane
from rookery.server.http.actions import actions_router
from rookery.server.http.groups import groups_router
from rookery.server.http.home import home_router
from rookery.server.http.openapi import ALWAYS, NO_TOKEN, document, refusals
from rookery.server.http.problems import add_handlers, problem
from rookery.server.http.prometheus import CONTENT_TYPE, exposition
from rookery.server.http.request_metrics import HttpMeter, Metered
from rookery.server.http.rest import API, Reader, Route, answer, plain
from rookery.server.http.runs import runs_router
from rookery.server.http.sweeps import sweeps_router
from rookery.server.mcp import build_mcp
from rookery.server.page import PAGES, PREFIXES, Page
from rookery.server.security.guard import Guard
from rookery.server.security.limits import RateLimits
from rookery.server.security.tickets import Tickets
from rookery.server.stream.endpoint import Hub
from rookery.server.watch import Watchers

if TYPE_CHECKING:
    from rookery.server.mcp.http import McpDoor

MCP = "/mcp"
MCP_OPENS_S = 30.0  # that a request waits for it
MakeMcp = Callable[[ControlPlane, RateLimits], "McpDoor"]


def build_app(
    plane: ControlPlane,
    tokens: TokenStore,
    settings: Settings,
    make_mcp: MakeMcp | None = build_mcp,
) -> ASGIApp:
    """Everything that a server serves. `make_mcp` is called once the rest is there: it is slow."""
    server = settings.server
    limits = RateLimits(
        server.requests_per_s, server.burst, server.changes_per_s, server.change_burst
    )
    meter, tickets, hub = HttpMeter(), Tickets(), Hub(plane.follower, settings)
    meter.stream_clients = lambda: hub.clients
    watchers = Watchers(plane.home.environment, server.viewers)
    doors = Doors(hub, make_mcp and partial(make_mcp, plane, limits), plane.warm)
    api = build_api(plane, tokens, tickets, meter, doors.open)
    _add_conversations(api, hub, watchers, tokens)
    doors.api = api
    guard = Guard(
        doors,
        tokens=tokens,
        tickets=tickets,
        server=server,
        limits=limits,
        open_pages=PAGES,
        open_prefixes=PREFIXES,
    )
    return Metered(guard, meter)


class Doors:
    """The guarded part: /mcp to an app of its own, which comes later than the rest; the page's
    files to the page; all else to the API."""

    def __init__(
        self, hub: Hub, make_mcp: Callable[[], McpDoor] | None, warm: Callable[[], None]
    ) -> None:
        self.api: ASGIApp | None = None
        self._hub, self._make_mcp, self._warm = hub, make_mcp, warm
        self._page = Page()
        self._mcp: ASGIApp | None = None
        self._mcp_opened = Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.api is not None
        app = self.api
        if scope["type"] == "http" and scope["path"].rstrip("/") == MCP:
            app = await self._mcp_app()
        elif scope["type"] == "http" and _is_page(scope):
            app = self._page
        await app(scope, receive, send)

    async def _mcp_app(self) -> ASGIApp:
        """Whoever comes before it is there waits: few clients of MCP would try again."""
        if self._make_mcp is not None:
            with move_on_after(MCP_OPENS_S):
                await self._mcp_opened.wait()
        later = problem(503, "MCP is not there yet: try again", {"Retry-After": "1"})
        return self._mcp or later

    @asynccontextmanager
    async def open(self, app: object) -> AsyncIterator[None]:
        """As long as the server serves."""
        async with create_task_group() as tasks:
            tasks.start_soon(self._open_mcp)
            tasks.start_soon(self._get_warm)
            yield
            tasks.cancel_scope.cancel()
        await self._hub.close()

    async def _get_warm(self) -> None:
        await to_thread.run_sync(self._warm, abandon_on_cancel=True)

    async def _open_mcp(self) -> None:
        if self._make_mcp is None:
            return
        door = await to_thread.run_sync(self._make_mcp)
        async with door.lifespan():
            self._mcp = door.endpoint
            self._mcp_opened.set()
            try:
                await sleep_forever()
            finally:
                self._mcp = None


def _is_page(scope: Scope) -> bool:
    path: str = scope["path"]
    return scope["method"] in ("GET", "HEAD") and (path in PAGES or path.startswith(PREFIXES))


def build_api(
    plane: ControlPlane,
    tokens: TokenStore,
    tickets: Tickets,
    meter: HttpMeter,
    lifespan: Any = None,
) -> FastAPI:
    """REST, health and metrics; without the guard, so nobody is asked who they are."""
    app = FastAPI(
        title="Rookery",
        version=version("rookery"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=refusals(*ALWAYS),
        generate_unique_id_function=lambda route: route.name.replace("-", "_"),
        lifespan=lifespan,
    )
    add_handlers(app)
    app.router.route_class = Route
    app.include_router(runs_router(plane))
    app.include_router(groups_router(plane))
    app.include_router(sweeps_router(plane))
    app.include_router(actions_router(plane))
    app.include_router(home_router(plane, tokens, tickets))
    _add_health(app, plane)
    _add_metrics(app, plane, meter)
    return app


def _add_health(app: FastAPI, plane: ControlPlane) -> None:
    @app.get(
        "/healthz",
        response_model=Health,
        tags=["health"],
        openapi_extra=NO_TOKEN,
    )
    async def healthz() -> Response:
        """Whether the server answers. Needs no token."""
        return answer(Health(status="ok"))

    @app.get(
        "/readyz",
        response_model=Health,
        responses={503: {"model": Health, "description": "not yet"}},
        tags=["health"],
        openapi_extra=NO_TOKEN,
    )
    async def readyz() -> Response:
        """Whether it knows the runs: after its first reading of the log. Needs no token."""
        follower = plane.follower
        if follower.ready.is_set() and follower.trouble is None:
            return answer(Health(status="ok"))
        return answer(Health(status="starting"), 503)

    @app.get(f"{API}/openapi.json", response_model=dict, tags=["health"])
    async def openapi(caller: Reader) -> Response:
        """This document."""
        return plain(await to_thread.run_sync(document, app))


def _add_conversations(app: FastAPI, hub: Hub, watchers: Watchers, tokens: TokenStore) -> None:
    def authenticate(text: str) -> Token | None:
        return tokens.check(text, time.time())

    async def stream(websocket: WebSocket) -> None:
        await hub.stream(websocket, authenticate)

    async def watch(websocket: WebSocket) -> None:
        await watchers.watch(websocket, authenticate)

    app.router.add_websocket_route(f"{API}/stream", stream)
    app.router.add_websocket_route(f"{API}/watch", watch)


def _add_metrics(app: FastAPI, plane: ControlPlane, meter: HttpMeter) -> None:
    text = {"text/plain": {"schema": {"type": "string"}}}

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"description": "Prometheus's text format", "content": text}},
        tags=["health"],
    )
    async def metrics(caller: Reader) -> Response:
        """Every run's progress and the server's own, for Prometheus."""
        found = await to_thread.run_sync(exposition, plane, meter)
        return Response(found, headers={"Content-Type": CONTENT_TYPE})
