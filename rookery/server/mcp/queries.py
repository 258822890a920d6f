"""The tools that only look."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from pydantic import Field

from rookery.control import catalogue
from rookery.control.actions import Parameters
from rookery.control.models import (
    UNTRUSTED,
    Algorithms,
    Artifacts,
    AuditEntry,
    AuditPage,
    Diagnosis,
    Environments,
    LogEntry,
    LogPage,
    Metrics,
    Players,
    RunDetail,
    RunPage,
    View,
)
from rookery.server.mcp.calls import Act, Call, RunName, Tool

Entry = TypeVar("Entry", LogEntry, AuditEntry)

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


class ListRuns(Parameters):
    limit: int = Field(default=50, ge=1, le=500)
    cursor: str = Field(default="", max_length=200, description="`next` of the page before")
    status: str = Field(default="", max_length=20, description="only runs of this status")
    environment: str = Field(default="", max_length=200, description="only runs of this one")


async def _list_runs(call: Call, asked: ListRuns) -> RunPage:
    return call.plane.page(asked.limit, asked.cursor, asked.status, asked.environment)


async def _get_run(call: Call, asked: OfRun) -> RunDetail:
    return await to_thread.run_sync(call.plane.detail, call.plane.find(asked.run))


async def _get_config(call: Call, asked: OfRun) -> ConfigNow:
    run = call.plane.find(asked.run)
    return ConfigNow(run=run, config=call.plane.config(run))


async def _why(call: Call, asked: OfRun) -> Diagnosis:
    return await to_thread.run_sync(call.plane.why, call.plane.find(asked.run))


async def _get_ladder(call: Call, asked: OfRun) -> Ladder:
    run = call.plane.find(asked.run)
    return Ladder(run=run, ladder=await to_thread.run_sync(call.plane.ladder, run))


async def _list_artifacts(call: Call, asked: OfRun) -> Artifacts:
    return await to_thread.run_sync(call.plane.artifacts, call.plane.find(asked.run))


class GetMetrics(OfRun):
    names: list[Annotated[str, Field(max_length=200)]] = Field(
        default=[], max_length=64, description="none: the return, the speed, the lag, the losses"
    )
    points: int = Field(default=50, ge=1, le=2000, description="at most, of each metric")
    start: int | None = Field(default=None, ge=0, le=MOST_STEPS, description="in env_steps")
    stop: int | None = Field(default=None, ge=0, le=MOST_STEPS, description="in env_steps")


async def _get_metrics(call: Call, asked: GetMetrics) -> Metrics:
    run = call.plane.find(asked.run)
    return await to_thread.run_sync(
        call.plane.metrics, run, asked.names, asked.points, asked.start, asked.stop
    )


class GetLog(Parameters):
    run: RunName | None = Field(default=None, description="null: all runs")
    after: int | None = Field(
        default=None, ge=-1, le=MOST_STEPS, description="`seq` to go on from; null: the newest"
    )
    limit: int = Field(default=100, ge=1, le=1000)


async def _get_events(call: Call, asked: GetLog) -> LogPage:
    plane, run = call.plane, _run_or_all(call, asked)
    if asked.after is not None:
        return await to_thread.run_sync(plane.events, run, asked.after, asked.limit)
    entries = await to_thread.run_sync(
        _newest,
        lambda after, n: plane.events(run, after, n).entries,
        _end(call, "events"),
        asked.limit,
    )
    return LogPage(entries=entries, next=None)


async def _get_audit(call: Call, asked: GetLog) -> AuditPage:
    plane, run = call.plane, _run_or_all(call, asked)
    if asked.after is not None:
        return await to_thread.run_sync(plane.audit, run, asked.after, asked.limit)
    entries = await to_thread.run_sync(
        _newest,
        lambda after, n: plane.audit(run, after, n).entries,
        _end(call, "commands"),
        asked.limit,
    )
    return AuditPage(entries=entries, next=None)


def _run_or_all(call: Call, asked: GetLog) -> str | None:
    return None if asked.run is None else call.plane.find(asked.run)


def _end(call: Call, channel: str) -> int:
    return call.plane.follower.end(channel)


def _newest(entries: Callable[[int, int], list[Entry]], end: int, limit: int) -> list[Entry]:
    """The last entries of a log that is read forwards: look back further until there are enough.

    Seqs count the entries of all runs, so one run's lie further back than their number.
    """
    back = limit
    while True:
        found = entries(max(-1, end - back), back + limit)
        if len(found) >= limit or back > end:
            return found[-limit:]
        back *= 8


class ListEnvironments(Parameters):
    search: str = Field(default="", max_length=200, description="part of a name or a description")
    limit: int = Field(default=50, ge=1, le=500)
    offset: int = Field(default=0, ge=0, le=1_000_000)


async def _list_environments(call: Call, asked: ListEnvironments) -> Environments:
    return await to_thread.run_sync(
        call.plane.environments, asked.search, asked.limit, asked.offset
    )


class Nothing(Parameters):
    """No parameters."""


async def _get_config_schema(call: Call, asked: Nothing) -> ConfigSchema:
    from rookery.config.models import RunConfig

    return ConfigSchema(config_schema=RunConfig.model_json_schema())


async def _list_algorithms(call: Call, asked: Nothing) -> Algorithms:
    return Algorithms.model_validate({"algorithms": catalogue.algorithms()})


async def _list_players(call: Call, asked: Nothing) -> Players:
    return Players.model_validate({"players": catalogue.players()})


def _tool(name: str, doc: str, takes: type[Parameters], gives: type[View], act: Act) -> Tool:
    return Tool(name, doc, "read", takes, gives, act, repeatable=True)


READING = (
    _tool("list_runs", "List runs, newest first.", ListRuns, RunPage, _list_runs),
    _tool("get_run", "Show a run: workers, step balance, checkpoints.", OfRun, RunDetail, _get_run),
    _tool("get_config", "Show a run's config as it is now.", OfRun, ConfigNow, _get_config),
    _tool("why", "Say what is stuck in a run, and its last error.", OfRun, Diagnosis, _why),
    _tool(
        "get_metrics",
        "Show metrics of a run over time, thinned to some points.",
        GetMetrics,
        Metrics,
        _get_metrics,
    ),
    _tool("get_events", "Show what happened, oldest first.", GetLog, LogPage, _get_events),
    _tool(
        "get_audit",
        "Show who changed what and why, and what became of it, oldest first.",
        GetLog,
        AuditPage,
        _get_audit,
    ),
    _tool("get_ladder", "Show the ratings of a run's league.", OfRun, Ladder, _get_ladder),
    _tool("list_artifacts", "List the files of a run.", OfRun, Artifacts, _list_artifacts),
    _tool(
        "list_environments",
        "List environments that can be trained on.",
        ListEnvironments,
        Environments,
        _list_environments,
    ),
    _tool(
        "list_algorithms",
        "List algorithms with their options.",
        Nothing,
        Algorithms,
        _list_algorithms,
    ),
    _tool(
        "list_players",
        "List kinds of players with their options.",
        Nothing,
        Players,
        _list_players,
    ),
    _tool(
        "get_config_schema",
        "Show what a config for create_run may hold.",
        Nothing,
        ConfigSchema,
        _get_config_schema,
    ),
)
