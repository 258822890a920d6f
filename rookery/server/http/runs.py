"""Routes to runs: the list, a new one, and what can be read of each."""

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Query
from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.control.labels import Labels
from rookery.control.models import (
    Answer,
    Artifacts,
    AuditPage,
    Diagnosis,
    Evaluations,
    KeptMatches,
    LogLines,
    LogPage,
    Metrics,
    RunDetail,
    RunPage,
    Use,
)
from rookery.control.run_query import RunQuery
from rookery.server.control_plane import ControlPlane
from rookery.server.http.files import FileAnswer
from rookery.server.http.openapi import FILE_ANSWERS, refusals
from rookery.server.http.rest import (
    API,
    MOST_STEPS,
    After,
    DryRun,
    IdempotencyKey,
    Limit,
    Offset,
    Operator,
    Reader,
    Reason,
    Route,
    RunName,
    Whole,
    answer,
    author_of,
    command_id,
    outcome,
    plain,
)

Cursor = Annotated[
    str,
    Query(
        pattern=r"^([0-9]{1,18}-[A-Za-z0-9_][A-Za-z0-9._-]{0,99})?$",
        description="`next` of the page before",
    ),
]
Points = Annotated[int, Field(ge=1, le=10_000), Whole, Query(description="at most, of each metric")]
Steps = Annotated[int | None, Field(ge=0, le=MOST_STEPS), Whole, Query(description="env_steps")]
Names = Annotated[
    str, Query(max_length=4000, description="metrics, with commas between; empty: the main ones")
]
LogName = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$", description="like learner-0.1.log")
]
LogPlace = Annotated[
    int,
    Field(ge=-1, le=MOST_STEPS),
    Whole,
    Query(description="`next` of the answer before; -1: the newest lines"),
]
ArtifactName = Annotated[str, Path(min_length=1, max_length=500, description="as it is listed")]


class RunsAsked(RunQuery):
    """The query of the list, and which page of the answer."""

    model_config = ConfigDict(strict=False)  # of numbers there is only text

    limit: Limit = 100
    cursor: Cursor = ""
    offset: Offset = 0


class NewRun(Labels):
    """A run to be."""

    config: dict[str, Any]
    start: bool = True
    reason: Reason = ""


def runs_router(plane: ControlPlane) -> APIRouter:
    router = APIRouter(prefix=f"{API}/runs", tags=["runs"], route_class=Route)

    @router.get("", response_model=RunPage)
    async def list_runs(caller: Reader, asked: Annotated[RunsAsked, Query()]) -> Response:
        """Runs: newest first, or searched, sorted and grouped."""
        return answer(plane.page(asked, asked.limit, asked.cursor, asked.offset))

    @router.post(
        "",
        status_code=201,
        response_model=Answer,
        responses={200: {"model": Answer, "description": "a dry run"}, **refusals(409)},
    )
    async def create_run(
        caller: Operator, body: NewRun, dry_run: DryRun = False, key: IdempotencyKey = None
    ) -> Response:
        """Create a run from a config. A process looks at the environment first: seconds."""
        id = command_id(plane, caller, key, ["create", body.model_dump()], dry_run)
        found = await plane.create(
            body.config,
            author=author_of(caller),
            reason=body.reason,
            id=id,
            origin="network",
            start=body.start,
            dry_run=dry_run,
            labels=body.labels(),
        )
        if dry_run:
            return outcome(found)
        return outcome(found, 201, {"Location": f"{API}/runs/{found.run}"})

    @router.get("/{run}", response_model=RunDetail, responses=refusals(404))
    async def show_run(caller: Reader, name: RunName) -> Response:
        """All there is to know about a run at a glance."""
        return answer(await to_thread.run_sync(plane.detail, plane.find(name)))

    @router.get("/{run}/config", response_model=dict[str, Any], responses=refusals(404))
    async def show_config(caller: Reader, name: RunName) -> Response:
        """The run's config, with everything that was changed since."""
        return plain(plane.config(plane.find(name)))

    @router.get("/{run}/why", response_model=Diagnosis, responses=refusals(404))
    async def explain(caller: Reader, name: RunName) -> Response:
        """What is stuck, and its last words."""
        return answer(await to_thread.run_sync(plane.why, plane.find(name)))

    @router.get("/{run}/metrics", response_model=Metrics, responses=refusals(404))
    async def show_metrics(
        caller: Reader,
        name: RunName,
        names: Names = "",
        points: Points = 500,
        start: Steps = None,
        stop: Steps = None,
    ) -> Response:
        """Metrics over time, thinned."""
        wanted = [part for part in names.split(",") if part]
        found = await to_thread.run_sync(
            plane.metrics, plane.find(name), wanted, points, start, stop
        )
        return answer(found)

    @router.get("/{run}/events", response_model=LogPage, responses=refusals(404))
    async def list_events(
        caller: Reader, name: RunName, after: After = -1, limit: Limit = 200
    ) -> Response:
        """What happened to the run, oldest first."""
        return answer(await to_thread.run_sync(plane.events, plane.find(name), after, limit))

    @router.get("/{run}/audit", response_model=AuditPage, responses=refusals(404))
    async def list_commands(
        caller: Reader, name: RunName, after: After = -1, limit: Limit = 200
    ) -> Response:
        """Who changed what, why, and what became of it, oldest first."""
        return answer(await to_thread.run_sync(plane.audit, plane.find(name), after, limit))

    @router.get("/{run}/ladder", response_model=dict[str, Any], responses=refusals(404))
    async def show_ladder(caller: Reader, name: RunName) -> Response:
        """Ratings of everyone who played in the run's league, and who beat whom."""
        return plain(await to_thread.run_sync(plane.ladder, plane.find(name)))

    @router.get("/{run}/evaluations", response_model=Evaluations, responses=refusals(404))
    async def list_evaluations(caller: Reader, name: RunName) -> Response:
        """Evaluations that were asked for, and what came of each, oldest first."""
        return answer(await to_thread.run_sync(plane.evaluations, plane.find(name)))

    @router.get("/{run}/games", response_model=KeptMatches, responses=refusals(404))
    async def list_games(caller: Reader, name: RunName) -> Response:
        """Games of matches that can be watched again, move by move."""
        return answer(await to_thread.run_sync(plane.kept_matches, plane.find(name)))

    @router.get("/{run}/use", response_model=Use, responses=refusals(404))
    async def show_use(caller: Reader, name: RunName) -> Response:
        """How many cores and how much memory the run's workers and the machine use."""
        return answer(await to_thread.run_sync(plane.use, plane.find(name)))

    @router.get("/{run}/logs/{file}", response_model=LogLines, responses=refusals(404))
    async def read_log(
        caller: Reader,
        name: RunName,
        file: LogName,
        after: LogPlace = -1,
        limit: Limit = 200,
        search: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        """Lines of a worker's log: the newest, or those after a place; its prints are in it."""
        run = plane.find(name)
        found = await to_thread.run_sync(plane.log_lines, run, file, after, limit, search)
        return answer(found)

    @router.get("/{run}/artifacts", response_model=Artifacts, responses=refusals(404))
    async def list_artifacts(caller: Reader, name: RunName) -> Response:
        """Files of the run that can be fetched."""
        return answer(await to_thread.run_sync(plane.artifacts, plane.find(name)))

    @router.get(
        "/{run}/artifacts/{path:path}",
        response_class=Response,
        responses={**FILE_ANSWERS, **refusals(404, 416)},
    )
    async def fetch_artifact(
        request: Request, caller: Reader, name: RunName, path: ArtifactName
    ) -> Response:
        """One file, or a range of it."""
        run = plane.find(name)

        def find() -> FileAnswer:
            return FileAnswer(plane.artifact_path(run, path), request.headers)

        return await to_thread.run_sync(find)

    return router
