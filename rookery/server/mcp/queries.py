"""The tools that only look: each is a function, whose name, docstring and types the tool has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_type_hints

from anyio import to_thread
from pydantic import Field

from rookery.config.models import RunConfig
from rookery.control import catalogue
from rookery.control.actions import Parameters
from rookery.control.models import (
    UNTRUSTED,
    Algorithms,
    Artifacts,
    AuditPage,
    Diagnosis,
    Environments,
    GroupDetail,
    LogPage,
    Metrics,
    Nodes,
    Players,
    RunDetail,
    RunPage,
    SweepDetail,
    Sweeps,
    View,
)
from rookery.control.run_query import RunQuery
from rookery.messages.commands import MOST_TAG
from rookery.server.mcp.calls import Act, Call, RunName, Tool

Page = TypeVar("Page", LogPage, AuditPage)

MOST_STEPS = 2**53  # that JSON can say


class ConfigNow(View):
    run: str
    config: dict[str, Any] = Field(json_schema_extra=UNTRUSTED)


class ConfigSchema(View):
    config_schema: dict[str, Any] = Field(description="JSON Schema of a run's config")


class Ladder(View):
    run: str
    ladder: dict[str, Any] = Field(
        description="rated players, the strongest first, and who beat whom",
        json_schema_extra=UNTRUSTED,
    )


class OfRun(Parameters):
    run: RunName


class OfGroup(Parameters):
    group: str = Field(min_length=1, max_length=MOST_TAG, description="as runs have it")


class ListSweeps(Parameters):
    limit: int = Field(default=50, ge=1, le=500)


class GetSweep(Parameters):
    sweep: str = Field(
        min_length=1, max_length=100, description="id, a unique prefix of one, or `last`"
    )
    limit: int = Field(default=50, ge=1, le=1000, description="trials of the table, the best first")


class ListRuns(RunQuery):
    limit: int = Field(default=50, ge=1, le=500)
    cursor: str = Field(default="", max_length=200, description="`next` of the page before")


class GetMetrics(OfRun):
    names: list[Annotated[str, Field(max_length=200)]] = Field(
        default=[], max_length=64, description="none: the return, the speed, the lag, the losses"
    )
    points: int = Field(default=50, ge=1, le=2000, description="at most, of each metric")
    start: int | None = Field(default=None, ge=0, le=MOST_STEPS, description="in env_steps")
    stop: int | None = Field(default=None, ge=0, le=MOST_STEPS, description="in env_steps")


class GetLog(Parameters):
    run: RunName | None = Field(default=None, description="null: all runs")
    after: int | None = Field(
        default=None, ge=-1, le=MOST_STEPS, description="`seq` to go on from; null: the newest"
    )
    limit: int = Field(default=100, ge=1, le=1000)


class ListEnvironments(Parameters):
    search: str = Field(default="", max_length=200, description="part of a name or a description")
    limit: int = Field(default=50, ge=1, le=500)
    offset: int = Field(default=0, ge=0, le=1_000_000)


class Nothing(Parameters):
    """No parameters."""


async def list_runs(call: Call, asked: ListRuns) -> RunPage:
    """List runs: newest first, or searched, sorted and grouped."""
    return call.plane.page(asked, asked.limit, asked.cursor)


async def get_run(call: Call, asked: OfRun) -> RunDetail:
    """Show a run: workers, step balance, checkpoints."""
    return await to_thread.run_sync(call.plane.detail, call.plane.find(asked.run))


async def get_group(call: Call, asked: OfGroup) -> GroupDetail:
    """Show runs that belong together, and what they came to: mean, interquartile mean, a band."""
    return call.plane.group(asked.group)


async def list_sweeps(call: Call, asked: ListSweeps) -> Sweeps:
    """List sweeps, the newest first: how far each is, and the best return that it found."""
    return await to_thread.run_sync(call.plane.sweeps, asked.limit)


async def get_sweep(call: Call, asked: GetSweep) -> SweepDetail:
    """Show a sweep: what it searches, its trials, the best of them, and which keys matter."""
    return await to_thread.run_sync(call.plane.sweep, asked.sweep, asked.limit)


async def get_config(call: Call, asked: OfRun) -> ConfigNow:
    """Show a run's config as it is now."""
    run = call.plane.find(asked.run)
    return ConfigNow(run=run, config=call.plane.config(run))


async def why(call: Call, asked: OfRun) -> Diagnosis:
    """Say what is stuck in a run, and its last error."""
    return await to_thread.run_sync(call.plane.why, call.plane.find(asked.run))


async def get_metrics(call: Call, asked: GetMetrics) -> Metrics:
    """Show metrics of a run over time, thinned to some points."""
    run = call.plane.find(asked.run)
    return await to_thread.run_sync(
        call.plane.metrics, run, asked.names, asked.points, asked.start, asked.stop
    )


async def get_events(call: Call, asked: GetLog) -> LogPage:
    """Show what happened, oldest first."""
    return await _log(call, asked, call.plane.events, "events")


async def get_audit(call: Call, asked: GetLog) -> AuditPage:
    """Show who changed what and why, and what became of it, oldest first."""
    return await _log(call, asked, call.plane.audit, "commands")


async def get_ladder(call: Call, asked: OfRun) -> Ladder:
    """Show the ratings of a run's league."""
    run = call.plane.find(asked.run)
    return Ladder(run=run, ladder=await to_thread.run_sync(call.plane.ladder, run))


async def list_artifacts(call: Call, asked: OfRun) -> Artifacts:
    """List the files of a run."""
    return await to_thread.run_sync(call.plane.artifacts, call.plane.find(asked.run))


async def list_nodes(call: Call, asked: Nothing) -> Nodes:
    """List the nodes that runs live on, and who is at work on each."""
    return await to_thread.run_sync(call.plane.nodes)


async def list_environments(call: Call, asked: ListEnvironments) -> Environments:
    """List environments that can be trained on."""
    return await to_thread.run_sync(
        call.plane.environments, asked.search, asked.limit, asked.offset
    )


async def list_algorithms(call: Call, asked: Nothing) -> Algorithms:
    """List algorithms with their options."""
    return Algorithms.model_validate({"algorithms": catalogue.algorithms()})


async def list_players(call: Call, asked: Nothing) -> Players:
    """List kinds of players with their options."""
    return Players.model_validate({"players": catalogue.players()})


async def get_config_schema(call: Call, asked: Nothing) -> ConfigSchema:
    """Show what a config for create_run may hold."""
    return ConfigSchema(config_schema=RunConfig.model_json_schema())


async def _log(
    call: Call, asked: GetLog, read: Callable[[str | None, int, int], Page], channel: str
) -> Page:
    """The page after an entry, or the newest entries."""
    run = None if asked.run is None else call.plane.find(asked.run)
    if asked.after is not None:
        return await to_thread.run_sync(read, run, asked.after, asked.limit)
    end = call.plane.follower.end(channel)
    return await to_thread.run_sync(_newest, read, run, end, asked.limit)


def _newest(
    read: Callable[[str | None, int, int], Page], run: str | None, end: int, limit: int
) -> Page:
    """The last entries of a log that is read forwards: look back further until there are enough.

    Seqs count the entries of all runs, so one run's lie further back than their number.
    """
    back = limit
    while True:
        found = read(run, max(-1, end - back), back + limit)
        if len(found.entries) >= limit or back > end:
            return found.model_copy(update={"entries": found.entries[-limit:], "next": None})
        back *= 8


def _tool(act: Act) -> Tool:
    types = get_type_hints(act)
    doc, takes, gives = act.__doc__ or "", types["asked"], types["return"]
    return Tool(act.__name__, doc, "read", takes, gives, act, repeatable=True)


READING = tuple(
    _tool(act)
    for act in (
        list_runs,
        get_run,
        get_group,
        list_sweeps,
        get_sweep,
        get_config,
        why,
        get_metrics,
        get_events,
        get_audit,
        get_ladder,
        list_artifacts,
        list_nodes,
        list_environments,
        list_algorithms,
        list_players,
        get_config_schema,
    )
)
