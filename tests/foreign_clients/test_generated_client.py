"""A client that openapi-python-client makes of our OpenAPI document, used against a true server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import Cli, Served
from tests.foreign_clients.assistants import output
from tests.foreign_clients.packages import python_with

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

START_S = 900.0  # until a busy machine trains
STEPS = Path(__file__).with_name("generated_steps.py")
GROUP = "tries"
NONE_HERE = ("show_ladder", "show_sweep")  # nobody has played there, or searched
CONFIG = {"environment": {"id": "CartPole-v1"}, "stop": {"steps": 1_000_000_000}}


class Generated:
    """The client of one server's document."""

    def __init__(self, server: Served, folder: Path) -> None:
        self._python = python_with("openapi-python-client")
        self._server, self._folder = server, folder
        answer = httpx2.get(f"{server.url}/api/v1/openapi.json", headers=server.headers, timeout=60)
        self.document: dict[str, Any] = answer.json()
        (folder / "openapi.json").write_text(answer.text)
        path = f"{self._python.parent}{os.pathsep}{os.environ['PATH']}"  # it calls its own ruff
        made = output(
            [
                *("env", f"PATH={path}", str(self._python.parent / "openapi-python-client")),
                *("generate", "--path", str(folder / "openapi.json"), "--fail-on-warning"),
                *("--output-path", str(folder / "client")),
            ],
            server.cli,
        )
        assert made.returncode == 0, made.stdout + made.stderr

    def ask(self, *operations: list[Any]) -> list[Any]:
        words = [str(self._folder / "client"), self._server.url, self._server.token]
        argv = [str(self._python), "-W", "error", str(STEPS), *words]
        done = output(argv, self._server.cli, json.dumps(operations))
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(done.stdout)
        return found

    def readings(self, run: str) -> Iterator[list[Any]]:
        """Every operation that only looks, with what it needs."""
        known = {"run": run, "file": "learner-0.1.log", "id": "CartPole-v1"}
        known |= {"group": GROUP, "sweep": "last"}
        known["path"] = "logs/learner-0.1.log"
        for methods in self.document["paths"].values():
            if (looks := methods.get("get")) is not None:
                needs = [p["name"] for p in looks.get("parameters", ()) if p.get("required")]
                yield [looks["operationId"], {name: known[name] for name in needs}]


def test_a_generated_client_creates_steers_reads_and_is_refused(cli: Cli, tmp_path: Path) -> None:
    server = cli.serve()
    client = Generated(server, tmp_path)

    (made,) = client.ask(["create_run", {"body": {"config": CONFIG, "group": GROUP}}])
    assert (made["status"], made["model"]) == (201, "Answer")
    run = made["data"]["run"]

    def trains() -> bool:
        return bool(server.api("GET", f"/runs/{run}")["env_steps"] > 1000)

    server.wait_until(trains, "1,000 trained steps", START_S)

    page, scaled, again, paused, resumed = client.ask(
        ["list_runs", {"status": "running"}],
        ["scale_actors", {"run": run, "body": {"count": 2}, "idempotency_key": "once"}],
        ["scale_actors", {"run": run, "body": {"count": 2}, "idempotency_key": "once"}],
        ["pause", {"run": run, "body": {"reason": "to look"}}],
        ["resume", {"run": run}],
    )
    assert [row["run"] for row in page["data"]["runs"]] == [run]
    assert scaled["data"]["effect"] == "actors 1 -> 2: 1 process starts"
    assert again["data"]["command"] == scaled["data"]["command"]
    assert [paused["data"]["outcome"], resumed["data"]["outcome"]] == ["accepted", "accepted"]

    for found in client.ask(
        ["show_run", {"run": "nobodys"}],
        ["scale_actors", {"run": run, "body": {"count": 2000}}],
        ["create_run", {"body": {"config": {"environment": {"id": "CartPol-v1"}}}}],
    ):
        assert found["model"] == "Problem" and found["data"]["status"] == found["status"] >= 400

    asked = list(client.readings(run))
    for (name, _), found in zip(asked, client.ask(*asked), strict=True):
        assert found["status"] == 200 or name in NONE_HERE, (name, found)
    assert len(asked) > 20

    (stopped,) = client.ask(["stop", {"run": run, "body": {"reason": "enough"}}])
    assert stopped["data"]["outcome"] == "accepted"
