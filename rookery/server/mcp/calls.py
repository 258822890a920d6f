"""What a tool of MCP is, and what it is given when it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field

from rookery.control.models import Answer
from rookery.control.tokens import Scope, Token
from rookery.errors import InputError

if TYPE_CHECKING:
    from rookery.server.control_plane import ControlPlane

RUN_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$"
MAX_REASON = 500

RunName = Annotated[
    str, Field(pattern=RUN_PATTERN, description="id of a run, a unique prefix of one, or `last`")
]


@dataclass(frozen=True)
class Call:
    """One call of a tool: by whom, on what, and the ways back to who called."""

    plane: ControlPlane
    who: Token
    tell: Callable[[float, float, str], Awaitable[None]]  # how far, of how much, and a word on it
    ask: Callable[[str, str], Awaitable[str | None]]
    """Have a person type a run's id under a question; what was typed, or None if nobody can be
    asked. A refusal is an InputError."""

    @property
    def author(self) -> str:
        return self.who.label or self.who.id


Act = Callable[[Call, Any], Awaitable[BaseModel]]


@dataclass(frozen=True)
class Tool:
    """Something that an assistant can do."""

    name: str
    doc: str
    scope: Scope
    takes: type[BaseModel]
    gives: type[BaseModel]
    act: Act
    destroys: bool = False
    repeatable: bool = False  # the same again changes nothing more


def accepted(answer: Answer) -> Answer:
    """An answer, unless it is a no."""
    if answer.outcome == "rejected":
        raise InputError(answer.why)
    return answer
