"""Verbs that take their time say so in a terminal, and nowhere else."""

from __future__ import annotations

import json
import sys

from tests.conftest import ROOT, Cli
from tests.docs.terminal import Terminal

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
SCRIPT = "import time; from rookery.cli.waiting import waiting\nwith waiting('two play'): {}"


def test_a_clock_goes_on_in_a_terminal_and_leaves_nothing_behind(cli: Cli) -> None:
    line = f'{sys.executable} -c "{SCRIPT.format("time.sleep(1.5)")}"'
    with Terminal(line, cli.environment, ROOT) as terminal:
        terminal.wait_for("0 s  two play", 60)
        shown = terminal.finish(60)
    assert shown.code == 0 and "1 s  two play" in shown.text


def test_mcp_tells_who_typed_it_what_it_is_for_and_ends_with_ctrl_c(cli: Cli) -> None:
    with Terminal(f"exec {sys.executable} -m rookery mcp", cli.environment, ROOT) as terminal:
        terminal.type(json.dumps(HELLO))
        terminal.wait_for("serverInfo", 60)  # from here on it waits for a line
        shown = terminal.interrupt()
    assert shown.code == 0 and "an assistant talks MCP" in shown.text


def test_a_word_too_many_is_no_option(cli: Cli) -> None:
    said = cli.refused("scale", "last", "--actors", 4, "rookery", "pause")
    assert "takes no 'rookery' here" in said
