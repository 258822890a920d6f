"""What somebody does to the port of a true server with 1,024 descriptors: its owner works on.

Each test is an attack that once worked, done as it was done then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import httpx2
import psutil
import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from rookery.bus import Outgoing
from rookery.messages import EVENTS, RunEnded, encode_json
from rookery.server.mcp.http import MOST_SESSIONS
from tests.conftest import Cli, Served, wait_until
from tests.server.fuzz.calls import INITIALIZE
from tests.server.security.test_guard_wire import UPGRADE
from tests.server.security.test_strangers import MODULE
from tests.server.security.test_wire import sent

DESCRIPTORS = 1024
CARTPOLE = {"environment": {"id": "CartPole-v1"}}
NASTY = "one\x1b[31m two\u202e three"


class Port:
    """The server, and tokens to try it with."""

    def __init__(self, cli: Cli, server: Served) -> None:
        self.cli, self.server = cli, server
        self.client = httpx2.Client(base_url=server.url, timeout=60)
        self.tokens = {
            scope: cli("tokens", "create", "--scope", scope, "--json").json["token"]
            for scope in ("read", "operate")
        }
        self.tokens["admin"] = server.token
        self.run = str(server.api("POST", "/runs", {"config": CARTPOLE, "start": False})["run"])

    def connect(self) -> socket.socket:
        host, port = self.server.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), 20)

    def ask(self, method: str, path: str, scope: str, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.tokens[scope]}", **options.pop("headers", {})}
        return self.client.request(method, path, headers=headers, **options)

    @property
    def megabytes(self) -> float:
        return float(psutil.Process(self.server.pid).memory_info().rss / 2**20)


@pytest.fixture(scope="module")
def port(shared_cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    """Its owner allows a whole module, as careless owners do."""
    place = tmp_path_factory.mktemp("modules")
    (place / "my_module.py").write_text(MODULE)
    shared_cli.home.path.mkdir(exist_ok=True)
    (shared_cli.home.path / "rookery.yaml").write_text('allow: {code: ["my_module:*"]}\n')
    shared_cli.environment["PYTHONPATH"] = str(place)
    before = os.getcwd()
    os.chdir(place)
    try:
        server = shared_cli.serve(descriptors=DESCRIPTORS, timeout=240)
        made = Port(shared_cli, server)
        with made.client:
            yield made
        assert "Traceback" not in server.log, server.log
        assert server.interrupt().code == 0
    finally:
        os.chdir(before)


# --- code ----------------------------------------------------------------------------------------


def test_an_allowed_module_is_no_way_to_what_it_imports(port: Port) -> None:
    named = {"id": "my_module:run", "kwargs": {"args": ["touch", "pwned"]}}
    found = dry_run(port, {"environment": named})
    assert found.status_code == 422 and not os.path.exists("pwned")
    assert "is no class or function that is defined in my_module" in found.json()["detail"]
    found = dry_run(port, {"environment": {"id": "my_module:Maze"}})
    assert found.json()["outcome"] == "would_accept", found.text


def dry_run(port: Port, config: dict[str, Any]) -> httpx2.Response:
    return port.ask("POST", "/api/v1/runs?dry_run=true", "operate", json={"config": config})


# --- connections ---------------------------------------------------------------------------------


def test_an_endless_header_is_cut_off(port: Port) -> None:
    """100 MB of it made everybody wait for 6 s, 400 MB were kept in memory."""
    before = port.megabytes
    with port.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Endless: ")
        assert sent(connection, b"a" * 65536, 16 << 20) < 8 << 20
    assert port.megabytes - before < 20


def test_half_open_requests_do_not_shut_the_owner_out(port: Port) -> None:
    """1,500 of them made the server unreachable, with nothing in its log."""
    held = []
    try:
        for number in range(1500):
            held.append(port.connect())
            held[-1].sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: x\r\n")
            if number % 300 == 299:
                assert port.server.api("GET", "/runs")["runs"]
        wait_until(lambda: "gave way to newer connections" in port.server.log, "a line", 10)
        assert port.server.log.count("gave way to newer connections") <= 2, "once a minute"
        assert psutil.Process(port.server.pid).num_fds() < DESCRIPTORS
    finally:
        for connection in held:
            connection.close()


# --- shares --------------------------------------------------------------------------------------


def test_sockets_that_say_nothing_take_no_stream(port: Port) -> None:
    """560 of them shut the owner out."""
    held = []
    try:
        for _ in range(560):
            held.append(port.connect())
            lines = f"Host: {port.server.url.removeprefix('http://')}\r\n{UPGRADE}"
            held[-1].sendall(f"GET /api/v1/stream HTTP/1.1\r\n{lines}\r\n".encode())
        assert taken(port, "stream", "admin", most=1) == 1
    finally:
        for connection in held:
            connection.close()


@pytest.mark.parametrize(("what", "most"), [("stream", 256), ("watch", 2)])
def test_a_reader_takes_half_of_the_places(port: Port, what: str, most: int) -> None:
    """It took all 512 streams, and all 4 viewers; meanwhile the owner gets one."""
    assert taken(port, what, "read", most + 5, "admin") == most


def taken(port: Port, what: str, scope: str, most: int, then: str = "") -> int:
    """How many places somebody gets of so many, holding on to all; `then` somebody gets one."""

    async def one(stack: contextlib.AsyncExitStack, who: str) -> bool:
        url = f"{port.server.url.replace('http', 'ws', 1)}/api/v1/{what}"
        header = {"Authorization": f"Bearer {port.tokens[who]}"}
        made: ClientConnection = await stack.enter_async_context(
            websockets.connect(url, additional_headers=header, proxy=None)
        )
        said = json.loads(await asyncio.wait_for(made.recv(), 30))
        return bool(said["type"] == "ready")

    async def all_of_them() -> int:
        async with contextlib.AsyncExitStack() as stack:
            got = [await one(stack, scope) for _ in range(most)]
            assert not then or await one(stack, then), "nobody else gets in"
            return got.count(True)

    return asyncio.run(all_of_them())


def test_a_reader_takes_half_of_the_sessions_of_mcp(port: Port) -> None:
    wait_until(lambda: port.ask("GET", "/mcp", "read").status_code != 503, "MCP", 60)
    statuses = [open_session(port, "read") for _ in range(MOST_SESSIONS // 2 + 2)]
    assert statuses == [200] * (MOST_SESSIONS // 2) + [429] * 2
    assert open_session(port, "admin") == 200


def open_session(port: Port, scope: str) -> int:
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
    accept = {"Accept": "application/json, text/event-stream"}
    return port.ask("POST", "/mcp", scope, json=message, headers=accept).status_code


# --- what is said and kept -----------------------------------------------------------------------


def test_what_somebody_wrote_steers_nobodys_screen(port: Port) -> None:
    path = f"/api/v1/runs/{port.run}"
    said = port.ask("POST", f"{path}/pause", "operate", json={"reason": NASTY})
    assert said.status_code < 500
    answer, printed = port.ask("GET", f"{path}/audit", "read"), port.cli("audit", port.run).stdout
    for text in (answer.json()["entries"][-1]["reason"], printed):
        assert "one two three" in text and "\x1b" not in text and "\u202e" not in text


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({"replay": {"run": "/etc/passwd"}}, "is no run's name"),
        ({"bus": {"kind": "sqlite", "max_experience_mb": 1 << 40}}, "max_experience_mb"),
        ({"actors": {"envs_per_actor": 65536, "rollout_steps": 65536}}, "GB a batch"),
    ],
)
def test_what_no_machine_can_hold_is_refused(port: Port, config: dict[str, Any], word: str) -> None:
    found = dry_run(port, {**CARTPOLE, **config})
    assert found.status_code == 422 and word in found.json()["detail"]


def test_a_forged_event_ends_no_run(port: Port) -> None:
    ended = encode_json(RunEnded(run=port.run, status="failed", reason="forged"))
    for headers in ({}, {"signature": "0" * 64, "place": "me:1"}):
        port.cli.home.control.publish([Outgoing(EVENTS, ended, port.run, headers)])
    answer = port.server.api("POST", f"/runs/{port.run}/label", {"notes": "after it"})
    assert answer["outcome"] == "accepted", "its answer lies behind the forged ones"
    assert port.server.api("GET", f"/runs/{port.run}")["status"] != "failed"
    assert "forged" not in port.ask("GET", f"/api/v1/runs/{port.run}/events", "read").text


def test_a_ticket_lasts_for_one_download(port: Port) -> None:
    logs = port.cli.home.run_dir(port.run) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "learner-0.1.log").write_bytes(b"0123456789")
    path = f"/api/v1/runs/{port.run}/artifacts/logs/learner-0.1.log"
    url = port.ask("POST", "/api/v1/tickets", "read", json={"path": path}).json()["url"]

    def fetch(method: str, **headers: str) -> tuple[int, bytes]:
        found = port.client.request(method, url, headers=headers)
        return found.status_code, found.content

    assert fetch("HEAD") == (200, b"")
    assert fetch("GET", Range="bytes=0-4") == (206, b"01234")
    assert fetch("GET", Range="bytes=5-") == (206, b"56789")
    assert fetch("GET") == (200, b"0123456789")
    assert fetch("GET", Range="bytes=0-4")[0] == 401
