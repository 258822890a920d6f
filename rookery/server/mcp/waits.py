"""Waiting on behalf of an assistant: for a run to get somewhere, and for the result of a job.

Both wait for a bounded time, tell how it goes about once a second, and look again whenever there is
something new in the log or the metrics.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from rookery.control.actions import Parameters
from rookery.control.models import UNTRUSTED, Answer, RunRow
from rookery.control.run_state import ENDED, Status
from rookery.errors import InputError
from rookery.messages import Command
from rookery.server.mcp.calls import Call, RunName, Tool, accepted

TELL_S = 1.0
PAGE = 1000  # entries of the log at a time

WaitSeconds = Annotated[float, Field(ge=0, le=600, description="how long to wait, at most")]

T = TypeVar("T")


async def watch(
    call: Call,
    run: str,
    look: Callable[[], T | None],
    wait_s: float,
    tell: Callable[[float], Awaitable[None]],
) -> T | None:
    """What `look` finds; None if it finds nothing in time. `tell` gets the seconds waited."""
    began, left_s = time.monotonic(), wait_s
    while True:
        found = await call.plane.follower.until(run, look, min(TELL_S, left_s))
        left_s = began + wait_s - time.monotonic()
        if found is not None or left_s <= 0:
            return found
        await tell(wait_s - left_s)


# --- runs ----------------------------------------------------------------------------------------


class Waited(RunRow):
    """The run when the waiting was over."""

    reached: bool = Field(description="false: the time was over first, or the run ended elsewhere")
    waited_s: float


class WaitForRun(Parameters):
    run: RunName
    status: Literal["", Status] = Field(default="", description="empty: any end")
    env_steps: int | None = Field(default=None, ge=1, description="or until so many were trained")
    wait_s: WaitSeconds = 60.0


async def _wait_for_run(call: Call, asked: WaitForRun) -> Waited:
    run = call.plane.find(asked.run)
    began = time.monotonic()

    def look() -> RunRow | None:
        row = call.plane.row(run)
        return row if _reached(row, asked) or row.status in ENDED else None

    most = 0  # progress only ever grows; steps may go back with a learner's restart

    async def tell(waited_s: float) -> None:
        nonlocal most
        row = call.plane.row(run)
        word = f"{row.status}, {row.env_steps:,} steps"
        if asked.env_steps is None:
            await call.tell(waited_s, asked.wait_s, word)
        elif row.env_steps > most:
            most = row.env_steps
            await call.tell(most, asked.env_steps, word)

    row = await watch(call, run, look, asked.wait_s, tell) or call.plane.row(run)
    return Waited(
        **row.model_dump(),
        reached=_reached(row, asked),
        waited_s=round(time.monotonic() - began, 3),
    )


def _reached(row: RunRow, asked: WaitForRun) -> bool:
    if asked.env_steps is not None and row.env_steps >= asked.env_steps:
        return True
    if asked.status:
        return row.status == asked.status
    return asked.env_steps is None and row.status in ENDED


WAIT_FOR_RUN = Tool(
    "wait_for_run",
    "Wait until a run has a status or has trained a number of steps, and show it.",
    "read",
    WaitForRun,
    Waited,
    _wait_for_run,
    repeatable=True,
)


# --- jobs ----------------------------------------------------------------------------------------


class JobAnswer(Answer):
    """What became of an evaluation or a match."""

    finished: bool = Field(description="false: it goes on, or has not begun")
    result: dict[str, Any] = Field(description="once it has finished", json_schema_extra=UNTRUSTED)
    look: str = Field(description="how to look for the result; empty once it is there")


async def send_job(call: Call, command: Command, wait_s: float) -> JobAnswer:
    """Send it, and wait for its result as long as somebody is at it."""
    after = call.plane.follower.end("events")
    answer = accepted(await call.plane.submit(command))

    def look() -> dict[str, Any] | None:
        """The event that ends the job, if it came since the last look."""
        nonlocal after
        while entries := call.plane.events(command.run, after, PAGE).entries:
            after = entries[-1].seq
            for entry in entries:
                if entry.kind == "job_done" and entry.data.get("command") == command.id:
                    return entry.data
        return None

    async def tell(waited_s: float) -> None:
        await call.tell(waited_s, wait_s, f"{answer.kind}: no result yet")

    patience_s = wait_s if answer.outcome == "accepted" else 0.0
    found = await watch(call, command.run, look, patience_s, tell)
    if found is None:
        how = f"get_events of run {command.run}: the job_done event of command {command.id}"
        return JobAnswer(**answer.model_dump(), finished=False, result={}, look=how)
    if found.get("error"):
        raise InputError(f"{answer.kind} failed: {found['error']}")
    result = found.get("result", {})
    return JobAnswer(**answer.model_dump(), finished=True, result=result, look="")
