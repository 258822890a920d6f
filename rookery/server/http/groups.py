"""Routes to runs that belong together."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from rookery.control.aggregate import MOST_POINTS
from rookery.control.models import GroupCurves, GroupDetail
from rookery.messages.commands import MOST_TAG
from rookery.server.control_plane import ControlPlane
from rookery.server.http.openapi import refusals
from rookery.server.http.rest import API, Reader, Route, Whole, answer

GroupName = Annotated[
    str, Path(alias="group", min_length=1, max_length=MOST_TAG, description="as its runs have it")
]
MetricName = Annotated[str, Query(max_length=200, description="as a run's metrics are named")]
Points = Annotated[
    int, Field(ge=1, le=MOST_POINTS), Whole, Query(description="at most, of each curve")
]


def groups_router(plane: ControlPlane) -> APIRouter:
    router = APIRouter(prefix=f"{API}/groups", tags=["groups"], route_class=Route)

    @router.get("/{group}", response_model=GroupDetail, responses=refusals(404))
    async def show_group(caller: Reader, name: GroupName) -> Response:
        """The runs of a group, and what they came to: mean, interquartile mean, a band."""
        return answer(plane.group(name))

    @router.get("/{group}/metrics", response_model=GroupCurves, responses=refusals(404))
    async def show_group_metrics(
        caller: Reader,
        name: GroupName,
        metric: MetricName = "mean_return_100",
        points: Points = MOST_POINTS,
    ) -> Response:
        """One metric of all runs of a group as one curve with a band."""
        return answer(await to_thread.run_sync(plane.group_curves, name, metric, points))

    return router
