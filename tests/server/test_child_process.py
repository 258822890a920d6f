"""Processes that the server asks: they answer, or what became of them is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import psutil
import pytest
import uvloop

from rookery.server import child_process
from rookery.server.child_process import Child, ChildFrozen, ChildLost

pytestmark = pytest.mark.anyio

ECHO = """
import sys, time
for line in sys.stdin:
    if line == "long\\n":
        print("x" * 10_000)
    elif line == "hang\\n":
        time.sleep(600)
    elif line == "die\\n":
        sys.exit(1)
    else:
        print(line.upper(), end="")
    sys.stdout.flush()
"""


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop}  # as the server has it


class Echo(Child):
    """Says what it is told, in capitals."""

    def __init__(self) -> None:
        super().__init__((), {}, most_bytes=1000)
        self.started: list[int] = []

    def _start(self) -> subprocess.Popen[bytes]:
        made = subprocess.Popen(
            [sys.executable, "-c", ECHO],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.started.append(made.pid)
        return made


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    for pid in made.started:
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


async def test_one_process_answers_question_after_question(echo: Echo) -> None:
    assert await echo.ask(b"one", 30) == b"ONE\n"
    assert await echo.ask(b"two", 30) == b"TWO\n"
    assert len(echo.started) == 1
    await echo.close()
    await echo.close()  # nothing is left to close


@pytest.mark.parametrize(
    ("said", "deadline_s", "why"),
    [
        (b"die", 30.0, "died"),
        (b"long", 30.0, "said too much"),
        (b"hang", 0.3, "took longer than 0.3 s: it may hang"),
    ],
)
async def test_one_that_is_lost_is_told_ended_and_replaced(
    echo: Echo, said: bytes, deadline_s: float, why: str
) -> None:
    with pytest.raises(ChildLost, match=why):
        await echo.ask(said, deadline_s)
    assert await echo.ask(b"again", 30) == b"AGAIN\n"
    assert len(echo.started) == 2
    await echo.close()


async def test_one_that_was_killed_between_questions_is_told(echo: Echo) -> None:
    await echo.ask(b"one", 30)
    os.kill(echo.started[0], signal.SIGKILL)
    with pytest.raises(ChildLost, match="died"):
        await echo.ask(b"two", 30)


async def test_one_that_is_frozen_is_told_ended_and_replaced(
    echo: Echo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_process, "FROZEN_S", 0.3)
    monkeypatch.setattr(child_process, "LOOK_S", 0.05)
    await echo.ask(b"one", 30)
    os.kill(echo.started[0], signal.SIGSTOP)
    with pytest.raises(ChildFrozen, match=r"was frozen for 0\.3 s and was ended"):
        await echo.ask(b"two", 30)
    assert await echo.ask(b"again", 30) == b"AGAIN\n"
    assert len(echo.started) == 2
    await echo.close()


async def test_whoever_stops_waiting_can_end_it(echo: Echo) -> None:
    with anyio.move_on_after(0.2):
        await echo.ask(b"hang", 600)
    await echo.close()


async def test_it_is_started_by_the_thread_that_stays(echo: Echo) -> None:
    """On Linux a child that dies with its parent dies with the very thread that made it."""
    threads: list[int] = []
    start = echo._start

    def starting() -> subprocess.Popen[bytes]:
        threads.append(threading.get_ident())
        return start()

    echo._start = starting  # type: ignore[method-assign]
    await echo.ask(b"one", 30)
    assert threads == [threading.get_ident()]
    await echo.close()


def test_no_event_loop_forks_for_us() -> None:
    """uvloop runs Python in the child, where other threads' locks are held for ever."""
    server = os.path.dirname(child_process.__file__)
    for folder, _, names in os.walk(server):
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    assert "create_subprocess" not in file.read(), name
