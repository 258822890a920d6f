"""What goes wrong, as problem+json (RFC 9457): every refusal of the API has this one shape."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from rookery.config.misfits import misfits, unknown_of
from rookery.control.models import Problem
from rookery.errors import (
    BusError,
    Forbidden,
    InputError,
    RookeryError,
    UnknownName,
    nearest_names,
)
from rookery.foreign import clean_json
from rookery.server.http.files import Unsatisfiable
from rookery.server.http.openapi import document
from rookery.server.sandbox import Busy
from rookery.server.security.shares import NoPlace

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = "2"
MOST_DETAIL = 2000  # characters
MOST_PATH = 200  # characters of a wrong one that are shown, and compared
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

logger = logging.getLogger(__name__)


def problem(
    status: int, detail: str, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    """An answer that says what is wrong and, where it can, what to do."""
    found = Problem(
        title=HTTPStatus(status).phrase, status=status, detail=detail[:MOST_DETAIL], **more
    )
    return Response(clean_json(found.model_dump_json()), status, headers, media_type=MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    app.add_exception_handler(RookeryError, _rookery)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Unsatisfiable, _range)
    app.add_exception_handler(Exception, _unexpected)


async def _rookery(request: Request, error: Exception) -> Response:
    """What a person asked for cannot be done, or not now."""
    detail = " ".join(str(error).split())
    match error:
        case Forbidden():
            return problem(403, detail)
        case UnknownName(kind="run" | "group" | "sweep" | "artifact" | "token"):
            return problem(404, detail)
        case NoPlace():
            return problem(429, detail, {"Retry-After": RETRY_AFTER_S})
        case BusError() | Busy():
            return problem(503, detail, {"Retry-After": RETRY_AFTER_S})
        case InputError():
            return problem(422, detail)
    logger.warning("%s %s: %s", request.method, request.url.path, detail)
    return problem(503, detail, {"Retry-After": RETRY_AFTER_S})


async def _invalid(request: Request, error: Exception) -> Response:
    """A parameter or a body that does not fit; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    errors = [{**found, "loc": _within(found["loc"])} for found in error.errors()]
    return problem(422, misfits(errors, unknown_of("key", _body_keys(request)), whole="body"))


def _within(place: Sequence[str | int]) -> tuple[str | int, ...]:
    """Where in the request, without the word `body`: that is what most of it is about."""
    return tuple(part for part in place if part != "body")


def _body_keys(request: Request) -> Iterable[str]:
    """What the body of this route may have."""
    body = getattr(request.scope.get("route"), "body_field", None)
    return getattr(body and body.field_info.annotation, "model_fields", ())


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == 404:
        path = request.url.path[:MOST_PATH]
        known = await to_thread.run_sync(document, request.app)
        near = _meant(path, known["paths"])
        hint = f"did you mean {near}?" if near else "see /api/v1/openapi.json"
        detail = f"there is nothing at {path}: {hint}"
    if error.status_code == 405:
        allowed = sorted(_methods(request))
        headers["Allow"] = ", ".join(allowed)
        detail = f"{request.method} does not go with this path: {', '.join(allowed)} does"
    return problem(error.status_code, detail, headers)


def _meant(path: str, known: Iterable[str]) -> str:
    """The one word of a path that is misspelt, as it is spelt in a path that there is."""
    asked = path.split("/")
    templates = [parts for parts in (t.split("/") for t in known) if len(parts) == len(asked)]
    for place in reversed(range(len(asked))):
        words = {parts[place] for parts in templates if _fits(asked, parts, place)}
        if near := nearest_names(asked[place], sorted(words), 1):
            return near[0]
    return ""


def _fits(asked: list[str], parts: list[str], place: int) -> bool:
    """Whether a path is like a template everywhere but in this place, where that has a word."""
    others = (i for i in range(len(asked)) if i != place)
    same = all(parts[i] == asked[i] or parts[i].startswith("{") for i in others)
    return same and bool(parts[place]) and not parts[place].startswith("{")


def _methods(request: Request) -> set[str]:
    """Every method that the path takes; the router stops at the first route that has it."""
    return {
        method
        for method in METHODS
        for route in request.app.routes
        if route.matches({**request.scope, "method": method})[0] is Match.FULL
    }


async def _range(request: Request, error: Exception) -> Response:
    assert isinstance(error, Unsatisfiable)
    return problem(416, str(error), {"Content-Range": f"bytes */{error.size}"})


async def _unexpected(request: Request, error: Exception) -> Response:
    """A bug: it goes on to the server's log, and is nobody else's business."""
    return problem(500, "an error inside the server; its log says more")
