"""Routes to what belongs to no run: tokens, the log of all runs, nodes, what can be named."""

import time
from typing import Annotated
from urllib.parse import quote

from anyio import to_thread
from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from rookery.config.models import RunConfig
from rookery.control import catalogue
from rookery.control.models import (
    Algorithms,
    AuditPage,
    Caller,
    EnvironmentDetail,
    Environments,
    LogPage,
    NewToken,
    Nodes,
    Players,
    Ticket,
    TokenList,
)
from rookery.control.tokens import MAX_LABEL, Scope, TokenStore
from rookery.errors import UnknownName
from rookery.server.control_plane import ControlPlane
from rookery.server.http.openapi import refusals
from rookery.server.http.rest import (
    API,
    Admin,
    After,
    Body,
    Limit,
    Offset,
    Operator,
    Reader,
    Route,
    answer,
    plain,
)
from rookery.server.security.tickets import LIFETIME_S, Tickets

TokenId = Annotated[str, Path(alias="token", pattern="^[0-9a-f]{8}$", description="not its secret")]


class NewTokenBody(Body):
    """A token to be made."""

    scope: Scope
    ttl_s: float | None = Field(
        default=None, gt=0, le=3.1e9, description="how long it holds; null: until it is revoked"
    )
    label: str = Field(
        default="", max_length=MAX_LABEL, pattern="^[ -~]*$", description="whose, or what for"
    )


class TicketBody(Body):
    """What a ticket is for."""

    path: str = Field(
        max_length=1000,
        pattern=r"^/api/v1/runs/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}/artifacts/[^/]",
        description="/api/v1/runs/RUN/artifacts/FILE, not escaped",
    )


def home_router(plane: ControlPlane, tokens: TokenStore, tickets: Tickets) -> APIRouter:
    router = APIRouter(prefix=API, route_class=Route)

    @router.get("/events", response_model=LogPage, tags=["log"])
    async def list_all_events(caller: Reader, after: After = -1, limit: Limit = 200) -> Response:
        """What happened to all runs, oldest first."""
        return answer(await to_thread.run_sync(plane.events, None, after, limit))

    @router.get("/audit", response_model=AuditPage, tags=["log"])
    async def list_all_commands(caller: Reader, after: After = -1, limit: Limit = 200) -> Response:
        """Who changed what, why, and what became of it, of all runs."""
        return answer(await to_thread.run_sync(plane.audit, None, after, limit))

    @router.get("/nodes", response_model=Nodes, tags=["nodes"])
    async def list_nodes(caller: Reader) -> Response:
        """The nodes that runs of this server live on, and who is at work on each."""
        return answer(await to_thread.run_sync(plane.nodes))

    @router.get("/environments", response_model=Environments, tags=["names"])
    async def list_environments(
        caller: Reader,
        search: Annotated[str, Query(max_length=200)] = "",
        limit: Limit = 200,
        offset: Offset = 0,
    ) -> Response:
        """Environments that a config can name."""
        return answer(await to_thread.run_sync(plane.environments, search, limit, offset))

    @router.get("/environment", response_model=EnvironmentDetail, tags=["names"])
    async def show_environment(
        caller: Operator,
        id: Annotated[str, Query(min_length=1, max_length=200, description="as a config has it")],
    ) -> Response:
        """What an environment's seats see and play. A process looks at it first: seconds."""
        return answer(await plane.environment(id))

    @router.get("/algorithms", response_model=Algorithms, tags=["names"])
    async def list_algorithms(caller: Reader) -> Response:
        """Algorithms with their options."""
        return plain({"algorithms": catalogue.algorithms()})

    @router.get("/players", response_model=Players, tags=["names"])
    async def list_players(caller: Reader) -> Response:
        """Kinds of players with their options."""
        return plain({"players": catalogue.players()})

    @router.get("/schema", response_model=dict, tags=["names"])
    async def show_schema(caller: Reader) -> Response:
        """The JSON Schema of a run's config."""
        return plain(RunConfig.model_json_schema())

    @router.post("/tickets", status_code=201, response_model=Ticket, tags=["tokens"])
    async def issue_ticket(caller: Reader, body: TicketBody) -> Response:
        """A link for one download of an artifact, with HEAD and ranges, and without a token."""
        url = f"{quote(body.path)}?ticket={tickets.issue(body.path)}"
        return answer(Ticket(url=url, expires_s=time.time() + LIFETIME_S), 201)

    @router.get("/me", response_model=Caller, tags=["tokens"])
    async def show_caller(caller: Reader) -> Response:
        """Whose token this is, and what it may do."""
        ends_s = caller.expires_s
        me = Caller(id=caller.id, scope=caller.scope, label=caller.label, expires_s=ends_s)
        return answer(me)

    @router.get("/tokens", response_model=TokenList, tags=["tokens"])
    async def list_tokens(caller: Admin) -> Response:
        """All tokens, without their secrets."""
        return answer(TokenList(tokens=await to_thread.run_sync(tokens.list)))

    @router.post("/tokens", status_code=201, response_model=NewToken, tags=["tokens"])
    async def create_token(caller: Admin, body: NewTokenBody) -> Response:
        """A new token; its text is shown this once."""
        made = await to_thread.run_sync(tokens.create, body.scope, body.ttl_s, body.label)
        return answer(made, 201)

    @router.delete(
        "/tokens/{token}",
        status_code=204,
        response_class=Response,
        responses=refusals(404),
        tags=["tokens"],
    )
    async def revoke_token(caller: Admin, id: TokenId) -> Response:
        """A token that lets nobody in any more, from now on."""
        if not await to_thread.run_sync(tokens.revoke, id):
            raise UnknownName("token", id, (), "see the list of tokens")
        return Response(status_code=204)

    return router
