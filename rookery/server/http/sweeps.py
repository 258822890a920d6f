"""Routes to searches for a good config."""

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Path
from starlette.responses import Response

from rookery.control.models import SweepDetail, Sweeps
from rookery.server.control_plane import ControlPlane
from rookery.server.http.openapi import refusals
from rookery.server.http.rest import API, RUN_PATTERN, Limit, Reader, Route, answer

SweepName = Annotated[
    str,
    Path(alias="sweep", pattern=RUN_PATTERN, description="id, a unique prefix of one, or `last`"),
]


def sweeps_router(plane: ControlPlane) -> APIRouter:
    router = APIRouter(prefix=f"{API}/sweeps", tags=["sweeps"], route_class=Route)

    @router.get("", response_model=Sweeps)
    async def list_sweeps(caller: Reader, limit: Limit = 200) -> Response:
        """Sweeps, the newest first: how far each is, and the best return that it found."""
        return answer(await to_thread.run_sync(plane.sweeps, limit))

    @router.get("/{sweep}", response_model=SweepDetail, responses=refusals(404))
    async def show_sweep(caller: Reader, name: SweepName, limit: Limit = 1000) -> Response:
        """What a sweep searches, its trials, the best of them, and which keys matter."""
        return answer(await to_thread.run_sync(plane.sweep, name, limit))

    return router
