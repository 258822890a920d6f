"""The OpenAPI document is true: whatever is sent gets an answer that is written down in it.

A real server over a real socket is asked by schemathesis: by what fits the document and by what
does not, for runs that exist and for runs that don't.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import hypothesis
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from rookery.config.reading import build
from rookery.control.settings import ServerSettings, Settings
from rookery.control.tokens import TokenStore
from rookery.errors import InputError
from rookery.server.app import build_app
from rookery.server.control_plane import ControlPlane
from rookery.server.sandbox import Sandbox
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec, spec_to_json
from rookery.testing.owner import control_plane_of

SEAT = SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))
SPEC = EnvironmentSpec("CartPole-v1", {"player_0": SEAT})
CONFIG = {"environment": {"id": "CartPole-v1"}}
UNLIMITED = ServerSettings(requests_per_s=1e6, burst=10**6, changes_per_s=1e6, change_burst=10**6)
RUN = "/api/v1/runs/{run}"
JUDGED = {  # where something that fits the document may still be refused, for what it means
    "GET /api/v1/runs",
    "POST /api/v1/runs",
    "GET /api/v1/environment",
    f"GET {RUN}/ladder",
    f"GET {RUN}/metrics",
    f"POST {RUN}/set-hyperparameters",
    f"POST {RUN}/set-seat-map",
    f"POST {RUN}/evaluate",
    f"POST {RUN}/play-match",
    "POST /api/v1/tickets",
}
FEW, MANY = 4, 200
WAIT_S = 20.0


class Imagined(Sandbox):
    """Knows one environment without looking."""

    async def check(self, order: Mapping[str, Any]) -> dict[str, Any]:
        if order.get("config", order)["environment"]["id"] != SPEC.id:
            raise InputError("unknown environment")
        return spec_to_json(SPEC)


class Served:
    """A server and its document."""

    def __init__(self, plane: ControlPlane, url: str, token: str) -> None:
        self.plane, self.url = plane, url
        self.headers = {"Authorization": f"Bearer {token}"}
        answer = httpx2.get(f"{url}/api/v1/openapi.json", headers=self.headers)
        self.schema = schemathesis.openapi.from_dict(answer.json())
        self.schema.config.update(base_url=url, headers=self.headers)
        self.operations = [
            found.ok() for found in self.schema.get_all_operations() if isinstance(found, Ok)
        ]

    def new_run(self) -> str:
        """A run that is there and has a file."""
        run = f"run-{len(self.plane.follower.states)}"
        self.plane.home.create(build(CONFIG), SPEC, "ann", run)
        logs = self.plane.home.run_dir(run) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "learner-0.log").write_bytes(b"a log")
        deadline = time.monotonic() + WAIT_S
        while run not in self.plane.follower.states:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return run


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = tmp_path_factory.mktemp("served") / "home"
    settings = Settings(server=UNLIMITED)
    with control_plane_of(path, settings, lambda home: Imagined(home.environment)) as plane:
        tokens = TokenStore(path / "tokens.json")
        app = build_app(plane, tokens, settings, make_mcp=None)
        server = uvicorn.Server(
            uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="on")
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            deadline = time.monotonic() + WAIT_S
            while not server.started:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            port = server.servers[0].sockets[0].getsockname()[1]
            token = tokens.create("admin", None, "tester").token
            yield Served(plane, f"http://127.0.0.1:{port}", token)
        finally:
            server.should_exit = True
            thread.join(WAIT_S)
            assert not thread.is_alive()


def check(served: Served, operation: Any, examples: int) -> None:
    """Every answer to an operation is one that the document has."""
    known = {"run": served.new_run(), "path": "logs/learner-0.log"}
    places = {parameter.name for parameter in operation.path_parameters}
    path = {name: text for name, text in known.items() if name in places}
    ask(operation, operation.as_strategy(GenerationMode.POSITIVE), examples)
    if path:
        with_run = operation.as_strategy(GenerationMode.POSITIVE, path_parameters=path)
        ask(operation, with_run, examples)
    if _can_be_wrong(operation):
        ask(operation, operation.as_strategy(GenerationMode.NEGATIVE), examples)


def ask(operation: Any, cases: Any, examples: int) -> None:
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def one(case: Any) -> None:
        excluded = [ignored_auth]  # cannot tell our token from one that it made up
        if operation.label in JUDGED or "Idempotency-Key" in (case.headers or {}):
            excluded.append(positive_data_acceptance)
        case.call_and_validate(timeout=WAIT_S, excluded_checks=excluded)

    one()


def _can_be_wrong(operation: Any) -> bool:
    """Whether there is anything to say besides the token."""
    names = {parameter.name for parameter in operation.iter_parameters()}
    return bool(names - {"Authorization"} or operation.body)


def check_all(served: Served, examples: int) -> None:
    failures = {}
    for operation in served.operations:
        try:
            check(served, operation, examples)
        except FailureGroup as failure:
            failures[operation.label] = str(failure)
    assert not failures, "\n".join(f"{label}\n{text}" for label, text in failures.items())


def test_every_answer_is_in_the_document(served: Served) -> None:
    check_all(served, FEW)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_answer_is_in_the_document_in_full_count(served: Served) -> None:
    check_all(served, MANY)


def test_nothing_but_the_health_checks_answers_without_a_token(served: Served) -> None:
    open_to_all = {"GET /healthz", "GET /readyz"}
    for operation in served.operations:
        path = operation.path.replace("{run}", "a").replace("{path}", "a").replace("{token}", "a")
        answer = httpx2.request(operation.method.upper(), served.url + path)
        assert (answer.status_code == 401) == (operation.label not in open_to_all), operation.label


def test_every_operation_has_a_name_a_text_and_all_refusals(served: Served) -> None:
    operations = [
        operation
        for path in served.schema.raw_schema["paths"].values()
        for operation in path.values()
    ]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    for operation in operations:
        assert operation["description"], operation["operationId"]
        for status in ("400", "401", "403", "422", "429"):
            content = operation["responses"][status]["content"]
            assert list(content) == ["application/problem+json"], operation["operationId"]
