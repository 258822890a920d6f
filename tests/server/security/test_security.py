"""Whoever should not get in does not, at a true server: the right status, nothing changed.

Each test is a thing that somebody tries. After all of them the runs are as they were, and no token
stands in what the server has said.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any, BinaryIO

import httpx2
import pytest
import websockets

from rookery.bus import Outgoing
from rookery.control.run_log import RunLog
from rookery.control.tokens import TokenStore
from rookery.messages import COMMANDS, PauseRun, ScaleActors, StopRun, encode_json, new_id
from tests.conftest import Cli, Served, wait_until

CARTPOLE = {"environment": {"id": "CartPole-v1"}}
BAD_TOKENS = 10_000


@pytest.fixture(scope="module")
def server(shared_cli: Cli) -> Iterator[Served]:
    """A server with one run that was created and never started."""
    served = shared_cli.serve()
    answer = served.api("POST", "/runs", {"config": CARTPOLE, "start": False})
    served.run = answer["run"]
    before = told(served)
    yield served
    assert told(served) == before, "something changed the runs"
    log, tokens = served.log, TokenStore(shared_cli.home.path / "tokens.json").list()
    assert served.interrupt().code == 0
    assert "rk_" not in log and served.token not in log
    assert len(log.splitlines()) < 200, "a flood of requests is no flood in the log"
    assert tokens, "the store was read"


def told(server: Served) -> list[tuple[str, str, str]]:
    return [(r["run"], r["status"], r["desired"]) for r in server.api("GET", "/runs")["runs"]]


def ask(
    server: Served, method: str = "GET", path: str = "/runs", **options: Any
) -> httpx2.Response:
    options.setdefault("headers", {})
    return httpx2.request(method, f"{server.url}/api/v1{path}", timeout=30, **options)


def pause(server: Served, token: str | None = None, **headers: str) -> httpx2.Response:
    token = server.token if token is None else token
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    return ask(server, "POST", f"/runs/{server.run}/pause", json={}, headers={**sent, **headers})


def check_problem(found: httpx2.Response, status: int) -> dict[str, Any]:
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = found.json()
    assert problem["status"] == status and problem["detail"] and "\n" not in problem["detail"]
    assert found.headers["x-content-type-options"] == "nosniff"
    return problem


# --- tokens --------------------------------------------------------------------------------------


def test_without_a_token_only_health_is_told(server: Served) -> None:
    for path in ("/healthz", "/readyz"):
        assert httpx2.get(server.url + path).status_code == 200
    check_problem(pause(server, ""), 401)
    for path in ("/runs", "/openapi.json", "/nowhere", "/tokens"):
        check_problem(ask(server, path=path), 401)
    for path in ("/metrics", "/mcp"):
        check_problem(httpx2.get(server.url + path), 401)


@pytest.mark.parametrize("scheme", ["Bearer", "bearer ", "Basic", "Token"])
def test_a_wrong_token_is_refused(server: Served, scheme: str) -> None:
    wrong = server.token[:-1] + ("a" if server.token[-1] != "a" else "b")
    found = ask(server, headers={"Authorization": f"{scheme} {wrong}"})
    check_problem(found, 401)
    assert found.headers["www-authenticate"].startswith("Bearer")


def test_a_scope_is_not_exceeded(server: Served, shared_cli: Cli) -> None:
    made = {
        scope: shared_cli("tokens", "create", "--scope", scope, "--json").json["token"]
        for scope in ("read", "operate")
    }
    bearer = {scope: {"Authorization": f"Bearer {text}"} for scope, text in made.items()}
    assert ask(server, headers=bearer["read"]).status_code == 200
    check_problem(pause(server, made["read"]), 403)
    check_problem(
        ask(server, "POST", "/runs", json={"config": CARTPOLE}, headers=bearer["read"]), 403
    )
    check_problem(ask(server, "DELETE", f"/runs/{server.run}", headers=bearer["operate"]), 403)
    check_problem(ask(server, "GET", "/tokens", headers=bearer["operate"]), 403)
    body = {"scope": "admin", "label": "climber"}
    check_problem(ask(server, "POST", "/tokens", json=body, headers=bearer["operate"]), 403)


def test_a_token_ends_with_its_time_or_its_revocation(server: Served, shared_cli: Cli) -> None:
    store = TokenStore(shared_cli.home.path / "tokens.json")
    brief = store.create("admin", 0.3, "brief")
    header = {"Authorization": f"Bearer {brief.token}"}
    wait_until(lambda: ask(server, headers=header).status_code == 401, "it to expire", 10)
    longer = store.create("admin", 3600, "longer")
    header = {"Authorization": f"Bearer {longer.token}"}
    assert ask(server, headers=header).status_code == 200
    shared_cli("tokens", "revoke", longer.id)
    check_problem(ask(server, headers=header), 401)


def test_ten_thousand_guesses(server: Served) -> None:
    """Each of them is refused, and the good token is still good."""
    host, port = server.url.removeprefix("http://").split(":")
    refused = 0
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        answers = connection.makefile("rb")
        for _ in range(BAD_TOKENS // 100):
            connection.sendall(b"".join(_guess(host, port) for _ in range(100)))
            for _ in range(100):
                refused += _status(answers) == 401
    assert refused == BAD_TOKENS
    assert ask(server, headers=server.headers).status_code == 200


def _guess(host: str, port: str) -> bytes:
    token = f"rk_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"
    lines = ("GET /api/v1/runs HTTP/1.1", f"Host: {host}:{port}", f"Authorization: Bearer {token}")
    return "\r\n".join((*lines, "", "")).encode()


def _status(answers: BinaryIO) -> int:
    """Of the next answer on a connection; reads all of it."""
    status, length = int(answers.readline().split()[1]), 0
    while (line := answers.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    answers.read(length)
    return status


# --- other people's pages ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1:1", "file://"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_a_foreign_origin_is_refused_on_every_method(
    server: Served, origin: str, method: str
) -> None:
    headers = {**server.headers, "Origin": origin}
    found = ask(server, method, f"/runs/{server.run}", headers=headers)
    assert found.status_code == 403
    assert "access-control-allow-origin" not in found.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", ""]
)
def test_a_rebound_name_is_refused(server: Served, host: str) -> None:
    found = ask(server, headers={**server.headers, "Host": host})
    check_problem(found, 400)


def test_a_form_of_another_page_changes_nothing(server: Served) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        sent = {"Content-Type": kind, "Origin": "https://evil.example", "Cookie": "token=x"}
        found = ask(server, "POST", f"/runs/{server.run}/pause", content=b"{}", headers=sent)
        assert found.status_code == 403
        sent = {**server.headers, "Content-Type": kind}
        check_problem(
            ask(server, "POST", f"/runs/{server.run}/pause", content=b"{}", headers=sent), 415
        )
        assert "set-cookie" not in found.headers


def test_a_stream_from_a_foreign_page_is_refused(server: Served) -> None:
    async def connect(**headers: str) -> int:
        url = server.url.replace("http", "ws", 1) + "/api/v1/stream"
        try:
            async with websockets.connect(url, additional_headers=headers):
                return 101
        except websockets.exceptions.InvalidStatus as refused:
            return refused.response.status_code

    assert asyncio.run(connect(Origin="https://evil.example", **server.headers)) == 403
    assert asyncio.run(connect(Origin="null", **server.headers)) == 403
    assert asyncio.run(connect(Authorization="Bearer rk_00000000_nonsense")) == 401
    assert asyncio.run(connect(Origin=server.url, **server.headers)) == 101


def test_a_stream_says_who_it_is_first(server: Served) -> None:
    async def said(message: str) -> tuple[str, int]:
        url = server.url.replace("http", "ws", 1) + "/api/v1/stream"
        async with websockets.connect(url) as stream:
            await stream.send(message)
            answer = await asyncio.wait_for(stream.recv(), 10)
            await asyncio.wait_for(stream.wait_closed(), 10)
            return json.loads(answer)["type"], stream.close_code or 0

    subscribe = json.dumps({"type": "subscribe", "runs": ["*"], "kinds": ["events"]})
    assert asyncio.run(said(subscribe))[1] in (4400, 4401)
    hello = json.dumps({"type": "hello", "token": "rk_00000000_nonsense"})
    assert asyncio.run(said(hello)) == ("error", 4401)


# --- sizes and shapes ----------------------------------------------------------------------------


def post_runs(server: Served, content: bytes) -> httpx2.Response:
    headers = {**server.headers, "Content-Type": "application/json"}
    return ask(server, "POST", "/runs", content=content, headers=headers)


def test_an_oversized_body_is_refused(server: Served) -> None:
    check_problem(post_runs(server, b'{"config": "' + b"x" * (2 << 20) + b'"}'), 413)


def test_json_that_is_too_deep_is_refused(server: Served) -> None:
    check_problem(post_runs(server, b'{"config":' + b"[" * 5000 + b"]" * 5000 + b"}"), 400)


@pytest.mark.parametrize(
    "path",
    [
        "../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "checkpoints/../../tokens.json",
        "checkpoints/..%2f..%2f..%2fcommand.key",
        "%2e%2e/command.key",
        "owner.lock",
        "/etc/passwd",
        "bus.sqlite",
    ],
)
def test_a_path_does_not_leave_the_run(server: Served, path: str) -> None:
    """Sent as it stands: a client would tidy the path up."""
    target = f"/api/v1/runs/{server.run}/artifacts/{path}"
    status, body = raw(server, f"GET {target} HTTP/1.1", f"Authorization: Bearer {server.token}")
    assert status in (400, 404, 422), body
    assert b"root:" not in body and b"rk_" not in body


def test_a_header_cannot_be_smuggled_in(server: Served) -> None:
    for name in ("x%0d%0aSet-Cookie:%20a=b", "x\\r\\nSet-Cookie: a=b"):
        found = ask(server, "GET", f"/runs/{name}", headers=server.headers)
        assert found.status_code in (404, 422) and "set-cookie" not in found.headers
    status, body = raw(
        server,
        f"POST /api/v1/runs/{server.run}/pause HTTP/1.1",
        f"Authorization: Bearer {server.token}",
        "Content-Type: application/json",
        "Idempotency-Key: a\x00b",
        "Content-Length: 2",
    )
    assert status in (400, 422), body


def raw(server: Served, request: str, *headers: str) -> tuple[int, bytes]:
    host, port = server.url.removeprefix("http://").split(":")
    lines = [request, f"Host: {host}:{port}", *headers, "Connection: close", "", ""]
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall("\r\n".join(lines).encode("latin-1"))
        received = b""
        while part := connection.recv(65536):
            received += part
    return int(received.split(b" ", 2)[1]), received


# --- no way to run code --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"environment": {"id": "os:system"}}, id="module:Class"),
        pytest.param({"environment": {"id": "evil_module:CartPole-v1"}}, id="a module to import"),
        pytest.param({**CARTPOLE, "seat_map": "os:system"}, id="a seat map"),
        pytest.param(
            {"environment": {"id": "pgx:tic_tac_toe"}, "seats": {"*": "script:os:system"}},
            id="a script",
        ),
        pytest.param(
            {"environment": {"id": "pettingzoo:chess_v6"}, "seats": {"*": "engine:stockfish"}},
            id="an engine",
        ),
        pytest.param(
            {"environment": {"id": "pgx:tic_tac_toe"}, "seats": {"*": "onnx:/etc/passwd"}},
            id="a file",
        ),
        pytest.param({**CARTPOLE, "checkpoint": {"uri": "file:/etc"}}, id="a directory"),
        pytest.param(
            {"environment": {"id": "CartPole-v1", "kwargs": {"xml_file": "/etc/passwd"}}},
            id="a file among the options",
        ),
        pytest.param(
            {"environment": {"id": "CartPole-v1", "kwargs": {"at": "tcp://evil.example:1"}}},
            id="a host among the options",
        ),
    ],
)
def test_a_config_from_afar_names_no_code_no_binary_no_file_no_host(
    server: Served, config: dict[str, Any]
) -> None:
    found = ask(server, "POST", "/runs", json={"config": config}, headers=server.headers)
    assert "rookery.yaml" in check_problem(found, 403)["detail"]


def test_a_bus_cannot_be_named_from_afar(server: Served) -> None:
    config = {**CARTPOLE, "bus": {"kind": "kafka", "uri": "kafka://evil.example:9092"}}
    found = ask(server, "POST", "/runs", json={"config": config}, headers=server.headers)
    check_problem(found, 422)
    config = {**CARTPOLE, "bus": {"kind": "kafka"}}
    found = ask(server, "POST", "/runs", json={"config": config}, headers=server.headers)
    check_problem(found, 422)


@pytest.mark.parametrize("player", ["engine:stockfish", "onnx:/etc/passwd", "script:os:system"])
def test_seats_and_matches_from_afar_name_none_either(server: Served, player: str) -> None:
    for action, body in (
        ("set-seat-map", {"seats": {"*": player}}),
        ("play-match", {"a": player, "b": "script:random"}),
        ("evaluate", {"player": player}),
    ):
        found = ask(
            server, "POST", f"/runs/{server.run}/{action}", json=body, headers=server.headers
        )
        check_problem(found, 403)


# --- the bus -------------------------------------------------------------------------------------


def answers(cli: Cli, run: str, command: str) -> list[str]:
    """What was said about a command, by the log."""
    return [
        getattr(message, "why", "accepted")
        for message in RunLog(cli.home).read()
        if getattr(message, "command", None) == command and message.run == run
    ]


def test_an_unsigned_command_on_the_bus_is_rejected(server: Served, shared_cli: Cli) -> None:
    for headers in ({}, {"signature": "0" * 64}):
        forged = ScaleActors(run=server.run, count=3, id=new_id())
        message = Outgoing(COMMANDS, encode_json(forged), server.run, headers)
        shared_cli.home.control.publish([message])
        said = wait_until(lambda c=forged: answers(shared_cli, server.run, c.id), "an answer", 20)
        assert len(said) == 1 and "not signed" in said[0]
    assert server.api("GET", f"/runs/{server.run}")["actors_wanted"] == 1


def test_a_replayed_command_on_the_bus_acts_once(server: Served, shared_cli: Cli) -> None:
    first = ScaleActors(run=server.run, count=5)
    shared_cli.home.send(first)
    wait_until(lambda: answers(shared_cli, server.run, first.id), "its answer", 20)
    assert server.api("POST", f"/runs/{server.run}/scale-actors", {"count": 1})["outcome"]
    signed = shared_cli.home._signed(first)
    shared_cli.home.control.publish([signed, signed])
    marker = StopRun(run=server.run)
    shared_cli.home.send(marker)  # everything before it was read when it has its answer
    wait_until(lambda: answers(shared_cli, server.run, marker.id), "an answer", 20)
    assert len(answers(shared_cli, server.run, first.id)) == 1
    assert server.api("GET", f"/runs/{server.run}")["actors_wanted"] == 1
    for other in ("another-run", server.run):  # a signature holds for one run and one payload
        stolen = PauseRun(run=other, id=new_id(), time_s=time.time())
        copied = Outgoing(COMMANDS, encode_json(stolen), other, signed.headers)
        shared_cli.home.control.publish([copied])
        said = wait_until(lambda s=stolen: answers(shared_cli, s.run, s.id), "an answer", 20)
        assert "not signed" in said[0]
