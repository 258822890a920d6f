"""REST over a real plane: a home on disk, a follower, and an owner that answers without workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.responses import Response
from starlette.testclient import TestClient

from rookery.config.reading import build
from rookery.control.actions import ACTIONS
from rookery.control.home import Home
from rookery.control.settings import Allow, Settings
from rookery.control.tokens import Scope, Token, TokenStore
from rookery.errors import BusError
from rookery.messages import (
    PauseRun,
    RunEnded,
    RunOwned,
    ScaleActors,
)
from rookery.server.app import build_app
from rookery.server.control_plane import ControlPlane
from rookery.server.feed.follower import Follower
from rookery.server.mcp.http import McpDoor
from rookery.server.sandbox import Sandbox
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec
from rookery.testing.owner import StandInOwner, control_plane_of

SEAT = SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))
SOLO = EnvironmentSpec("CartPole-v1", {"player_0": SEAT})
BOARD = SeatSpec((Leaf("", "box", (3, 3, 2), "bool"),), Categorical(9), masked=True)
TIC_TAC_TOE = EnvironmentSpec(
    "pgx:tic_tac_toe",
    {"player_0": BOARD, "player_1": BOARD},
    compiled=True,
    can_save=True,
    simultaneous=False,
)
PROBLEM = "application/problem+json"


def wait_for(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
    return found


class Stage:
    """A server in this process, and what a test does with it."""

    def __init__(
        self, home: Home, plane: ControlPlane, tokens: TokenStore, client: TestClient
    ) -> None:
        self.home, self.plane, self.tokens, self.client = home, plane, tokens, client
        self._texts = {scope: tokens.create(scope, None, f"{scope}er").token for scope in SCOPES}

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        scope: Scope | None = "admin",
        headers: dict[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Any:
        sent = {"Authorization": f"Bearer {self._texts[scope]}"} if scope else {}
        content: dict[str, Any] = {} if body is None else {"json": body}
        if raw is not None:
            sent["Content-Type"], content = "application/json", {"content": raw}
        path = path if path.startswith("/") else f"/api/v1/{path}"
        return self.client.request(method, path, headers={**sent, **(headers or {})}, **content)

    def got(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def create(self, run: str, spec: EnvironmentSpec = SOLO, **layers: Any) -> str:
        """A run in the log, without looking at its environment."""
        config = build({"environment": {"id": spec.id}, **layers})
        self.home.create(config, spec, "ann", run)
        wait_for(lambda: run in self.plane.follower.states)
        return run

    def commands(self, run: str | None = None) -> list[dict[str, Any]]:
        path = "audit" if run is None else f"runs/{run}/audit"
        found: list[dict[str, Any]] = self.got(path)["entries"]
        return found


SCOPES: tuple[Scope, ...] = ("read", "operate", "admin")


@contextlib.contextmanager
def staged(
    path: Path, settings: Settings | None = None, owned: bool = True, deadline_s: float = 60.0
) -> Iterator[Stage]:
    settings = settings or Settings()

    def look(home: Home) -> Sandbox:
        return Sandbox(home.environment, deadline_s)

    with control_plane_of(path, settings, look, owned) as plane:
        tokens = TokenStore(path / "tokens.json")
        app = build_app(plane, tokens, settings, make_mcp=None)
        place = f"http://127.0.0.1:{settings.server.port}"
        with TestClient(app, base_url=place, raise_server_exceptions=False) as client:
            yield Stage(plane.home, plane, tokens, client)


@pytest.fixture
def stage(home: Path) -> Iterator[Stage]:
    with staged(home) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One for all tests that change nothing: a run, and a game."""
    with staged(tmp_path_factory.mktemp("shared") / "home") as made:
        made.create("a-run")
        made.create("a-game", TIC_TAC_TOE)
        yield made


def detail(answer: Any, status: int) -> str:
    """What a refusal says; every one has the same shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    found = answer.json()
    assert found["status"] == status
    text: str = found["detail"]
    assert "\n" not in text
    return text


# --- health and refusals -------------------------------------------------------------------------


def test_health_needs_no_token_and_everything_else_does(shared: Stage) -> None:
    assert shared.ask("GET", "/healthz", scope=None).json() == {"status": "ok"}
    assert shared.ask("GET", "/readyz", scope=None).json() == {"status": "ok"}
    for path in ("runs", "openapi.json", "/metrics", "nothing"):
        detail(shared.ask("GET", path, scope=None), 401)


def test_it_is_not_ready_before_the_log_was_read_or_while_it_cannot_be(
    shared: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Follower, "trouble", "the broker is away")
    answer = shared.ask("GET", "/readyz", scope=None)
    assert (answer.status_code, answer.json()) == (503, {"status": "starting"})


class Never(threading.Event):
    """Not even when it is set."""

    def is_set(self) -> bool:
        return False


def test_nothing_is_said_of_runs_before_they_are_known(
    shared: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared.plane.follower, "ready", Never())
    for path in ("runs", "runs/a-run", "runs/last/events"):
        assert "starting" in detail(shared.ask("GET", path), 503)
    assert "starting" in detail(shared.ask("POST", "runs/a-run/stop"), 503)
    assert "starting" in detail(shared.ask("POST", "runs", {"config": {}}), 503)
    assert shared.ask("GET", "/readyz", scope=None).json() == {"status": "starting"}


def test_what_is_not_there_is_a_problem(shared: Stage) -> None:
    assert "nothing at" in detail(shared.ask("GET", "nothing"), 404)
    for path, word in {
        "runs/a-run/puase": "pause",
        "runs/a-run/metrcs": "metrics",
        "rnus/a-run/metrics": "runs",
        "rnus": "runs",
        "enviroments": "environments",
    }.items():
        assert f"did you mean {word}?" in detail(shared.ask("GET", path), 404)
    answer = shared.ask("PUT", "runs", {})
    assert answer.headers["allow"] == "GET, HEAD, POST"
    assert "GET, HEAD, POST" in detail(answer, 405)


def test_a_name_or_choice_that_there_is_not_is_refused_with_the_nearest(stage: Stage) -> None:
    stage.create("a-run")
    scaled = stage.ask("POST", "runs/a-run/scale-actors", {"count": 2, "reasn": "x"})
    assert detail(scaled, 422) == "unknown key 'reasn'; did you mean reason?"
    wrong = stage.ask("POST", "tokens", {"scope": "opperate"})
    assert detail(wrong, 422).endswith("; did you mean operate?")
    listed = detail(stage.ask("GET", "runs?status=runing"), 422)
    assert listed.startswith("query.status: input should be 'created'")
    assert listed.endswith("; did you mean running?")
    gone = detail(stage.ask("DELETE", "runs/a-run?dryrun=true"), 422)
    assert gone == "unknown parameter 'dryrun'; did you mean dry_run? There are: dry_run, reason."
    assert stage.got("runs/a-run")["run"] == "a-run"
    assert stage.ask("GET", "/metrics?now=1").status_code == 200


def test_a_path_that_takes_several_methods_allows_them_all(shared: Stage) -> None:
    assert shared.ask("PATCH", "runs/some-run", {}).headers["allow"] == "DELETE, GET, HEAD"


@pytest.mark.parametrize(
    "raw",
    [b"{", b'{"config": NaN}', b'{"config": {"a": Infinity}}', b'{"config": {"a": "\\ud800"}}'],
)
def test_json_is_read_as_the_standard_has_it(shared: Stage, raw: bytes) -> None:
    assert "not valid JSON" in detail(shared.ask("POST", "runs", raw=raw), 400)


def test_a_bus_that_is_away_is_a_reason_to_try_again(
    shared: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise BusError("the broker does not answer")

    monkeypatch.setattr(ControlPlane, "detail", fail)
    answer = shared.ask("GET", "runs/a-run")
    assert detail(answer, 503) == "the broker does not answer"
    assert answer.headers["retry-after"]


def test_a_bug_tells_nobody_its_story(shared: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(ControlPlane, "detail", fail)
    assert "secret" not in detail(shared.ask("GET", "runs/a-run"), 500)


@pytest.mark.parametrize(
    "path",
    [
        "runs?limit=0",
        "runs?limit=1001",
        "runs?limit=1e2",
        "runs?limit=ten",
        "runs?cursor=x",
        "events?after=-2",
        "events?after=99999999999999999999",
        "runs/a-run/metrics?points=0",
        "runs/a-run/metrics?points=10001",
        "runs/a-run/metrics?start=-1",
        "environments?offset=-1",
        "environments?search=" + 201 * "x",
        "environment?id=",
        "environment?id=" + 201 * "x",
    ],
)
def test_parameters_have_limits(shared: Stage, path: str) -> None:
    assert path.partition("?")[2].partition("=")[0] in detail(shared.ask("GET", path), 422)


# --- scopes --------------------------------------------------------------------------------------


def test_who_may_read_may_not_act_and_who_may_act_may_not_delete(stage: Stage) -> None:
    stage.create("a-run")
    for path in ("runs", "runs/a-run", "runs/a-run/audit", "audit", "events", "environments"):
        assert stage.ask("GET", path, scope="read").status_code == 200
    assert "scope operate" in detail(stage.ask("POST", "runs/a-run/stop", scope="read"), 403)
    assert "scope operate" in detail(stage.ask("POST", "runs", {"config": {}}, scope="read"), 403)
    assert stage.ask("POST", "runs/a-run/stop", scope="operate").status_code == 200
    detail(stage.ask("DELETE", "runs/a-run", scope="operate"), 403)
    detail(stage.ask("POST", "runs/a-run/delete", scope="operate"), 403)
    detail(stage.ask("GET", "tokens", scope="operate"), 403)
    detail(stage.ask("POST", "tokens", {"scope": "read"}, scope="operate"), 403)
    assert [c["kind"] for c in stage.commands("a-run")] == ["create_run", "stop_run"]


# --- reading -------------------------------------------------------------------------------------


def test_runs_are_listed_newest_first_in_pages_that_hold_each_once(stage: Stage) -> None:
    names = [stage.create(f"run-{i}") for i in range(5)]
    found, cursor = [], ""
    for size in (2, 2, 1):
        page = stage.got(f"runs?limit=2&cursor={cursor}")
        assert len(page["runs"]) == size
        found += [row["run"] for row in page["runs"]]
        cursor = page["next"] or ""
    assert (found, cursor) == (names[::-1], "")


def test_a_page_holds_its_place_though_runs_come_and_go(stage: Stage) -> None:
    for i in range(4):
        stage.create(f"run-{i}")
    page = stage.got("runs?limit=2")
    assert stage.ask("DELETE", "runs/run-2").status_code == 200
    stage.create("run-4")
    rest = stage.got(f"runs?limit=2&cursor={page['next']}")
    assert [row["run"] for row in rest["runs"]] == ["run-1", "run-0"]


def test_a_page_after_a_run_that_nobody_knows_goes_by_the_time(stage: Stage) -> None:
    first, second = stage.create("run-0"), stage.create("run-1")
    created = {row["run"]: int(row["created_s"] * 1e6) for row in stage.got("runs")["runs"]}
    for time_us, found in ((0, []), (created[second], [first]), (10**17, [second, first])):
        page = stage.got(f"runs?cursor={time_us}-no-run")
        assert [row["run"] for row in page["runs"]] == found


def test_runs_are_listed_by_status_and_environment(stage: Stage) -> None:
    stage.create("one")
    stage.create("two", TIC_TAC_TOE)
    assert stage.ask("POST", "runs/one/start").status_code == 200
    assert [r["run"] for r in stage.got("runs?status=queued")["runs"]] == ["one"]
    assert [r["run"] for r in stage.got("runs?environment=pgx:tic_tac_toe")["runs"]] == ["two"]
    assert stage.got("runs?status=queued&environment=pgx:tic_tac_toe")["runs"] == []


def test_runs_are_found_sorted_grouped_and_counted(stage: Stage) -> None:
    for seed, tags in ((2, ["nightly"]), (10, ["nightly", "good"]), (1, [])):
        labels = {"name": f"try {seed}", "tags": tags, "notes": "a note"}
        config = {**CARTPOLE["config"], "seed": seed}
        made = {"config": config, "start": False, **labels}
        assert stage.ask("POST", "runs", made).status_code == 201

    def names(query: str) -> list[str]:
        return [row["name"] for row in stage.got(f"runs?{query}")["runs"]]

    assert names("search=note%20seed%3E1") == ["try 10", "try 2"]
    assert names("tag=good") == ["try 10"]
    assert names("sort=seed&order=asc&offset=1") == ["try 2", "try 10"]
    page = stage.got("runs?sort=seed&order=asc&limit=2&columns=seed&search=nightly")
    assert [row["config"] for row in page["runs"]] == [{"seed": 2}, {"seed": 10}]
    assert (page["total"], page["home_total"], page["next"]) == (2, 3, None)
    page = stage.got("runs?group=tag&limit=3")
    assert page["groups"] == [
        {"group": "good", "runs": 1},
        {"group": "nightly", "runs": 2},
        {"group": "none", "runs": 1},
    ]
    rest = stage.got(f"runs?group=tag&limit=3&cursor={page['next']}")
    assert [(row["under"], row["name"]) for row in rest["runs"]] == [("none", "try 1")]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("status=nope", "status"),
        ("sort=sed", "did you mean seed"),
        ("order=up", "order"),
        ("stauts=running", "stauts"),
        ("search=" + "a%20" * 21, "leave some out"),
    ],
)
def test_a_query_that_cannot_be_is_refused(stage: Stage, query: str, words: str) -> None:
    stage.create("a-run")
    assert words in detail(stage.ask("GET", f"runs?{query}"), 422)


def test_a_run_is_labelled_when_it_is_created(stage: Stage) -> None:
    labels = {"name": "baseline", "tags": ["a", "b"], "notes": "why"}
    run = stage.ask("POST", "runs", {**CARTPOLE, "start": False, **labels}).json()["run"]
    found = stage.got("runs/baseline")  # a name that it alone has
    assert {key: found[key] for key in ("run", *labels)} == {"run": run, **labels}
    for wrong in ({"tags": ["a b"]}, {"name": 101 * "x"}, {"tags": 21 * ["x"]}):
        (key,) = wrong
        assert key in detail(stage.ask("POST", "runs", {**CARTPOLE, **wrong}), 422)


def test_the_list_is_made_from_memory_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("the disk was asked")

    stage.create("one")
    for name in ("states", "state", "read_run_bus", "config"):
        monkeypatch.setattr(Home, name, fail)
    assert len(stage.got("runs")["runs"]) == 1


def test_a_run_is_found_by_a_unique_prefix_and_as_last(stage: Stage) -> None:
    stage.create("cartpole-aaaaa")
    stage.create("cartpole-bbbbb")
    assert stage.got("runs/cartpole-a")["run"] == "cartpole-aaaaa"
    assert stage.got("runs/last")["run"] == "cartpole-bbbbb"
    assert "ambiguous" in detail(stage.ask("GET", "runs/cartpole"), 404)
    assert "cartpole-aaaaa" in detail(stage.ask("GET", "runs/cartpole-aaabb"), 404)
    detail(stage.ask("GET", "runs/-x"), 422)


def test_a_run_at_a_glance(shared: Stage) -> None:
    found = shared.got("runs/a-run")
    assert found["status"] == "created"
    assert found["balance"] == {
        "produced": 0,
        "trained": 0,
        "dropped": {},
        "in_flight": 0,
        "exact": True,
    }
    assert found["hyperparameters"]["algorithm.learning_rate"] == 0.002
    assert (found["max_actors"], found["queue_position"]) == (16, None)


def test_the_config_is_shown_as_it_is_now(stage: Stage) -> None:
    stage.create("a-run")
    stage.ask("POST", "runs/a-run/scale-actors", {"count": 3})
    stage.ask("POST", "runs/a-run/set-hyperparameters", {"values": {"algorithm.gamma": 0.5}})
    found = stage.got("runs/a-run/config")
    assert (found["actors"]["count"], found["algorithm"]["gamma"]) == (3, 0.5)


def test_the_config_of_a_run_that_was_scaled_to_nobody_can_be_used_again(stage: Stage) -> None:
    stage.create("a-run", actors={"count": 2})
    assert stage.ask("POST", "runs/a-run/scale-actors", {"count": 0}).status_code == 200
    found = stage.got("runs/a-run/config")
    assert found["actors"]["count"] == 2
    again = stage.ask("POST", "runs?dry_run=true", {"config": found})
    assert again.json()["outcome"] == "would_accept"


def test_every_other_view_of_a_new_run_answers(shared: Stage) -> None:
    assert shared.got("runs/a-run/why")["status"] == "created"
    assert shared.got("runs/a-run/metrics?names=mean_return_100&points=10")["points"] == 0
    assert "no checkpoint" in detail(shared.ask("GET", "runs/a-run/ladder"), 422)


def test_events_come_in_pages(stage: Stage) -> None:
    stage.create("a-run")
    stage.create("another")
    wait_for(lambda: stage.plane.follower.states["a-run"].answered)
    stage.home.record(*(RunOwned(run="a-run", pid=i) for i in range(5)))
    wait_for(lambda: len(stage.got("runs/a-run/events")["entries"]) == 6)
    first = stage.got("runs/a-run/events?limit=4")
    rest = stage.got(f"runs/a-run/events?limit=4&after={first['next']}")
    entries = first["entries"] + rest["entries"]
    assert rest["next"] is None
    assert [e["kind"] for e in entries] == ["command_accepted"] + 5 * ["run_owned"]
    assert [e["data"]["pid"] for e in entries[1:]] == list(range(5))
    assert {e["run"] for e in stage.got("events")["entries"]} == {"a-run", "another"}


def test_what_can_be_named_is_listed(shared: Stage) -> None:
    found = shared.got("environments?search=cartpole&limit=1")
    assert found["environments"][0]["id"] == "CartPole-v1"
    assert found["total"] >= 1
    assert "ppo" in shared.got("algorithms")["algorithms"]
    assert "script" in {player["kind"] for player in shared.got("players")["players"]}
    assert shared.got("schema")["properties"]["environment"]
    text = shared.ask("GET", "/metrics")
    assert text.headers["content-type"].startswith("text/plain")
    assert "rookery_runs" in text.text


# --- acting --------------------------------------------------------------------------------------


def test_every_action_has_a_route_with_its_text_and_its_fields(shared: Stage) -> None:
    document = shared.got("openapi.json")
    for action in ACTIONS:
        route = document["paths"][f"/api/v1/runs/{{run}}/{action.name}"]["post"]
        assert route["description"] == action.doc
        schema = route["requestBody"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rpartition("/")[2]
        assert "reason" in document["components"]["schemas"][name]["properties"]


def test_an_action_is_accepted_and_audited(stage: Stage) -> None:
    stage.create("a-run")
    body = {"count": 4, "reason": "it is slow"}
    answer = stage.ask("POST", "runs/a-run/scale-actors", body, scope="operate")
    assert answer.status_code == 200
    found = answer.json()
    assert (found["outcome"], found["kind"], found["run"]) == ("accepted", "scale_actors", "a-run")
    assert found["effect"] == "actors 1 -> 4 when it is started"
    entry = stage.commands("a-run")[-1]
    assert entry["command"] == found["command"]
    assert (entry["author"], entry["origin"], entry["reason"]) == (
        "operateer",
        "network",
        "it is slow",
    )
    assert (entry["outcome"], entry["data"]) == ("accepted", {"count": 4})


def test_a_rejected_action_says_why(stage: Stage) -> None:
    stage.create("a-run")
    answer = stage.ask("POST", "runs/a-run/pause")
    assert detail(answer, 409) == "run a-run does not run: start it first"
    assert answer.json()["outcome"] == "rejected"
    entry = stage.commands("a-run")[-1]
    assert (entry["outcome"], entry["why"]) == ("rejected", answer.json()["detail"])


def test_an_action_waits_where_nobody_carries_the_run(home: Path) -> None:
    with staged(home, owned=False) as stage:
        stage.create("a-run")
        answer = stage.ask("POST", "runs/a-run/start")
        assert (answer.status_code, answer.json()["outcome"]) == (202, "waiting")
        assert stage.commands("a-run")[-1]["outcome"] == "waiting"
        with StandInOwner(stage.home):
            wait_for(lambda: stage.commands("a-run")[-1]["outcome"] == "accepted")


def test_a_dry_run_says_what_would_be_and_leaves_no_trace(stage: Stage) -> None:
    stage.create("a-run")
    path = "runs/a-run/scale-actors?dry_run=true"
    found = stage.ask("POST", path, {"count": 4}).json()
    assert (found["outcome"], found["effect"]) == (
        "would_accept",
        "actors 1 -> 4 when it is started",
    )
    refused = stage.ask("POST", path, {"count": 1000}).json()
    assert (refused["outcome"], refused["effect"]) == ("would_reject", "")
    assert "above the limit" in refused["why"]
    assert stage.ask("DELETE", "runs/a-run?dry_run=true").json()["outcome"] == "would_accept"
    assert [c["kind"] for c in stage.commands()] == ["create_run"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"algorithm.learning_rate": 7}, "learning_rate: input should be less than or equal to 1"),
        ({"algorithm.learning_rte": 0.1}, "did you mean algorithm.learning_rate"),
        ({"algorithm.epochs": 3}, "unknown live hyperparameter"),
        ({}, "values"),
        ({"algorithm.gamma": "high"}, "values.algorithm.gamma"),
    ],
)
def test_hyperparameters_are_judged_before_they_are_sent(
    shared: Stage, values: dict[str, Any], words: str
) -> None:
    answer = shared.ask("POST", "runs/a-run/set-hyperparameters", {"values": values})
    assert words in detail(answer, 422)
    assert [c["kind"] for c in shared.commands()] == 2 * ["create_run"]


def test_the_same_key_acts_once_and_another_request_may_not_have_it(stage: Stage) -> None:
    stage.create("a-run")
    key = {"Idempotency-Key": "k 1"}

    def scale(count: int, scope: Scope = "operate") -> Any:
        body = {"count": count}
        return stage.ask("POST", "runs/a-run/scale-actors", body, scope=scope, headers=key)

    first, again = scale(2), scale(2)
    assert first.json() == again.json()
    assert "another request" in detail(scale(3), 422)
    assert scale(3, scope="admin").status_code == 200
    assert [c["data"] for c in stage.commands("a-run")[1:]] == [{"count": 2}, {"count": 3}]


def test_a_key_is_known_to_the_next_server(home: Path) -> None:
    key = {"Idempotency-Key": "once"}
    with staged(home) as stage:
        stage.create("a-run")
        text = stage._texts["operate"]
        first = stage.ask("POST", "runs/a-run/pause", scope="operate", headers=key)
        detail(first, 409)
    with staged(home) as stage:
        stage._texts["operate"] = text
        again = stage.ask("POST", "runs/a-run/pause", scope="operate", headers=key)
        assert again.json() == first.json()
        other = stage.ask("POST", "runs/a-run/stop", scope="operate", headers=key)
        assert "another request" in detail(other, 422)
        assert [c["kind"] for c in stage.commands("a-run")] == ["create_run", "pause_run"]


@pytest.mark.parametrize("key", ["", "x" * 129, "tab\tkey"])
def test_a_key_is_of_printable_characters(shared: Stage, key: str) -> None:
    detail(shared.ask("POST", "runs/a-run/stop", headers={"Idempotency-Key": key}), 422)


def test_a_deleted_run_is_gone(stage: Stage) -> None:
    stage.create("a-run")
    assert stage.ask("DELETE", "runs/a-run?reason=old").status_code == 200
    detail(stage.ask("GET", "runs/a-run"), 404)
    assert stage.got("runs")["runs"] == []
    assert stage.commands()[-1]["reason"] == "old"


# --- players -------------------------------------------------------------------------------------


def test_new_seats_go_over_those_that_the_run_has(stage: Stage) -> None:
    stage.create("a-game", TIC_TAC_TOE, seats={"player_0": "main", "player_1": "script:random"})
    body = {"seats": {"player_1": "script:first-legal"}}
    answer = stage.ask("POST", "runs/a-game/set-seat-map", body)
    assert answer.status_code == 200, answer.text
    assert stage.commands("a-game")[-1]["data"] == {
        "seats": {"player_1": "script:first-legal", "player_0": "main"}
    }
    assert answer.json()["effect"].startswith("player_1: script:random -> script:first-legal")


def test_whoever_cannot_play_is_refused_before_the_run_hears_of_it(shared: Stage) -> None:
    path = "runs/a-game/set-seat-map"
    unknown = shared.ask("POST", path, {"seats": {"player_1": "script:randm"}})
    assert "did you mean random" in detail(unknown, 422)
    match = shared.ask("POST", "runs/a-game/play-match", {"a": "nobodys", "b": "script:random"})
    assert "a: unknown run 'nobodys'" in detail(match, 422)
    nowhere = shared.ask("POST", path, {"seats": {"player_7": "script:random"}})
    assert "player_7" in detail(nowhere, 422)
    assert [c["kind"] for c in shared.commands()] == 2 * ["create_run"]


@pytest.mark.parametrize(
    ("action", "body"),
    [
        ("set-seat-map", {"seats": {"player_1": "engine:stockfish"}}),
        ("set-seat-map", {"seats": {"*": {"draw": [{"player": "script:os:system", "weight": 1}]}}}),
        ("play-match", {"a": "onnx:/etc/passwd", "b": "script:random"}),
        ("play-match", {"a": "script:random", "b": "script:os:system"}),
        ("evaluate", {"player": "engine:sh"}),
    ],
)
@pytest.mark.parametrize("dry", ["", "?dry_run=true"])
def test_players_that_name_code_programs_or_files_need_the_owners_word(
    shared: Stage, action: str, body: dict[str, Any], dry: str
) -> None:
    answer = shared.ask("POST", f"runs/a-game/{action}{dry}", body)
    assert "has not allowed" in detail(answer, 403)
    assert [c["kind"] for c in shared.commands()] == 2 * ["create_run"]


# --- new runs ------------------------------------------------------------------------------------

CARTPOLE = {"config": {"environment": {"id": "CartPole-v1"}, "seed": 3}}


def test_a_new_run_is_looked_at_created_and_started(stage: Stage) -> None:
    answer = stage.ask("POST", "runs", {**CARTPOLE, "reason": "try"}, scope="operate")
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert found["outcome"] == "accepted"
    assert answer.headers["location"] == f"/api/v1/runs/{found['run']}"
    assert found["run"].startswith("cartpole-")
    wait_for(lambda: stage.got(f"runs/{found['run']}")["status"] == "queued")
    entries = stage.commands(found["run"])
    assert [(e["kind"], e["outcome"]) for e in entries] == [
        ("create_run", "accepted"),
        ("start_run", "accepted"),
    ]
    assert {(e["author"], e["origin"], e["reason"]) for e in entries} == {
        ("operateer", "network", "try")
    }
    state = stage.plane.follower.states[found["run"]]
    assert stage.home.spec(state).seats.keys() == {"player_0"}
    assert stage.home.config(state) == build(CARTPOLE["config"])


def test_a_new_run_may_wait_to_be_started(stage: Stage) -> None:
    found = stage.ask("POST", "runs", {**CARTPOLE, "start": False}).json()
    assert "waits to be started" in found["effect"]
    assert [c["kind"] for c in stage.commands()] == ["create_run"]


def test_the_same_key_creates_one_run(stage: Stage) -> None:
    key = {"Idempotency-Key": "new"}
    first = stage.ask("POST", "runs", CARTPOLE, headers=key)
    again = stage.ask("POST", "runs", CARTPOLE, headers=key)
    assert (first.status_code, first.json()) == (again.status_code, again.json())
    other = {"config": {"environment": {"id": "CartPole-v1"}, "seed": 4}}
    assert "another request" in detail(stage.ask("POST", "runs", other, headers=key), 422)
    assert len(stage.got("runs")["runs"]) == 1


def test_a_dry_run_of_a_new_run_looks_and_creates_nothing(stage: Stage) -> None:
    answer = stage.ask("POST", "runs?dry_run=true", CARTPOLE)
    assert answer.status_code == 200
    assert answer.json()["outcome"] == "would_accept"
    assert "1 learner, 1 actor" in answer.json()["effect"]
    assert stage.commands() == []


@pytest.mark.parametrize(
    ("config", "status", "words"),
    [
        ({"environment": {"id": "CartPole-v9"}}, 422, "did you mean CartPole-v1"),
        ({"environment": {"id": "CartPole-v1"}, "sed": 1}, 422, "did you mean seed"),
        ({}, 422, "no environment given"),
        (
            {"environment": {"id": "CartPole-v1"}, "replay": {"run": "nobodys"}},
            422,
            "replay.run: unknown run 'nobodys'",
        ),
        ({"environment": {"id": "os:getcwd"}}, 403, "allow.code"),
        (
            {"environment": {"id": "CartPole-v1"}, "checkpoint": {"uri": "file:/tmp/x"}},
            403,
            "allow.files",
        ),
        (
            {"environment": {"id": "CartPole-v1"}, "bus": {"kind": "kafka"}},
            422,
            "say where the cluster is",
        ),
    ],
)
def test_a_config_that_cannot_be_is_refused(
    shared: Stage, config: dict[str, Any], status: int, words: str
) -> None:
    assert words in detail(shared.ask("POST", "runs", {"config": config}), status)
    assert len(shared.commands()) == 2


MODULE = """\
import os, pathlib, re
import gymnasium
HERE = pathlib.Path(__file__).parent
class Ours(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def __init__(self, hang=False):
        print("hello from the environment")
        (HERE / "pid").write_text(str(os.getpid()))
        if hang:
            re.match("(a+)+$", 64 * "a" + "b")  # lets no other thread run
    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}
"""


@pytest.fixture
def own_module(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Allowed to the server (`ALLOWED`), and to the processes that it has look at it."""
    (tmp_path / "our_module.py").write_text(MODULE)
    home.mkdir()
    (home / "rookery.yaml").write_text('allow: {code: ["our_module:*"]}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


ALLOWED = Settings(allow=Allow(code=("our_module:*",)))


def ours(**kwargs: Any) -> dict[str, Any]:
    return {"config": {"environment": {"id": "our_module:Ours", "kwargs": kwargs}}}


def _pid(directory: Path) -> int:
    """Of the process that made the environment; 0: nobody did yet."""
    file = directory / "pid"
    return int((file.exists() and file.read_text()) or 0)


def is_gone(pid: int) -> bool:
    """An orphan may be a zombie for a while, where nobody takes note of its end."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_an_environments_code_runs_in_another_process(home: Path, own_module: Path) -> None:
    with staged(home, ALLOWED) as stage:
        answer = stage.ask("POST", "runs", ours())
        assert answer.status_code == 201, answer.text
        looked = _pid(own_module)
        assert looked != os.getpid()
        assert is_gone(looked)


def test_an_environment_is_shown_with_what_its_seats_see_and_play(shared: Stage) -> None:
    assert shared.got("environment?id=CartPole-v1") == {
        "id": "CartPole-v1",
        "source": "gymnasium",
        "description": "classic control, up to 500 steps",
        "seats": {
            "player_0": {
                "observation": [
                    {"path": "", "shape": [4], "dtype": "float32", "text": "4 numbers (float32)"}
                ],
                "action": {
                    "kind": "categorical",
                    "sizes": [2],
                    "shape": [],
                    "low": None,
                    "high": None,
                    "text": "2 choices",
                },
                "text": "sees 4 numbers (float32); plays 2 choices",
            }
        },
        "simultaneous": True,
        "compiled": False,
    }


def test_an_environment_is_shown_though_no_one_policy_could_play_all_its_seats(
    shared: Stage,
) -> None:
    found = shared.got("environment?id=pettingzoo:simple_tag_v3")
    seen = {name: seat["observation"][0]["shape"] for name, seat in found["seats"].items()}
    assert seen["adversary_0"] != seen["agent_0"]
    assert found["simultaneous"]


def test_an_environment_that_cannot_be_shown_is_refused(shared: Stage) -> None:
    answer = shared.ask("GET", "environment?id=CartPole-v9")
    assert "did you mean CartPole-v1?" in detail(answer, 422)
    assert "allow.code" in detail(shared.ask("GET", "environment?id=os:system"), 403)
    answer = shared.ask("GET", "environment?id=CartPole-v1", scope="read")
    assert "scope operate" in detail(answer, 403)


def test_an_environment_that_is_shown_runs_in_another_process(home: Path, own_module: Path) -> None:
    with staged(home, ALLOWED) as stage:
        found = stage.got("environment?id=our_module:Ours")
        assert (found["source"], found["description"]) == ("code", "")
        assert found["seats"]["player_0"]["text"] == (
            "sees 2 numbers in [-1, 1] (float32); plays 2 choices"
        )
        looked = _pid(own_module)
        assert looked != os.getpid()
        assert is_gone(looked)


def test_an_environment_that_hangs_is_given_up(home: Path, own_module: Path) -> None:
    with staged(home, ALLOWED, deadline_s=3.0) as stage:
        answer = stage.ask("POST", "runs", ours(hang=True))
        assert "took longer than 3 s" in detail(answer, 422)
        assert "prepare" not in [c for p in psutil.Process().children() for c in p.cmdline()]
        assert stage.commands() == []


def test_looking_ends_with_who_wanted_to_know(home: Path, own_module: Path) -> None:
    async def ask_and_leave() -> int:
        sandbox = Sandbox(Home(home).environment)
        config = build(ours(hang=True)["config"]).model_dump(mode="json")
        asked = asyncio.create_task(sandbox.check({"config": config}))
        async with asyncio.timeout(60):
            while not _pid(own_module):
                await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        return _pid(own_module)

    assert is_gone(asyncio.run(ask_and_leave()))


LOOKING = """\
import asyncio, json, sys
from rookery.server.sandbox import Sandbox
asyncio.run(Sandbox({"ROOKERY_HOME": sys.argv[1]}).check({"config": json.loads(sys.argv[2])}))
"""


def test_looking_ends_with_the_server_however_that_ends(home: Path, own_module: Path) -> None:
    config = json.dumps(build(ours(hang=True)["config"]).model_dump(mode="json"))
    server = subprocess.Popen([sys.executable, "-c", LOOKING, str(home), config])
    try:
        looking = wait_for(lambda: _pid(own_module))
    finally:
        server.kill()
        server.wait(20.0)
    wait_for(lambda: is_gone(looking))


def test_who_may_operate_leaves_places_for_configs_to_the_owner(shared: Stage) -> None:
    places = shared.plane._describer._sandbox._places
    with contextlib.ExitStack() as others:
        operator = next(t for t in shared.tokens.list() if t.scope == "operate")
        for _ in range(8):
            others.enter_context(places.place(Token(operator.id, "operate", "")))
        answer = shared.ask("POST", "runs?dry_run=true", CARTPOLE, scope="operate")
        assert "8 of 16 configs that wait to be looked at" in detail(answer, 429)
        assert answer.headers["retry-after"]
        for _ in range(6):
            others.enter_context(places.place(Token("another", "operate", "")))
        assert shared.ask("POST", "runs?dry_run=true", CARTPOLE, scope="admin").status_code == 200
    assert len(places) == 0


def test_an_environment_that_breaks_is_one_line(home: Path, own_module: Path) -> None:
    with staged(home, ALLOWED) as stage:
        answer = stage.ask("POST", "runs", ours(speed=3))
        assert "speed" in detail(answer, 422)


# --- beyond a bound ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "reached", "further"),
    [("steps", 1000, 2000), ("minutes", 2, 2.5), ("until_return", 20.0, 20.5)],
)
def test_a_run_that_reached_its_bound_goes_on_up_to_another(
    stage: Stage, bound: str, reached: float, further: float
) -> None:
    stage.create("a-run", stop={"steps": 1000})
    assert stage.ask("POST", "runs/a-run/start").status_code == 200
    came_to = {"env_steps": 1000, "updates": 1, "mean_return_100": 20.0, "train_s": 120.0}
    stage.home.record(
        RunOwned(run="a-run", pid=1, by="server"),
        RunEnded(run="a-run", status="limited", reason="1,000 steps", **came_to),
    )
    wait_for(lambda: stage.got("runs/a-run")["status"] == "limited")
    refused = stage.ask("POST", "runs/a-run/resume")
    assert "resume it with a new bound, like steps=2000" in detail(refused, 422)
    assert "already" in detail(stage.ask("POST", "runs/a-run/resume", {bound: reached}), 422)
    answer = stage.ask("POST", "runs/a-run/resume", {bound: further})
    assert answer.status_code == 200 and "up to" in answer.json()["effect"]
    stop = stage.got("runs/a-run/config")["stop"]
    kept = {"steps": further if bound == "steps" else None}  # the bound that it reached is gone
    assert stop == {"steps": None, "minutes": None, "until_return": None, **kept, bound: further}


# --- artifacts -----------------------------------------------------------------------------------


@pytest.fixture
def kept(shared: Stage) -> Stage:
    """The run's files, as they were."""
    stage, directory = shared, shared.home.run_dir("a-run")
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "logs").mkdir(parents=True)
    (directory / "logs" / "learner-0.log").write_bytes(bytes(range(100)))
    (directory / "curve.png").write_bytes(b"png")
    (directory / "bus.sqlite").write_bytes(b"secret")
    (directory / "private").mkdir()
    (directory / "private" / "key.png").write_bytes(b"secret")
    (directory / "logs" / "out").symlink_to(stage.home.path / "tokens.json")
    (directory / "videos").symlink_to(stage.home.path)
    return stage


LOG = "runs/a-run/artifacts/logs/learner-0.log"


def test_a_runs_files_are_listed_and_fetched(kept: Stage) -> None:
    found = kept.got("runs/a-run/artifacts")["artifacts"]
    assert [(a["path"], a["bytes"]) for a in found] == [
        ("curve.png", 3),
        ("logs/learner-0.log", 100),
    ]
    answer = kept.ask("GET", LOG, scope="read")
    assert answer.content == bytes(range(100))
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    shown = kept.ask("GET", "runs/a-run/artifacts/curve.png")
    assert shown.headers["content-type"] == "image/png"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-9", range(10)),
        ("bytes=90-", range(90, 100)),
        ("bytes=-5", range(95, 100)),
        ("bytes=95-1000", range(95, 100)),
        ("bytes=-1000", range(100)),
    ],
)
def test_a_range_of_a_file_is_fetched(kept: Stage, asked: str, expected: range) -> None:
    answer = kept.ask("GET", LOG, headers={"Range": asked})
    assert answer.status_code == 206
    assert answer.content == bytes(expected)
    first, last = expected[0], expected[-1]
    assert answer.headers["content-range"] == f"bytes {first}-{last}/100"


@pytest.mark.parametrize(
    "asked", ["bytes=1-2,4-5", "bytes=9-1", "bytes=x-", "lines=1-2", "bytes=-"]
)
def test_what_is_no_single_range_gets_the_whole_file(kept: Stage, asked: str) -> None:
    answer = kept.ask("GET", LOG, headers={"Range": asked})
    assert (answer.status_code, len(answer.content)) == (200, 100)


@pytest.mark.parametrize("asked", ["bytes=100-", "bytes=-0"])
def test_a_range_beyond_the_end_is_refused(kept: Stage, asked: str) -> None:
    answer = kept.ask("GET", LOG, headers={"Range": asked})
    assert "100 bytes" in detail(answer, 416)
    assert answer.headers["content-range"] == "bytes */100"


def test_a_range_holds_only_while_the_file_is_the_same(kept: Stage) -> None:
    etag = kept.ask("GET", LOG).headers["etag"]
    asked = {"Range": "bytes=0-0", "If-Range": etag}
    assert kept.ask("GET", LOG, headers=asked).status_code == 206
    with open(kept.home.run_dir("a-run") / "logs" / "learner-0.log", "ab") as file:
        file.write(b"more")
    assert kept.ask("GET", LOG, headers=asked).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "bus.sqlite",
        "logs/out",
        "logs/../bus.sqlite",
        "..%2f..%2ftokens.json",
        "logs/%2e%2e/bus.sqlite",
        "videos/tokens.json",
        "logs",
        "logs/none",
        "%2fetc%2fpasswd",
        "logs/a%00b",
        "owner.lock",
        "private/key.png",
    ],
)
def test_nothing_else_can_be_fetched(kept: Stage, path: str) -> None:
    answer = kept.ask("GET", f"runs/a-run/artifacts/{path}")
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"] == PROBLEM


def test_what_is_still_being_written_is_not_offered(kept: Stage) -> None:
    half = kept.home.run_dir("a-run") / "checkpoints" / ".writing-x" / "state.safetensors"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"half")
    listed = [a["path"] for a in kept.got("runs/a-run/artifacts")["artifacts"]]
    assert listed and not any(".writing" in path for path in listed)
    path = f"runs/a-run/artifacts/{half.relative_to(kept.home.run_dir('a-run')).as_posix()}"
    detail(kept.ask("GET", path), 404)


def test_a_ticket_fetches_one_file_once(kept: Stage) -> None:
    made = kept.ask("POST", "tickets", {"path": f"/api/v1/{LOG}"}, scope="read")
    assert made.status_code == 201
    url = made.json()["url"]
    assert kept.ask("GET", url, scope=None).content == bytes(range(100))
    detail(kept.ask("GET", url, scope=None), 401)
    detail(kept.ask("POST", "tickets", {"path": "/api/v1/tokens"}), 422)


def test_a_ticket_lasts_for_a_head_and_the_ranges_of_one_download(kept: Stage) -> None:
    url = kept.ask("POST", "tickets", {"path": f"/api/v1/{LOG}"}, scope="read").json()["url"]
    head = kept.ask("HEAD", url, scope=None)
    assert head.status_code == 200 and head.headers["content-length"] == "100"
    for part in ("bytes=0-49", "bytes=50-"):
        found = kept.ask("GET", url, scope=None, headers={"Range": part})
        assert found.status_code == 206 and len(found.content) == 50
    assert kept.ask("GET", url, scope=None).content == bytes(range(100))
    detail(kept.ask("GET", url, scope=None, headers={"Range": "bytes=0-1"}), 401)


def test_head_works_where_get_does(kept: Stage) -> None:
    known = {
        "{run}": "a-run",
        "{group}": "nobody",  # an answer too
        "{sweep}": "nobody",
        "{file}": "learner-0.1.log",
        "{path}": "logs/learner-0.1.log",
    }
    templates = [p for p, methods in kept.got("openapi.json")["paths"].items() if "get" in methods]
    assert len(templates) > 20
    for template in templates:
        path = re.sub(r"\{\w+\}", lambda found: known[found[0]], template)
        got, head = kept.ask("GET", path), kept.ask("HEAD", path)
        assert head.status_code == got.status_code, path
        assert head.headers["content-type"] == got.headers["content-type"], path
    assert kept.ask("HEAD", "nowhere").status_code == 404
    assert kept.ask("HEAD", "tickets").status_code == 405


# --- tokens --------------------------------------------------------------------------------------


def test_tokens_are_made_listed_and_revoked(stage: Stage) -> None:
    body = {"scope": "read", "ttl_s": 60, "label": "a phone"}
    made = stage.ask("POST", "tokens", body)
    assert made.status_code == 201
    token = made.json()
    listed = stage.got("tokens")["tokens"]
    assert token["id"] in [t["id"] for t in listed]
    assert token["token"] not in json.dumps(listed)
    theirs = {"Authorization": f"Bearer {token['token']}"}
    assert stage.ask("GET", "runs", scope=None, headers=theirs).status_code == 200
    assert stage.ask("DELETE", f"tokens/{token['id']}").status_code == 204
    detail(stage.ask("GET", "runs", scope=None, headers=theirs), 401)
    detail(stage.ask("DELETE", f"tokens/{token['id']}"), 404)


# --- the other doors -----------------------------------------------------------------------------


STREAM = "ws://127.0.0.1:7860/api/v1/stream"


@pytest.mark.parametrize("by_header", [True, False])
def test_the_stream_is_there_for_who_has_a_token(shared: Stage, by_header: bool) -> None:
    text = shared._texts["read"]
    headers = {"Authorization": f"Bearer {text}"} if by_header else {}
    with shared.client.websocket_connect(STREAM, headers=headers) as stream:
        if not by_header:
            stream.send_json({"type": "hello", "token": text})
        assert stream.receive_json() == {"type": "ready"}
        assert "rookery_stream_clients 1.0" in shared.ask("GET", "/metrics").text


def test_mcp_comes_after_the_rest_and_is_guarded(shared: Stage) -> None:
    detail(shared.ask("POST", "/mcp", {}, scope=None), 401)
    assert "not there yet" in detail(shared.ask("POST", "/mcp", {}), 503)
    served: list[str] = []

    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        served.append(scope["state"]["token"].scope)
        await Response("mine")(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        yield

    def make(*_: object) -> McpDoor:
        time.sleep(0.5)  # it takes its time, and who comes meanwhile waits
        return McpDoor(endpoint, lifespan)

    app = build_app(shared.plane, shared.tokens, Settings(), make)
    with TestClient(app, base_url="http://127.0.0.1:7860") as client:
        stage = Stage(shared.home, shared.plane, shared.tokens, client)
        assert stage.ask("POST", "/mcp", {}, scope="read").text == "mine"
        assert stage.ask("GET", "runs").status_code == 200
    assert served == ["read"]


# --- the plane without a door --------------------------------------------------------------------


def test_the_same_command_sent_twice_at_once_is_appended_once(stage: Stage) -> None:
    stage.create("a-run")
    command = ScaleActors(run="a-run", count=2)

    async def twice() -> list[Any]:
        return list(await asyncio.gather(stage.plane.submit(command), stage.plane.submit(command)))

    first, second = asyncio.run(twice())
    assert first == second
    assert [c["kind"] for c in stage.commands("a-run")] == ["create_run", "scale_actors"]


def test_an_answer_is_told_when_it_comes_and_not_when_the_time_is_up(stage: Stage) -> None:
    stage.create("a-run")
    began = time.monotonic()
    found = asyncio.run(stage.plane.submit(ScaleActors(run="a-run", count=2), wait_s=120.0))
    assert found.outcome == "accepted"
    assert time.monotonic() - began < 60.0


def test_an_answer_of_long_ago_is_found_in_the_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.create("a-run")
    command = PauseRun(run="a-run")
    first = asyncio.run(stage.plane.submit(command))
    monkeypatch.setattr(Follower, "answer", lambda self, id: None)
    again = asyncio.run(stage.plane.submit(command))
    assert (again.outcome, again.why) == ("rejected", first.why)
    assert stage.commands("a-run")[-1]["outcome"] == "rejected"


def test_a_local_owner_names_what_it_likes(home: Path, own_module: Path) -> None:
    with staged(home) as stage:
        made = asyncio.run(
            stage.plane.create(ours()["config"], author="ann", id="made-here", start=False)
        )
        assert made.outcome == "accepted"


def test_a_name_that_is_taken_grows_by_a_letter(stage: Stage) -> None:
    config, service = build(CARTPOLE["config"]), stage.plane._service
    taken = stage.create(service._new_run(config, "some-command"))
    other = service._new_run(config, "some-command")
    assert other.startswith(taken)
    assert len(other) == len(taken) + 1
