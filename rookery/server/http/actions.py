"""Routes to what can be done to a run: one for each action, made from the command's own type."""

from inspect import Parameter, Signature
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, create_model
from starlette.responses import Response

from rookery.control.actions import ACTION, ACTIONS, Action, parameters
from rookery.control.models import Answer
from rookery.control.tokens import Token
from rookery.server.control_plane import ControlPlane
from rookery.server.http.openapi import refusals
from rookery.server.http.rest import (
    API,
    Admin,
    DryRun,
    IdempotencyKey,
    Operator,
    Reason,
    ReasonQuery,
    Route,
    RunName,
    author_of,
    command_id,
    outcome,
)

_CALLERS: dict[str, Any] = {"operate": Operator, "admin": Admin}
_WAITING: dict[int | str, dict[str, Any]] = {
    202: {"model": Answer, "description": "done when someone carries the run"}
}


def actions_router(plane: ControlPlane) -> APIRouter:
    router = APIRouter(prefix=f"{API}/runs", tags=["actions"], route_class=Route)

    async def act(
        action: Action,
        caller: Token,
        name: str,
        values: dict[str, Any],
        dry_run: bool,
        key: str | None,
    ) -> Response:
        run = plane.find(name)
        reason = values.pop("reason")
        id = command_id(plane, caller, key, [action.name, run, values], dry_run)
        command = action.make(
            run, values, id=id, author=author_of(caller), reason=reason, origin="network"
        )
        if dry_run:
            return outcome(await plane.dry_run(command))
        return outcome(await plane.submit(command))

    def add(action: Action) -> None:
        async def do(
            caller: Token, name: str, body: BaseModel, dry_run: bool, key: str | None
        ) -> Response:
            return await act(action, caller, name, body.model_dump(), dry_run, key)

        do.__signature__ = signature_of(action)  # type: ignore[attr-defined]
        router.add_api_route(
            f"/{{run}}/{action.name}",
            do,
            methods=["POST"],
            response_model=Answer,
            responses={**_WAITING, **refusals(404, 409)},
            name=action.name,
            summary=action.name.replace("-", " ").capitalize(),
            description=action.doc,
        )

    for action in ACTIONS:
        add(action)

    @router.delete("/{run}", response_model=Answer, responses={**_WAITING, **refusals(404, 409)})
    async def delete_run(
        caller: Admin,
        name: RunName,
        reason: ReasonQuery = "",
        dry_run: DryRun = False,
        key: IdempotencyKey = None,
    ) -> Response:
        """Forget a run that does not run, and remove its files for good."""
        return await act(ACTION["delete"], caller, name, {"reason": reason}, dry_run, key)

    return router


def signature_of(action: Action) -> Signature:
    """What FastAPI reads a route's parameters from; a body without needs may be left out."""
    model = with_reason(parameters(action.command))
    needed = any(field.is_required() for field in model.model_fields.values())
    kinds: dict[str, tuple[Any, Any]] = {
        "caller": (_CALLERS[action.scope], Parameter.empty),
        "name": (RunName, Parameter.empty),
        "body": (model, Parameter.empty if needed else model()),
        "dry_run": (DryRun, False),
        "key": (IdempotencyKey, None),
    }
    return Signature(
        [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in kinds.items()
        ]
    )


def with_reason(model: type[BaseModel]) -> type[BaseModel]:
    """A request's body: an action's own parameters, and why."""
    name = model.__name__.removesuffix("Parameters")
    return create_model(name, __base__=model, __doc__=model.__doc__, reason=(Reason, ""))
