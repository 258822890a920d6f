"""Verbs that take their time say so in a terminal, and nowhere else."""

from __future__ import annotations

import sys

from tests.conftest import ROOT, Cli
from tests.docs.terminal import Terminal

SCRIPT = "import time; from rookery.cli.waiting import waiting\nwith waiting('two play'): {}"


def test_a_clock_goes_on_in_a_terminal_and_leaves_nothing_behind(cli: Cli) -> None:
    line = f'{sys.executable} -c "{SCRIPT.format("time.sleep(1.5)")}"'
    with Terminal(line, cli.environment, ROOT) as terminal:
        terminal.wait_for("0 s  two play", 60)
        shown = terminal.finish(60)
    assert shown.code == 0 and "1 s  two play" in shown.text


def test_mcp_tells_who_typed_it_that_it_is_for_an_assistant(cli: Cli) -> None:
    with Terminal(f"{sys.executable} -m rookery mcp", cli.environment, ROOT) as terminal:
        terminal.wait_for("an assistant talks MCP", 60)
        terminal.interrupt()


def test_a_word_too_many_is_no_option(cli: Cli) -> None:
    said = cli.refused("scale", "last", "--actors", 4, "rookery", "pause")
    assert "takes no 'rookery' here" in said
