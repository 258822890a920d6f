"""What can be done to a run, as data: one action for each command but the one that creates it.

    for action in ACTIONS: print(action.name, action.doc, parameters(action.command))
    command = ACTION["scale-actors"].make("cartpole-k3f9a", {"count": 4}, author="ann")
    effect(state, config, command)      # "actors 1 -> 4: 3 processes start"

REST, MCP and the command line are made from this list: names, texts and limits are those of the
commands themselves (`rookery.messages`). Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model

from rookery.control.effects import effect
from rookery.messages import Command, CreateRun, DeleteRun, StartRun

__all__ = ["ACTION", "ACTIONS", "Action", "Parameters", "effect", "own_fields", "parameters"]

Scope = Literal["operate", "admin"]


class Parameters(BaseModel):
    """Base of every action's own parameters."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Action:
    """One thing that can be done to a run."""

    name: str  # "scale-actors"
    command: type[Any]  # one of Command
    scope: Scope
    doc: str

    def make(self, run: str, values: Mapping[str, Any], **who: Any) -> Command:
        """The command; `who`: id, author, reason, origin, as far as they are known."""
        made: Command = self.command(run=run, **values, **who)
        return made


def _name(command: type[Any]) -> str:
    tag: str = command.__struct_config__.tag
    return tag.removesuffix("_run").replace("_", "-")


def _action(command: type[Any]) -> Action:
    scope: Scope = "admin" if command is DeleteRun else "operate"
    return Action(_name(command), command, scope, (command.__doc__ or "").strip())


ACTIONS: tuple[Action, ...] = tuple(
    _action(command) for command in get_args(Command) if command is not CreateRun
)
ACTION: dict[str, Action] = {action.name: action for action in ACTIONS}

_SHARED = frozenset(msgspec.structs.asdict(StartRun(run=""))) | {"type"}
_UNIONS = (Union, UnionType)
_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern")


def own_fields(command: Command) -> dict[str, Any]:
    """What a command says beyond who sent it, when and why; plain data."""
    fields: dict[str, Any] = msgspec.to_builtins(command)
    own = {name: value for name, value in fields.items() if name not in _SHARED}
    if isinstance(command, CreateRun):
        own["config"] = command.config.get("config")  # what its environment looks like is long
    return own


_models: dict[type[Any], type[BaseModel]] = {}


def parameters(command: type[Any]) -> type[BaseModel]:
    """A model of a command's own fields, with the limits and the texts of its type."""
    if command not in _models:
        _models[command] = _model(command)
    return _models[command]


def _model(command: type[Any]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        field.name: (_typed(field.type), _field(field))
        for field in msgspec.structs.fields(command)
        if field.name not in _SHARED
    }
    return create_model(
        f"{command.__name__}Parameters", __base__=Parameters, __doc__=command.__doc__, **fields
    )


def _typed(annotation: Any) -> Any:
    """As pydantic writes it, with the limits of each part."""
    if get_origin(annotation) in _UNIONS:
        return Union[tuple(map(_typed, get_args(annotation)))]  # noqa: UP007 of what is found
    if get_origin(annotation) is list:
        return list[_typed(*get_args(annotation))]  # type: ignore[misc]
    if get_origin(annotation) is Annotated:
        kind, meta = get_args(annotation)
        limits = {name: getattr(meta, name) for name in _LIMITS}
        known = {name: limit for name, limit in limits.items() if limit is not None}
        wholly = (BeforeValidator(_whole),) if kind is int else ()
        return Annotated[_typed(kind), Field(**known), *wholly] if known else _typed(kind)
    return annotation


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 4.0 is 4."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _field(field: msgspec.structs.FieldInfo) -> Any:
    default = ... if field.default is msgspec.NODEFAULT else field.default
    return Field(default, description=_description(field.type))


def _description(annotation: Any) -> str | None:
    """Of a type, or of the one beside None."""
    parts = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    metas = [meta for part in parts for meta in get_args(part) if isinstance(meta, Meta)]
    return metas[0].description if metas else None
