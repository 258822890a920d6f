"""docs/api.md is true: its examples run, in their order, against a true server."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from tests.conftest import Cli
from tests.docs.pages import blocks, commands, fences, text_of

PAGE = "docs/api.md"
TEXT = text_of(PAGE)


def test_the_examples_run(cli: Cli) -> None:
    server = cli.serve("--cpus", 8)
    environment = {**cli.environment, "URL": server.url, "TOKEN": server.token}

    def run(*argv: str) -> str:
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    looked, changed = ([commands(fence) for fence in fences(PAGE, "sh")])[:2]
    for line in looked:
        assert "title" not in json.loads(run("sh", "-c", line)), line
    outcomes = [json.loads(run("sh", "-c", line))["outcome"] for line in changed]
    assert outcomes == ["accepted", "would_accept", "accepted", "accepted"]
    again = json.loads(run("sh", "-c", changed[0]))
    assert again["run"] == server.api("GET", "/runs")["runs"][-1]["run"], "the key made no second"
    assert len(server.api("GET", "/runs")["runs"]) == 1

    stream, watch, client = blocks(PAGE, "python")
    assert "create_run" not in run(sys.executable, "-c", stream)
    said = run(sys.executable, "-c", client)
    assert "exact=True" in said
    environment["RUN"] = server.api("GET", "/runs?limit=1")["runs"][0]["run"]  # the newest
    assert run(sys.executable, "-c", watch).startswith("main@")
    assert server.interrupt().code == 0


def test_every_address_of_the_page_is_in_the_document(cli: Cli) -> None:
    server = cli.serve()
    paths = server.api("GET", "/openapi.json")["paths"]
    known = {re.sub(r"\{[^}]*\}", "*", path) for path in paths}
    named = set()
    for row in re.findall(r"^\| (`(?:GET|POST|DELETE).*?) \|", TEXT, re.M):
        prefix = ""
        for address in re.findall(r"`(?:(?:GET|POST|DELETE),? ?`?)*([^`]*/[^`]*)`", row):
            path = address.split()[-1].partition("?")[0]
            if path.startswith(("/api", "/metrics", "/healthz", "/readyz")):
                prefix = path.rpartition("/")[0]
            else:
                path = prefix + path
            named.add(re.sub(r"/(RUN|GROUP|SWEEP|PATH|FILE|ID)(?=/|$)", "/*", path))
    assert named <= known, named - known
    missing = known - named - {"/api/v1/openapi.json"}
    assert not missing, f"addresses that docs/api.md leaves out: {missing}"
    assert server.interrupt().code == 0
