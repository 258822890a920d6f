"""Counts the requests that a server answers, and how long they took.

    meter = HttpMeter()
    app = Metered(app, meter)           # outermost, so that refusals count too
    meter.stream_clients = lambda: 3    # how many follow the stream, asked when it is told

Labels are few by design: requests are counted by the template of their route, never by their path,
and by a known method.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/v1"
MOUNTS = ("/mcp",)  # have an app of their own below, and no route
OTHER = "other"  # what no route has answered: unknown paths, and requests that were refused before
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
MOST_ROUTES = 256
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class HttpMeter:
    """Counts requests. Safe from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, str]] = Counter()  # method, route, status
        self._times: dict[str, _Times] = {}  # by route
        self.stream_clients: Callable[[], int] = lambda: 0

    def record(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is a template, as `route_of` gives."""
        method = method if method in METHODS else OTHER
        with self._lock:
            if route not in self._times and len(self._times) >= MOST_ROUTES:
                route = OTHER
            self._requests[method, route, str(status)] += 1
            self._times.setdefault(route, _Times()).add(seconds)

    def families(self) -> list[Metric]:
        requests = CounterMetricFamily(
            "rookery_http_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        seconds = HistogramMetricFamily(
            "rookery_http_request_seconds", "Time until the answer began.", labels=["route"]
        )
        clients = GaugeMetricFamily("rookery_stream_clients", "Clients of the stream.")
        with self._lock:
            for labels, count in self._requests.items():
                requests.add_metric(labels, count)
            for route, times in self._times.items():
                seconds.add_metric([route], times.buckets(), times.sum)
            clients.add_metric([], self.stream_clients())
        return [requests, seconds, clients]


class _Times:
    """How many took how long."""

    def __init__(self) -> None:
        self.sum = 0.0
        self._counts = [0] * (len(BUCKETS_S) + 1)

    def add(self, seconds: float) -> None:
        self.sum += seconds
        self._counts[bisect_left(BUCKETS_S, seconds)] += 1

    def buckets(self) -> list[tuple[str, float]]:
        names = [*map(str, BUCKETS_S), "+Inf"]
        return list(zip(names, map(float, accumulate(self._counts)), strict=True))


class Metered:
    """ASGI middleware that tells a meter of each HTTP request, when its answer begins."""

    def __init__(self, app: ASGIApp, meter: HttpMeter) -> None:
        self._app, self._meter = app, meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        answered = False

        def record(status: int) -> None:
            nonlocal answered
            answered = True
            seconds = time.perf_counter() - began
            self._meter.record(scope["method"], route_of(scope), status, seconds)

        async def send_metered(message: Message) -> None:
            if message["type"] == "http.response.start":
                record(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, send_metered)
        finally:
            if not answered:  # it raised, or the client went away: a server says 500, if anything
                record(500)


def route_of(scope: Scope) -> str:
    """The template that answered, like /api/v1/runs/{run}; never the path itself."""
    path: str = scope["path"]
    template = getattr(scope.get("route"), "path", None)
    if not isinstance(template, str):
        return next((m for m in MOUNTS if path == m or path.startswith(f"{m}/")), OTHER)
    # a route of a router that was included does not know the prefix
    lacks_prefix = path.startswith(f"{API}/") and not template.startswith(API)
    return API + template if lacks_prefix else template
