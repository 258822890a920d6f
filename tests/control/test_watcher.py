"""Frozen processes are found and ended by what they leave in files: no bus, no log, no answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.bus import EARLIEST, Outgoing, sqlite_file
from rookery.bus.sqlite import SqliteBus
from rookery.config.reading import build
from rookery.control import lease
from rookery.control.watcher import Watcher
from rookery.errors import BusError
from rookery.launchers.local import LocalLife

CONFIG = build({"environment": {"id": "CartPole-v1"}, "restarts": {"silent_s": 3}})

HOLDER = """
import os, signal, sqlite3, sys
from pathlib import Path
from rookery.worker.progress import Pulse
pulse = Pulse(Path(sys.argv[1]), "sending")
db = sqlite3.connect(sys.argv[2], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""
OWNER = """
import sys, time
from pathlib import Path
from rookery.control.lease import take_lock
lease = take_lock(Path(sys.argv[1]))
print("mine", flush=True)
time.sleep(600)
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """A Python process that has said its first word."""
    made: list[subprocess.Popen[bytes]] = []

    def begin(code: str, *arguments: object) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", code, *map(str, arguments)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        made.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process

    yield begin
    for process in made:
        process.kill()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[SqliteBus]:
    made = SqliteBus(tmp_path / "bus.sqlite")
    yield made
    made.close()


def test_a_frozen_holder_of_the_bus_is_ended_while_others_wait_for_it(
    tmp_path: Path, bus: SqliteBus, start: Start
) -> None:
    bus.publish([Outgoing("t", b"before")])
    frozen = start(HOLDER, tmp_path / "actor-1.1", tmp_path / "bus.sqlite")
    watcher = Watcher(CONFIG)
    watcher.lives = {"actor-1.1": LocalLife(frozen, tmp_path / "actor-1.1")}
    watcher.start()
    try:
        assert bus.publish([Outgoing("t", b"after")], timeout_s=0.0) == [1]
        assert frozen.wait(30) == -signal.SIGKILL
    finally:
        watcher.close()
    silence = watcher.ended["actor-1.1"]
    assert silence.word == "frozen" and 3 <= silence.seconds < 10
    assert [r.payload for r in bus.subscribe("t", EARLIEST).poll(0.0)] == [b"before", b"after"]


def test_a_watcher_names_before_it_ends(tmp_path: Path, bus: SqliteBus, start: Start) -> None:
    frozen = start(HOLDER, tmp_path / "actor-1.1", tmp_path / "bus.sqlite")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
    watcher = Watcher(CONFIG)
    watcher.lives = {"actor-1.1": LocalLife(frozen, tmp_path / "actor-1.1")}
    now = time.monotonic()
    watcher.look(now)
    assert watcher.trouble is not None and watcher.trouble.startswith("actor-1 is frozen for ")
    watcher.look(now + 2)
    assert frozen.poll() is None and not watcher.ended
    watcher.look(now + 100)  # it slept itself
    assert frozen.poll() is None and not watcher.ended
    for later in range(101, 104):
        watcher.look(now + later)
    assert frozen.wait(30) == -signal.SIGKILL
    watcher.lives = {}
    watcher.look(now + 104)
    assert watcher.trouble is None


def test_whoever_holds_a_file_while_it_is_stopped_is_ended_though_nobody_started_it(
    tmp_path: Path, bus: SqliteBus, start: Start
) -> None:
    bus.publish([Outgoing("t", b"before")])
    stranger = start(HOLDER, tmp_path / "elsewhere", tmp_path / "bus.sqlite")
    os.waitid(os.P_PID, stranger.pid, os.WSTOPPED)
    watcher = Watcher(CONFIG, [tmp_path / "none.sqlite", tmp_path / "bus.sqlite"])
    for now in (0.0, 2.0, 100.0, 102.0):  # it slept itself before the third look
        watcher.look(now)
        assert stranger.poll() is None
    watcher.look(103.0)
    assert stranger.wait(30) == -signal.SIGKILL
    assert bus.publish([Outgoing("t", b"after")], timeout_s=0.0) == [1]


def test_a_stranger_that_is_stopped_and_holds_nothing_is_left_alone(
    tmp_path: Path, bus: SqliteBus, start: Start
) -> None:
    bus.publish([Outgoing("t", b"before")])
    stranger = start("import time; print('here', flush=True); time.sleep(600)")
    stranger.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, stranger.pid, os.WSTOPPED)
    watcher = Watcher(CONFIG, [tmp_path / "bus.sqlite"])
    for now in range(9):
        watcher.look(float(now))
    assert stranger.poll() is None


def test_a_look_that_fails_is_not_the_last(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.control.watcher.LOOK_S", 0.01)
    looks = threading.Event(), threading.Event()

    def fails(now: float) -> None:
        looks[looks[0].is_set()].set()
        raise OSError(24, "Too many open files")

    watcher = Watcher(CONFIG)
    monkeypatch.setattr(watcher, "look", fails)
    watcher.start()
    try:
        assert all(look.wait(10) for look in looks)
    finally:
        watcher.close()


def test_one_that_says_nothing_and_is_not_stopped_is_left_alone(
    tmp_path: Path, start: Start
) -> None:
    """Its disk may have been full when it began."""
    mute = start("import time; print('here', flush=True); time.sleep(600)")
    watcher = Watcher(CONFIG)
    watcher.lives = {"learner-0.1": LocalLife(mute, tmp_path / "learner-0.1")}
    for now in range(0, 4000, 2):
        watcher.look(float(now))
    assert mute.poll() is None and watcher.trouble is None


def test_one_that_was_frozen_before_it_said_anything_is_ended_too(
    tmp_path: Path, start: Start
) -> None:
    mute = start("import time; print('here', flush=True); time.sleep(600)")
    watcher = Watcher(CONFIG)
    watcher.lives = {"learner-0.1": LocalLife(mute, tmp_path / "learner-0.1")}
    watcher.look(0.0)
    mute.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, mute.pid, os.WSTOPPED)
    for now in range(1, 4):
        watcher.look(float(now))
    assert mute.wait(30) == -signal.SIGKILL


def test_who_waits_for_long_is_told_who_is_frozen_on_the_lock(
    tmp_path: Path, bus: SqliteBus, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "LEAST_WRITE_PATIENCE_S", 0.2)
    bus.publish([Outgoing("t", b"x")])
    frozen = start(HOLDER, tmp_path / "actor-1.1", tmp_path / "bus.sqlite")
    os.waitid(os.P_PID, frozen.pid, os.WSTOPPED)
    with pytest.raises(BusError, match=rf"by process {frozen.pid}, which is frozen: let it go on"):
        bus.publish([Outgoing("t", b"y")], timeout_s=0.0)


# --- leases --------------------------------------------------------------------------------------


def test_a_lease_that_is_renewed_is_its_holders(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "owner.lock"
    owner = start(OWNER, path)
    found = lease.holder(path)
    assert found is not None and found.progress.pid == owner.pid and not found.seen.stopped
    assert lease.evict(path, 3.0) is None and lease.take_lock(path) is None
    owner.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, owner.pid, os.WSTOPPED)
    assert lease.evict(path, 60.0) is None  # not for long enough
    assert owner.poll() is None


def test_a_frozen_holder_of_a_lease_is_ended_by_who_takes_over(
    tmp_path: Path, start: Start, eventually: Callable[..., Any]
) -> None:
    path = tmp_path / "owner.lock"
    owner = start(OWNER, path)
    owner.send_signal(signal.SIGSTOP)
    found = eventually(
        lambda: (h := lease.holder(path)) and h.is_frozen(1.5) and h, "a silent holder", 10
    )
    assert found.progress.pid == owner.pid
    said = lease.evict(path, 1.5)
    assert said is not None and said.startswith(f"process {owner.pid} was frozen for ")
    assert owner.wait(30) == -signal.SIGKILL
    with lease.take_lock(path) as mine:  # type: ignore[union-attr]
        assert mine is not None and lease.holder(path).progress.pid == os.getpid()  # type: ignore[union-attr]


def test_one_that_goes_on_just_in_time_keeps_its_lease(
    tmp_path: Path, start: Start, eventually: Callable[..., Any]
) -> None:
    path = tmp_path / "owner.lock"
    owner = start(OWNER, path)
    owner.send_signal(signal.SIGSTOP)
    eventually(lambda: (h := lease.holder(path)) and h.is_frozen(1.5), "a silent holder", 10)
    timer = threading.Timer(0.2, owner.send_signal, [signal.SIGCONT])
    timer.start()
    assert lease.evict(path, 1.5) is None
    timer.join(10)
    assert owner.poll() is None
