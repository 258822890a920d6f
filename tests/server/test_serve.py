"""`rookery serve` as a process: what it says, and that it means it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.conftest import Cli


def test_ctrl_c_ends_it_from_the_moment_it_says_so(cli: Cli) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rookery", "serve", "--port", "0"],
        env=cli.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("Ctrl-C ends it"):
            assert line, process.communicate(timeout=60)[1]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait(10)
    assert process.returncode == 0, err
