"""Two MCP clients of others behind one interface, each at both of our doors.

said = client.steps(["tools"], ["call", "list_runs", {}], ["read", "rookery://runs"])
said[1].data, said[2].error             # what came back of each
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import Cli, Served
from tests.foreign_clients.packages import inspector, python_with

STEPS = Path(__file__).with_name("fastmcp_steps.py")
STDIO = [sys.executable, "-m", "rookery", "mcp", "--scope", "admin"]
TIMEOUT_S = 300.0
PASSED = ("ROOKERY_HOME", "ROOKERY_COMPILE_CACHE")
TOOL_FAILED = 5  # what the inspector ends with then


class Said(NamedTuple):
    """What came back: data, or one line that says what is wrong."""

    data: dict[str, Any]
    error: str = ""


class FastMcp:
    """All steps in one session."""

    def __init__(self, cli: Cli, server: Served | None) -> None:
        """Over HTTP with its token, or over standard input if no server is named."""
        self._cli, self._python = cli, python_with("fastmcp")
        self._target: dict[str, Any] = {"command": STDIO}
        if server is not None:
            self._target = {"url": f"{server.url}/mcp", "token": server.token}

    def steps(self, *steps: list[Any]) -> list[Said]:
        argv = [str(self._python), str(STEPS), json.dumps(self._target)]
        done = output(argv, self._cli, json.dumps(steps))
        assert done.returncode == 0, done.stderr
        return [
            Said(found.get("data", {}), found.get("error", "")) for found in json.loads(done.stdout)
        ]


class Inspector:
    """Each step is a command, and a session."""

    def __init__(self, cli: Cli, server: Served | None) -> None:
        self._cli = cli
        # it keeps state in the user's home
        self._argv = ["env", f"HOME={cli.home.path.parent}", *inspector(), "--cli"]
        self._argv += ["--connect-timeout", f"{1000 * TIMEOUT_S:.0f}"]
        passed = [f"{key}={cli.environment[key]}" for key in PASSED]
        self._last = [*(word for pair in passed for word in ("-e", pair)), *STDIO]
        if server is not None:
            header = ["--header", f"Authorization: Bearer {server.token}"]
            self._argv += [f"{server.url}/mcp", "--transport", "http", *header]
            self._last = []

    def steps(self, *steps: list[Any]) -> list[Said]:
        return [self._step(*asked) for asked in steps]

    def _step(self, what: str, *asked: Any) -> Said:
        if what == "tools":
            return self._said(self.run("--method", "tools/list", "--strict"))
        if what == "read":
            return self._said(self.run("--method", "resources/read", "--uri", asked[0]))
        pairs = [f"{key}={_written(value)}" for key, value in asked[1].items()]
        given = [word for pair in pairs for word in ("--tool-arg", pair)]
        return self._said(self.run("--method", "tools/call", "--tool-name", asked[0], *given))

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return output([*self._argv, *options, *self._last], self._cli)

    def _said(self, done: subprocess.CompletedProcess[str]) -> Said:
        if done.returncode not in (0, TOOL_FAILED):
            return Said({}, json.loads(done.stderr)["error"]["message"])
        found = json.loads(done.stdout)
        if found.get("isError"):
            return Said({}, found["content"][0]["text"])
        if "contents" in found:
            return Said(json.loads(found["contents"][0]["text"]))
        return Said(found.get("structuredContent", found))


def output(argv: list[str], cli: Cli, told: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        env=cli.environment,
        input=told,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
