"""A true server that is sent what nobody should send: it answers all of it, and goes on.

A seed makes all of it, so what fails can be sent again: ROOKERY_FUZZ_SEED=7.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from rookery.config.reading import build
from rookery.control.tokens import TokenStore
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec
from tests.conftest import Cli, Served, wait_until
from tests.server.fuzz.calls import Calls
from tests.server.fuzz.fuzzer import Fuzzer
from tests.server.fuzz.requests import World
from tests.server.fuzz.spoken import speak

SEAT = SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))
SPEC = EnvironmentSpec("CartPole-v1", {"player_0": SEAT})
CARTPOLE = {"environment": {"id": "CartPole-v1"}}
BRIEF: dict[str, Any] = {**CARTPOLE, "stop": {"steps": 16_384}}
UNLIMITED = """
cpus: 1
server: {requests_per_s: 1.0e+6, burst: 1000000, changes_per_s: 1.0e+6, change_burst: 1000000}
"""
PULSE_S = 1.0
MOST_MB = 150
MOST_LINES = 400  # some twenty kinds of refusals, once a minute each


@pytest.fixture
def server(cli: Cli) -> Iterator[Served]:
    """With runs that nobody trains, and no bound on how often somebody may ask."""
    make_runs(cli)
    served = cli.serve(descriptors=1024, timeout=240)
    yield served
    assert served.interrupt().code == 0


def make_runs(cli: Cli) -> None:
    cli.home.path.mkdir(exist_ok=True)
    (cli.home.path / "rookery.yaml").write_text(UNLIMITED)
    for number in range(4):
        run = f"run-{number}"
        cli.home.create(build(CARTPOLE), SPEC, "ann", run)
        logs = cli.home.run_dir(run) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "learner-0.1.log").write_text("a line\n" * 100)


def world_of(server: Served, cli: Cli) -> World:
    store = TokenStore(cli.home.path / "tokens.json")
    made = {s: store.create(s, None, s).token for s in ("read", "operate", "admin")}
    document = server.api("GET", "/openapi.json")
    tokens = {**made, "": "", "wrong": "rk_00000000_" + "a" * 43}
    world = World(server.url.removeprefix("http://"), tokens, tuple(cli.home.states()), document)
    url = f"{server.url}/mcp"
    wait_until(lambda: httpx2.get(url, headers=server.headers).status_code != 503, "MCP", 60)
    return world


def fuzz(server: Served, cli: Cli, seed: int, costly: float, **counts: int) -> Fuzzer:
    world = world_of(server, cli)
    process = psutil.Process(server.pid)
    warm = Fuzzer(world, server.pid, seed - 1, 0.0)
    asyncio.run(warm.run(300, 300, 100))  # caches, pools of threads
    before = process.memory_info().rss
    fuzzer = Fuzzer(world, server.pid, seed, costly)
    began = time.monotonic()
    asyncio.run(fuzzer.run(**counts))
    print(f"\nseed {seed}: {dict(fuzzer.statuses)}, WebSockets {dict(fuzzer.codes)}")
    print(f"{time.monotonic() - began:.0f} s, slowest /healthz {fuzzer.slowest_pulse_s:.2f} s")
    print(f"grown by {(process.memory_info().rss - before) / 2**20:.0f} MB")
    assert not fuzzer.bad, "\n".join(fuzzer.bad[:5])
    assert "Traceback" not in server.log, server.log
    assert len(server.log.splitlines()) < MOST_LINES, server.log
    assert server.process.poll() is None
    assert (process.memory_info().rss - before) / 2**20 < MOST_MB
    assert fuzzer.slowest_pulse_s < PULSE_S
    return fuzzer


def fuzz_stdio(cli: Cli, tmp_path: Path, seed: int, count: int) -> None:
    """By standard input, beside whatever server there is."""
    calls = Calls(World("", {}, tuple(cli.home.states()), {}), seed, 0.0)
    command, log = [sys.executable, "-m", "rookery", "mcp"], tmp_path / "mcp.err"
    lines = map(calls.make, range(count))
    bad = asyncio.run(speak(command, cli.environment, lines, log))
    assert not bad, f"seed {seed}\n" + "\n".join(bad[:5])
    assert "Traceback" not in log.read_text(), log.read_text()[-4000:]


def seed_or(default: int) -> int:
    return int(os.environ.get("ROOKERY_FUZZ_SEED", default))


def test_thousands_of_requests_and_messages(server: Served, cli: Cli) -> None:
    fuzz(server, cli, seed_or(1), 0.0, requests=3000, messages=2000, calls=1000)
    answer = server.api("POST", "/runs", {"config": CARTPOLE, "start": False})
    assert answer["outcome"] == "accepted", answer


def test_hundreds_of_messages_over_standard_input(cli: Cli, tmp_path: Path) -> None:
    make_runs(cli)
    fuzz_stdio(cli, tmp_path, seed_or(1), 600)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_of_each(server: Served, cli: Cli, tmp_path: Path) -> None:
    """Of requests, and of messages: over WebSockets, MCP's over HTTP and over standard input. A
    fresh seed each time, unless one is given."""
    trained = server.api("POST", "/runs", {"config": BRIEF})["run"]
    wait_until(lambda: ended(server, trained), "something to read about", 300)
    seed = seed_or(secrets.randbelow(10**9))
    fuzz(server, cli, seed, 0.0005, requests=100_000, messages=50_000, calls=40_000)
    fuzz_stdio(cli, tmp_path, seed, 10_000)
    answer = server.api("POST", "/runs", {"config": BRIEF})
    wait_until(lambda: ended(server, answer["run"]), "a run that trains as ever", 600)


def ended(server: Served, run: str) -> bool:
    return bool(server.api("GET", f"/runs/{run}")["env_steps"] >= BRIEF["stop"]["steps"])
