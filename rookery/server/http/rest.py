"""The REST door: thin routes under /api/v1 over the plane.

    rest.py       what all routes share: parameters, scopes, answers, idempotency
    runs.py       runs, and what can be read of each
    groups.py     runs that belong together
    sweeps.py     searches for a good config
    actions.py    what can be done to a run, one route for each action
    home.py       tokens, tickets, the log of all runs, nodes, what can be named

Answers are built once, by the model that documents them, and handed over as they are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Annotated, Any

import msgspec
import pydantic_core
from fastapi import Depends, Header, HTTPException, Path, Query, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Receive, Send
from starlette.types import Scope as Asked

from rookery.control.models import Answer
from rookery.control.tokens import Scope, Token, allows
from rookery.errors import Forbidden, InputError, UnknownName
from rookery.foreign import clean_json
from rookery.messages import new_id
from rookery.server.control_plane import ControlPlane
from rookery.server.http.problems import problem

API = "/api/v1"
RUN_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"
MOST_STEPS = 2**53
MAX_REASON = 500


# --- parameters ----------------------------------------------------------------------------------


def _whole(value: Any) -> Any:
    """Digits only: what a number may look like otherwise is a guess."""
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,19}", value, re.ASCII):
        raise ValueError("input should be a whole number")
    return value


def _flag(value: Any) -> Any:
    if isinstance(value, str) and value not in ("true", "false"):
        raise ValueError("input should be true or false")
    return value


Whole = BeforeValidator(_whole)  # stands after the limits, which else are not documented
RunName = Annotated[
    str,
    Path(
        alias="run",
        pattern=RUN_PATTERN,
        description="id, a unique prefix of one, `last`, or a name that only one run has",
    ),
]
DryRun = Annotated[
    bool, BeforeValidator(_flag), Query(description="only say what it would do, and do nothing")
]
After = Annotated[
    int,
    Field(ge=-1, le=MOST_STEPS),
    Whole,
    Query(description="seq of the last entry you have"),
]
Limit = Annotated[int, Field(ge=1, le=1000), Whole, Query(description="entries of a page")]
Offset = Annotated[int, Field(ge=0, le=MOST_STEPS), Whole, Query(description="entries left out")]
Reason = Annotated[str, Field(max_length=MAX_REASON, description="why, for the audit")]
ReasonQuery = Annotated[str, Query(max_length=MAX_REASON, description="why, for the audit")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=128,
        pattern=r"^[!-~]([ -~]*[!-~])?$",
        description="the same key and request again act once, and get the same answer",
    ),
]


class Body(BaseModel):
    """Base of the request bodies: nothing is guessed and nothing is ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class _StrictRequest(Request):
    """JSON as the standard has it: no NaN and no half surrogates."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            try:
                self._json = pydantic_core.from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise HTTPException(400, f"the body is not valid JSON: {error}") from None
        return self._json


class Route(APIRoute):
    """A route that reads JSON and parameters strictly: whoever misspells `dry_run` must not find it
    done. HEAD goes where GET does, and the server that sends the answer leaves out its body."""

    def matches(self, scope: Asked) -> tuple[Match, Asked]:
        asks = scope.get("method") == "HEAD"
        return super().matches({**scope, "method": "GET"} if asks else scope)

    async def handle(self, scope: Asked, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD" and "GET" in (self.methods or ()):
            await self.app(scope, receive, send)
        else:
            await super().handle(scope, receive, send)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            self._check_parameters(request)
            return await handle(_StrictRequest(request.scope, request.receive))

        return strictly

    def _check_parameters(self, request: Request) -> None:
        if not request.url.path.startswith(API):
            return  # a health check, or a reading of the metrics, may carry what it likes
        known = sorted(name for field in self.dependant.query_params for name in _names(field))
        for name in request.query_params:
            if name not in known:
                hint = f"There are: {', '.join(known) or 'none'}."
                raise UnknownName("parameter", name, known, hint)


def _names(field: Any) -> Iterable[str]:
    """Of one parameter, or of those that a model holds together."""
    model = field.field_info.annotation
    if isinstance(model, type) and issubclass(model, BaseModel):
        return model.model_fields
    return (field.alias,)


# --- who asks ------------------------------------------------------------------------------------


def needs(scope: Scope) -> Callable[[Request], Awaitable[Token]]:
    """The caller, who must hold that scope; the guard has made sure of who it is."""

    async def caller(request: Request) -> Token:
        token: Token = request.scope["state"]["token"]
        if not allows(token.scope, scope):
            raise Forbidden(f"this needs a token of scope {scope}: yours has {token.scope}")
        return token

    return caller


Reader = Annotated[Token, Depends(needs("read"))]
Operator = Annotated[Token, Depends(needs("operate"))]
Admin = Annotated[Token, Depends(needs("admin"))]


def author_of(token: Token) -> str:
    return token.label or token.id


# --- answers -------------------------------------------------------------------------------------


def answer(view: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        clean_json(view.model_dump_json()), status, headers, media_type="application/json"
    )


def plain(data: Any) -> Response:
    """Plain data; a number that JSON lacks becomes null."""
    text = clean_json(msgspec.json.encode(data).decode())
    return Response(text, media_type="application/json")


def outcome(found: Answer, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """What became of a command: done, to be done when someone carries the run, or refused."""
    if found.outcome == "rejected":
        more = found.model_dump(include={"command", "kind", "run", "outcome"})
        return problem(409, found.why, **more)
    return answer(found, 202 if found.outcome == "waiting" and status == 200 else status, headers)


# --- the same key acts once ----------------------------------------------------------------------


def command_id(
    plane: ControlPlane, token: Token, key: str | None, request: Any, dry_run: bool
) -> str:
    """The command's id: fresh, or what the caller's key and the request make of it.

    Its first part is of the key alone, so that the key's other uses are found in the log.
    """
    if key is None or dry_run:
        return new_id()
    prefix = _digest([token.id, key])[:20]
    id = prefix + _digest(request)[:12]
    before = plane.sent_before(prefix)
    if before not in (None, id):
        raise InputError(
            "Idempotency-Key: this key was used for another request; take a new key for each"
        )
    return id


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
