"""What a worker says of its progress can be read by others at once, and ends with it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rookery.processes import look_at
from rookery.worker import progress
from rookery.worker.progress import DOING, Pulse, read_progress


def test_what_is_said_is_read_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "progress" / "actor-0.1"
    with Pulse(path) as pulse:
        began = read_progress(path)
        assert began is not None and began.doing == "starting" and began.pid == os.getpid()
        seen = look_at(os.getpid())
        assert seen is not None and began.started == seen.started and not seen.stopped
        for doing in DOING:
            before = time.monotonic()
            pulse.busy(doing)
            found = read_progress(path)
            assert found is not None and found.doing == doing
            assert before <= found.since <= time.monotonic()
        assert found.count == began.count + len(DOING)
    assert not path.exists()


def test_it_beats_by_itself_while_the_loop_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    monkeypatch.setattr(progress, "BEAT_S", 0.01)
    path, excused = tmp_path / "actor-0.1", False
    with Pulse(path, excused=lambda: excused):
        first = read_progress(path)
        assert first is not None

        def later() -> Any:
            now = read_progress(path)
            return now if now is not None and now.beat > first.beat else None

        assert eventually(later, "a beat", 10).since == first.since
        excused = True  # something else is waited for: it is not at the same thing for long
        eventually(lambda: later().since > first.since, "an excuse", 10)


def test_it_beats_on_while_somebody_thinks_about_an_excuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., Any]
) -> None:
    """A bus that is away takes its time to say so."""
    monkeypatch.setattr(progress, "BEAT_S", 0.01)
    asked, answer = threading.Event(), threading.Event()

    def thinks() -> bool:
        asked.set()
        return answer.wait(30)

    def beat() -> float:
        found = read_progress(tmp_path / "actor-0.1")
        return found.beat if found is not None else 0.0

    with Pulse(tmp_path / "actor-0.1", excused=thinks):
        assert asked.wait(30)
        before = beat()
        eventually(lambda: beat() > before, "a beat", 10)
        answer.set()


@pytest.mark.parametrize("content", [b"", b"x" * 64, bytes(64), bytes(63)])
def test_a_file_that_holds_no_record_says_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_progress(tmp_path / "file") is None
    assert read_progress(tmp_path / "nowhere") is None


def test_a_record_of_another_machine_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock is not ours."""
    with Pulse(tmp_path / "file"):
        monkeypatch.setattr(progress, "machine", lambda: 1)
        assert read_progress(tmp_path / "file") is None


def test_a_worker_whose_progress_cannot_be_shown_works_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with Pulse(tmp_path / "file" / "actor-0.1") as pulse:
        pulse.busy("step")
        assert pulse.now().doing == "step"
