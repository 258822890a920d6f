"""A true server with 1,024 descriptors, which strangers hold on to while its owner works."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.conftest import ROOT, Cli, Served, wait_until

DESCRIPTORS = 1024
FLOOD = ROOT / "benchmarks" / "flood.py"


@pytest.fixture
def server(cli: Cli) -> Iterator[Served]:
    served = cli.serve(descriptors=DESCRIPTORS)
    yield served
    assert served.interrupt().code == 0


def megabytes(server: Served) -> float:
    return float(psutil.Process(server.pid).memory_info().rss / 2**20)


def kinds(log: str) -> list[str]:
    """What the log says that was refused, a name for each line."""
    said = [line for line in log.splitlines() if "refused" in line]
    return [line.split("(")[1].split(")")[0] for line in said]


def test_half_open_requests_do_not_shut_the_owner_out(server: Served) -> None:
    """Before, 1,500 of them made the server unreachable, with nothing in its log."""
    host, port = server.url.removeprefix("http://").split(":")
    held = []
    try:
        for number in range(1500):
            held.append(socket.create_connection((host, int(port)), 10))
            held[-1].sendall(b"GET /api/v1/runs HTTP/1.1\r\nHost: x\r\n")
            if number % 300 == 299:
                assert server.api("GET", "/runs")["runs"] == []
        said = wait_until(lambda: kinds(server.log), "a line in the log", 10)
        assert said == ["gave way to newer connections"]
        assert psutil.Process(server.pid).num_fds() < DESCRIPTORS
    finally:
        for connection in held:
            connection.close()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_flood_of_all_kinds_costs_little_memory_and_few_lines(server: Served) -> None:
    seconds, before = 60, megabytes(server)
    options = ["--connections", "2000", "--seconds", str(seconds)]
    with subprocess.Popen(
        [sys.executable, str(FLOOD), "attack", server.url, *options], stdout=subprocess.PIPE
    ) as strangers:
        while strangers.poll() is None:
            assert server.api("GET", "/runs")["runs"] == []
        assert strangers.stdout is not None
        made = json.loads(strangers.stdout.read())
    assert len(made) == 5 and sum(made.values()) >= 2000, made
    assert megabytes(server) - before < 100
    said = kinds(server.log)
    assert all(said.count(kind) <= 2 for kind in said), "one a kind and minute, over a minute"
    assert len(server.log.splitlines()) < 40, server.log
