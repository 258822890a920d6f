"""Asking a person, through whatever assistant they use, before something is gone for good.

Clients speak one of two protocols. Up to 2025-11-25 the server asks in the middle of a call and
waits. Since 2026-07-28 the call ends with the question (`Asking`), and the client calls again with
the answer: each question has a number that is good for one answer, by the same caller, about the
same run. A client that cannot ask says so, and the caller gets None.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from typing import Any

from mcp import MCPError
from mcp.server.elicitation import render_elicitation_schema
from mcp.server.mcpserver import Context
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel, Field, ValidationError

from rookery.errors import InputError

ASKS_BY_RETURN = "2026-07-28"  # the first protocol in which a call ends with its question
CONSENT_S = 600.0
MOST_QUESTIONS = 1024
QUESTION = "confirm"
NOT_CONFIRMED = "it was not confirmed: nothing was done"


class Typed(BaseModel):
    """The form that a person fills in."""

    run: str = Field(title="The run's id", description="type the id to confirm", max_length=100)


class Asking(Exception):
    """The call ends here with a question; the client calls again with the answer."""

    def __init__(self, result: InputRequiredResult) -> None:
        self.result = result
        super().__init__("a question")


class Questions:
    """Those that wait for an answer; each is good for one."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[str, str, float]] = OrderedDict()

    def add(self, who: str, run: str) -> str:
        number = secrets.token_hex(16)
        self._open[number] = (who, run, time.monotonic() + CONSENT_S)
        while len(self._open) > MOST_QUESTIONS:
            self._open.popitem(last=False)
        return number

    def take(self, number: str, who: str, run: str) -> bool:
        """Whether this caller was asked about this run, for the first and last time."""
        asked_who, asked_run, until = self._open.pop(number, ("", "", 0.0))
        return (asked_who, asked_run) == (who, run) and time.monotonic() < until


async def ask(
    context: Context[Any, Any], questions: Questions, who: str, run: str, message: str
) -> str | None:
    """What was typed under the question; None if the client cannot ask."""
    if not _can_ask(context):
        return None
    if (context.protocol_version or "") >= ASKS_BY_RETURN:
        return _answered(context, questions, who, run, message)
    if not context.session.can_send_request:
        return None
    try:
        async with asyncio.timeout(CONSENT_S):
            reply = await context.elicit(message, Typed)
    except TimeoutError:
        raise InputError(f"nobody confirmed it within {CONSENT_S:g} s: nothing was done") from None
    except (ValueError, MCPError):
        raise InputError(NOT_CONFIRMED) from None
    if reply.action != "accept":
        raise InputError(NOT_CONFIRMED)
    return reply.data.run


def _can_ask(context: Context[Any, Any]) -> bool:
    capabilities = context.client_capabilities
    asking = capabilities.elicitation if capabilities else None
    return asking is not None and (asking.form is not None or asking.url is None)


def _answered(
    context: Context[Any, Any], questions: Questions, who: str, run: str, message: str
) -> str:
    """The answer that came with this call; without one, the question."""
    answer = (context.input_responses or {}).get(QUESTION)
    if answer is None:
        form = ElicitRequestFormParams(
            message=message, requested_schema=render_elicitation_schema(Typed)
        )
        number = questions.add(who, run)
        asked: dict[str, Any] = {QUESTION: ElicitRequest(params=form)}
        raise Asking(InputRequiredResult(input_requests=asked, request_state=number))
    if not questions.take(context.request_state or "", who, run):
        raise InputError("that question was answered before, or never asked: nothing was done")
    if not isinstance(answer, ElicitResult) or answer.action != "accept":
        raise InputError(NOT_CONFIRMED)
    try:
        return Typed.model_validate(answer.content or {}).run
    except ValidationError:
        raise InputError(NOT_CONFIRMED) from None
