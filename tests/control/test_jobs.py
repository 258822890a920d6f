"""Evaluations and matches in processes of their own, and what becomes of them when those end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.control import jobs
from rookery.control.jobs import KILLS, Jobs
from rookery.messages import Evaluate, JobDone, JobStarted


class FakeHome:
    """Keeps what is recorded."""

    environment: dict[str, str] = {}  # noqa: RUF012 nobody changes it

    def __init__(self, path: Path) -> None:
        self._path = path
        self.events: list[Any] = []

    def run_dir(self, run: str) -> Path:
        return self._path / run

    def record(self, event: Any) -> None:
        self.events.append(event)

    def told(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def home(tmp_path: Path) -> FakeHome:
    return FakeHome(tmp_path)


JOB = Evaluate(run="r")
WANTED = {JOB.id: JOB}


def at_work(monkeypatch: pytest.MonkeyPatch, home: FakeHome, script: str) -> Jobs:
    """Jobs whose processes run a script instead."""
    begin = subprocess.Popen

    def begin_script(argv: Any, **options: Any) -> subprocess.Popen[bytes]:
        return begin([sys.executable, "-c", script], **options)

    monkeypatch.setattr(jobs.subprocess, "Popen", begin_script)
    made = Jobs(home, "r")  # type: ignore[arg-type]
    made.step(WANTED)
    return made


def wait(made: Jobs) -> None:
    assert made._process is not None
    made._process.wait(30)
    made.step(WANTED)


def test_a_job_that_is_killed_is_begun_anew_a_few_times(
    monkeypatch: pytest.MonkeyPatch, home: FakeHome
) -> None:
    made = at_work(monkeypatch, home, "import time; time.sleep(600)")
    for number in range(KILLS):
        assert made._process is not None
        made._process.send_signal(signal.SIGKILL)
        wait(made)
        done = home.told(JobDone)
        assert len(done) == (number + 1 == KILLS), "it is given up with its last kill"
        if not done:
            made.step(WANTED)
    assert len(home.told(JobStarted)) == KILLS
    assert done[0].command == JOB.id and "SIGKILL" in done[0].error
    assert not made.busy


def test_a_job_that_fails_is_told_at_once(monkeypatch: pytest.MonkeyPatch, home: FakeHome) -> None:
    made = at_work(monkeypatch, home, "raise SystemExit(1)")
    wait(made)
    (done,) = home.told(JobDone)
    assert done.command == JOB.id and done.error


def test_a_job_that_nobody_wants_any_more_is_ended(
    monkeypatch: pytest.MonkeyPatch, home: FakeHome
) -> None:
    made = at_work(monkeypatch, home, "import time; time.sleep(600)")
    made.step({})
    assert not made.busy and not home.told(JobDone)
