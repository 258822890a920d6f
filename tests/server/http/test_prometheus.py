"""What Prometheus reads: the right numbers, labels that cannot break the format, few of them."""

from __future__ import annotations

import asyncio
import re
import threading
from types import SimpleNamespace
from typing import Any

import prometheus_client
import pytest
from fastapi import APIRouter, FastAPI
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from rookery.control.models import RunRow
from rookery.control.run_state import RunState, WorkerState
from rookery.server.http import request_metrics as http_meter
from rookery.server.http.prometheus import CONTENT_TYPE, exposition
from rookery.server.http.request_metrics import BUCKETS_S, HttpMeter, Metered

TROUBLE = '"\\\n\r{}=,# \0\u2028\ud800'  # half a surrogate pair among them
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def row(run: str = "r", **changes: Any) -> RunRow:
    values: dict[str, Any] = {
        "run": run,
        "environment": "CartPole-v1",
        "algorithm": "ppo",
        "status": "running",
        "reason": "",
        "desired": "running",
        "created_s": 1.0,
        "env_steps": 4096,
        "updates": 4,
        "mean_return_100": 21.5,
        "steps_per_s": 900.25,
        "lag_mean": 1.25,
        "actors": 2,
        "actors_wanted": 2,
        "owner": "server",
    }
    return RunRow(**(values | changes))


class FakePlane:
    """Runs in memory, and of the follower what is asked here."""

    def __init__(
        self,
        *rows: RunRow,
        workers: dict[str, list[WorkerState]] | None = None,
        lag_max: dict[str, int] | None = None,
    ) -> None:
        self._rows, self._lag_max = rows, lag_max or {}
        states = {
            run: RunState(run, {}, 1.0, workers={f"{w.kind}-{w.index}": w for w in found})
            for run, found in (workers or {}).items()
        }
        self.follower = SimpleNamespace(states=states, training=self._training)

    def rows(self) -> list[RunRow]:
        return list(self._rows)

    def _training(self, run: str) -> Any:
        lag_max = self._lag_max.get(run)
        if lag_max is None:
            return None
        league = SimpleNamespace(rating=26.5, uncertainty=1.5, rated_games=9)
        return SimpleNamespace(
            lag_max=lag_max,
            bus_lag=7,
            policy="main",
            values={"policy_loss": -0.25, "kl": None},
            policies={},
            league=league,
        )


def written(plane: Any, meter: HttpMeter | None = None) -> str:
    return exposition(plane, meter or HttpMeter()).decode()


def read(plane: FakePlane, meter: HttpMeter | None = None) -> Samples:
    """Every sample of an exposition, as Prometheus's own parser finds it; none may be there twice,
    since Prometheus then takes nothing at all."""
    found: Samples = {}
    for family in text_string_to_metric_families(written(plane, meter)):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def test_a_run_is_told_with_all_its_numbers() -> None:
    samples = read(FakePlane(row(), lag_max={"r": 3}))

    assert value(samples, "rookery_run_env_steps_total", run="r") == 4096
    assert value(samples, "rookery_run_mean_return", run="r") == 21.5
    assert value(samples, "rookery_run_steps_per_second", run="r") == 900.25
    assert value(samples, "rookery_run_policy_lag", run="r") == 1.25
    assert value(samples, "rookery_run_policy_lag_max", run="r") == 3
    assert value(samples, "rookery_run_bus_lag", run="r") == 7
    loss = {"run": "r", "policy": "main", "figure": "policy_loss"}
    assert value(samples, "rookery_run_training_value", **loss) == -0.25
    assert value(samples, "rookery_run_training_value", **{**loss, "figure": "kl"}) is None
    assert value(samples, "rookery_run_rating", run="r") == 26.5
    assert value(samples, "rookery_run_rating_sigma", run="r") == 1.5
    info = {"run": "r", "environment": "CartPole-v1", "algorithm": "ppo", "status": "running"}
    assert value(samples, "rookery_run_info", **info) == 1


def test_names_and_texts_are_as_promtool_wants_them() -> None:
    found = written(FakePlane(row(), lag_max={"r": 3}), used_meter())
    for family in text_string_to_metric_families(found):
        samples = {sample.name for sample in family.samples}
        assert family.documentation.endswith("."), family.name
        assert re.fullmatch(r"rookery(_[a-z]+)+", family.name), family.name
        assert not re.search(r"_(ms|msec|milliseconds|minutes|kb|mb|count|sum)$", family.name)
        totals = {name for name in samples if name.endswith("_total")}
        assert totals == (samples if family.type == "counter" else set()), family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name


def used_meter() -> HttpMeter:
    meter = HttpMeter()
    meter.record("GET", "/api/v1/runs", 200, 0.01)
    return meter


def test_what_is_not_known_is_not_said() -> None:
    unknown = row(status="created", mean_return_100=None, steps_per_s=None, lag_mean=None)

    samples = read(FakePlane(unknown))

    said = {name for name, labels in samples if ("run", "r") in labels}
    assert said == {"rookery_run_info", "rookery_run_env_steps_total"}


def test_runs_are_counted_by_status_and_the_queue_has_a_length() -> None:
    rows = [row("a"), row("b"), row("c", status="queued"), row("d", status="brand new")]

    samples = read(FakePlane(*rows))

    counts = {
        dict(labels)["status"]: n for (name, labels), n in samples.items() if name == "rookery_runs"
    }
    assert counts.pop("running") == 2
    assert counts.pop("queued") == 1
    assert counts.pop("brand new") == 1
    assert set(counts.values()) == {0} and "failed" in counts
    assert value(samples, "rookery_queue_length") == 1


def test_restarts_are_summed_by_kind_of_worker_for_runs_that_are_listed() -> None:
    workers = {
        "r": [WorkerState("actor", 0, 3), WorkerState("actor", 1, 2), WorkerState("learner", 0, 1)],
        "deleted": [WorkerState("actor", 0, 9)],
    }

    samples = read(FakePlane(row(), workers=workers))

    restarts = {k: n for k, n in samples.items() if k[0] == "rookery_worker_restarts_total"}
    assert restarts == {
        ("rookery_worker_restarts_total", frozenset({("run", "r"), ("kind", "actor")})): 3,
        ("rookery_worker_restarts_total", frozenset({("run", "r"), ("kind", "learner")})): 0,
    }


@given(text=st.text() | st.lists(st.sampled_from(TROUBLE)).map("".join))
def test_no_text_of_strangers_breaks_the_format(text: str) -> None:
    samples = read(FakePlane(row(environment=text), row("s")))

    infos = [dict(labels) for name, labels in samples if name == "rookery_run_info"]
    expected = text.encode("utf-8", "replace").decode()[:255]
    assert [info["environment"] for info in infos if info["run"] == "r"] == [expected]
    assert value(samples, "rookery_run_env_steps_total", run="s") == 4096


@pytest.mark.parametrize("text", ['a"b', "a\nb", "a\\nb", "a\\", '"} 1\nrookery_runs 7', "\r\n"])
def test_what_would_end_a_label_or_a_line_is_escaped(text: str) -> None:
    found = written(FakePlane(row(environment=text)))

    lines = [line for line in found.split("\n") if line.startswith("rookery_run_info{")]
    assert len(lines) == 1
    assert lines[0].endswith('status="running"} 1.0')
    assert "\nrookery_runs 7" not in found


def test_endless_text_is_cut() -> None:
    found = written(FakePlane(row(environment="x" * 10_000)))
    assert "x" * 255 in found
    assert "x" * 256 not in found


def test_nothing_is_written_to_the_global_registry() -> None:
    before = prometheus_client.generate_latest()
    read(FakePlane(row()))
    assert b"rookery" not in before + prometheus_client.generate_latest()
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


def test_requests_are_counted_and_timed_by_route() -> None:
    meter = HttpMeter()
    for status, seconds in ((200, 0.002), (200, 0.0025), (404, 0.3), (200, 99.0)):
        meter.record("GET", "/api/v1/runs/{run}", status, seconds)

    samples = read(FakePlane(), meter)

    route = {"route": "/api/v1/runs/{run}"}
    requests = "rookery_http_requests_total"
    assert value(samples, requests, method="GET", status="200", **route) == 3
    assert value(samples, requests, method="GET", status="404", **route) == 1
    name = "rookery_http_request_seconds"
    buckets = [value(samples, f"{name}_bucket", le=str(le), **route) for le in BUCKETS_S]
    assert buckets == [0, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3]  # a bound counts what is equal to it
    assert value(samples, f"{name}_bucket", le="+Inf", **route) == 4
    assert value(samples, f"{name}_count", **route) == 4
    assert value(samples, f"{name}_sum", **route) == pytest.approx(99.3045)


def test_labels_stay_few_whatever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_meter, "MOST_ROUTES", 3)
    meter = HttpMeter()
    for number in range(100):
        meter.record(f"METHOD{number}", f"/{number}", 200, 0.1)

    samples = read(FakePlane(), meter)

    requests = {k: n for k, n in samples.items() if k[0] == "rookery_http_requests_total"}
    assert {dict(labels)["route"] for _, labels in requests} == {"/0", "/1", "/2", "other"}
    assert {dict(labels)["method"] for _, labels in requests} == {"other"}
    assert sum(requests.values()) == 100


def test_clients_of_the_stream_are_asked_for_when_they_are_told() -> None:
    meter = HttpMeter()
    assert value(read(FakePlane(), meter), "rookery_stream_clients") == 0
    meter.stream_clients = lambda: 2
    assert value(read(FakePlane(), meter), "rookery_stream_clients") == 2


def test_no_request_is_lost_among_threads_that_count_and_read() -> None:
    meter = HttpMeter()

    def work() -> None:
        for number in range(500):
            meter.record("GET", f"/{number % 7}", 200, 0.001)
            if number % 100 == 0:
                read(FakePlane(), meter)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    requests = [n for k, n in read(FakePlane(), meter).items() if "requests_total" in k[0]]
    assert sum(requests) == 2000


# --- the middleware ------------------------------------------------------------------------------


def make_app() -> FastAPI:
    router = APIRouter(prefix="/runs")

    @router.get("/{run}/artifacts/{path:path}")
    def artifact(run: str, path: str) -> str:
        return run + path

    @router.get("/{run}/boom")
    def boom(run: str) -> None:
        raise RuntimeError(run)

    async def mcp(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = FastAPI()
    api = APIRouter(prefix="/api/v1")
    api.include_router(router)
    app.include_router(api)
    app.get("/healthz")(lambda: "ok")
    app.mount("/mcp", mcp)
    return app


def call(app: Any, path: str, method: str = "GET") -> int:
    """The status of one request, as a server would make it; 0 if there was none."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
        "root_path": "",
        "scheme": "http",
        "server": ("localhost", 80),
        "http_version": "1.1",
    }
    asyncio.run(asyncio.wait_for(app(scope, receive, send), 30))
    return statuses[0] if statuses else 0


@pytest.mark.parametrize(
    ("path", "status", "route"),
    [
        ("/healthz", 200, "/healthz"),
        (
            "/api/v1/runs/secret-run/artifacts/a/b.zip",
            200,
            "/api/v1/runs/{run}/artifacts/{path:path}",
        ),
        ("/mcp/secret", 202, "/mcp"),
        ("/secret/nowhere", 404, "other"),
        ("/mcpsecret", 404, "other"),
    ],
)
def test_a_request_is_counted_under_its_template(path: str, status: int, route: str) -> None:
    meter = HttpMeter()

    assert call(Metered(make_app(), meter), path) == status

    samples = read(FakePlane(), meter)
    labels = {"method": "GET", "route": route, "status": str(status)}
    assert value(samples, "rookery_http_requests_total", **labels) == 1
    assert value(samples, "rookery_http_request_seconds_count", route=route) == 1
    assert not any("secret" in text for _, found in samples for _, text in found)


async def raises_at_once(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError


@pytest.mark.parametrize(
    ("app", "route"),
    [(make_app(), "/api/v1/runs/{run}/boom"), (raises_at_once, "other")],
    ids=["after an answer", "without one"],
)
def test_an_app_that_raises_is_counted_once_as_500(app: Any, route: str) -> None:
    meter = HttpMeter()

    with pytest.raises(RuntimeError):
        call(Metered(app, meter), "/api/v1/runs/x/boom")

    samples = read(FakePlane(), meter)
    requests = {k: n for k, n in samples.items() if k[0] == "rookery_http_requests_total"}
    labels = {"method": "GET", "route": route, "status": "500"}
    assert requests == {("rookery_http_requests_total", frozenset(labels.items())): 1}


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
def test_what_is_no_request_passes_through(kind: str) -> None:
    meter, seen = HttpMeter(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["type"], receive, send))

    receive: Any = object()
    send: Any = object()
    asyncio.run(Metered(app, meter)({"type": kind, "path": "/"}, receive, send))

    assert seen == [(kind, receive, send)]
    requests = [k for k in read(FakePlane(), meter) if "requests_total" in k[0]]
    assert requests == []
