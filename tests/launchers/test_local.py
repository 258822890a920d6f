"""Processes of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.launchers.local import LocalLife, behind
from rookery.worker import WorkerId
from tests.conftest import wait_until


def test_the_learner_goes_first_and_many_actors_step_further_back_than_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    actors = [behind(WorkerId("actor", index, 1)) for index in range(4)]
    assert behind(WorkerId("learner", 0, 1)) == 0
    assert actors == [5, 5, 10, 10]


HANGS = """
import faulthandler, time
from rookery.worker.process import SAY_WHERE
def in_the_middle_of_it():
    print("begun", flush=True)
    time.sleep(60)
faulthandler.register(SAY_WHERE)
in_the_middle_of_it()
"""


def test_one_that_is_ended_because_it_hangs_says_where(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w+b") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=log
        )
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        LocalLife(process, None).kill()
        assert process.wait(30) == -signal.SIGKILL
        process.stdout.close()
    assert "in in_the_middle_of_it" in (tmp_path / "log").read_text()


def test_one_that_is_stopped_is_ended_all_the_same() -> None:
    process = subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGSTOP)
    life = LocalLife(process, None)
    wait_until(life.is_stopped, "it to stop")
    life.kill()
    assert process.wait(30) == -signal.SIGKILL
    process.stdout.close()
