"""The tools of MCP as data, without the SDK: one for each command, and those that only look.

    tool = TOOLS["scale_actors"]
    arguments = tool.takes.model_validate({"run": "last", "count": 4})
    answer = await tool.act(call, arguments)            # an instance of tool.gives

Names, texts and limits are those of the commands (`control/actions.py`), so a new command is a new
tool. Whatever goes wrong is a RookeryError of one line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import Field, create_model

from rookery.control.actions import ACTIONS, Action, parameters
from rookery.control.labels import Labels
from rookery.control.models import Answer
from rookery.errors import InputError
from rookery.messages import CreateRun, DeleteRun, Job, SaveCheckpoint, new_id
from rookery.server.mcp.calls import MAX_REASON, Act, Call, RunName, Tool, accepted
from rookery.server.mcp.queries import READING
from rookery.server.mcp.waits import WAIT_FOR_RUN, JobAnswer, WaitSeconds, send_job

Reason = Annotated[str, Field(max_length=MAX_REASON, description="why, for the audit")]
DryRun = Annotated[bool, Field(description="only say what it would do, and do nothing")]
Confirm = Annotated[
    str, Field(max_length=100, description="the run's id in full, where nobody can be asked")
]

_JOBS: tuple[type[Any], ...] = get_args(Job)
_ANEW = (CreateRun, SaveCheckpoint, *_JOBS)  # twice does it twice


def _command_tool(action: Action) -> Tool:
    """The tool of one command."""
    command = action.command
    fields: dict[str, Any] = {
        "run": (RunName, ...),
        "reason": (Reason, ""),
        "dry_run": (DryRun, False),
    }
    act: Act = _submit(action)
    gives: type[Answer] = Answer
    if command in _JOBS:
        act, gives = _submit_job(action), JobAnswer
        fields["wait_s"] = (WaitSeconds, 60.0)
    elif command is DeleteRun:
        act = _delete(action)
        fields["confirm"] = (Confirm, "")
    name: str = command.__struct_config__.tag
    return Tool(
        name,
        action.doc,
        action.scope,
        create_model(f"{command.__name__}Call", __base__=parameters(command), **fields),
        gives,
        act,
        destroys=command is DeleteRun,
        repeatable=command not in _ANEW,
    )


def _made(action: Action, call: Call, asked: Any) -> Any:
    """The command that the arguments describe."""
    values = {name: getattr(asked, name) for name in parameters(action.command).model_fields}
    run = call.plane.find(asked.run)
    return action.make(run, values, author=call.author, reason=asked.reason, origin="network")


def _submit(action: Action) -> Act:
    async def act(call: Call, asked: Any) -> Answer:
        command = _made(action, call, asked)
        if asked.dry_run:
            return await call.plane.dry_run(command)
        return accepted(await call.plane.submit(command))

    return act


def _submit_job(action: Action) -> Act:
    async def act(call: Call, asked: Any) -> Answer:
        command = _made(action, call, asked)
        if asked.dry_run:
            answer = await call.plane.dry_run(command)
            return JobAnswer(**answer.model_dump(), finished=False, result={}, look="")
        return await send_job(call, command, asked.wait_s)

    return act


def _delete(action: Action) -> Act:
    """Nothing is deleted before a person, or at least an explicit argument, names the run."""

    async def act(call: Call, asked: Any) -> Answer:
        command = _made(action, call, asked)
        would = await call.plane.dry_run(command)
        if asked.dry_run:
            return would
        if would.outcome == "would_reject":
            raise InputError(would.why)
        said = await call.ask(command.run, f"Delete run {command.run}? {would.effect}.")
        if said is None:  # nobody can be asked
            said = asked.confirm
            if not said:
                how = (
                    f"nothing was deleted yet: to delete it, call again with confirm={command.run}"
                )
                return would.model_copy(update={"effect": f"{would.effect}; {how}"})
        if said != command.run:
            raise InputError(
                f"{said[:100]!r} is not the run's id, {command.run}: nothing was deleted"
            )
        return accepted(await call.plane.submit(command))

    return act


EXAMPLE = {"environment": {"id": "CartPole-v1"}, "stop": {"steps": 100_000}, "seed": 1}


class CreateRunCall(Labels):
    config: dict[str, Any] = Field(
        description="as get_config_schema describes it; what is left out has a default",
        examples=[EXAMPLE],
    )
    start: bool = Field(default=True, description="start it at once")
    reason: Reason = ""
    dry_run: DryRun = False


async def _create(call: Call, asked: CreateRunCall) -> Answer:
    answer = await call.plane.create(
        asked.config,
        author=call.author,
        reason=asked.reason,
        id=new_id(),
        origin="network",
        start=asked.start,
        dry_run=asked.dry_run,
        labels=asked.labels(),
    )
    return accepted(answer)


_CREATE_RUN = Tool(
    "create_run",
    f"{(CreateRun.__doc__ or '').strip()} A config may be as short as {json.dumps(EXAMPLE)}.",
    "operate",
    CreateRunCall,
    Answer,
    _create,
)

TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (*READING, WAIT_FOR_RUN, _CREATE_RUN, *(_command_tool(a) for a in ACTIONS))
}
