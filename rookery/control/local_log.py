"""A home's log as one command in the shell follows it, and answers where nobody else will.

The owner of a run answers, be it a terminal or a server. Where nobody owns it and no server lives
in this home the answer is given here, under the run's lease, and what the command asks for happens
when somebody carries the run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

from rookery.control.files import purge
from rookery.control.home import Home
from rookery.control.log_messages import Message
from rookery.control.log_pages import Said
from rookery.control.log_reader import read_bus
from rookery.control.queries import owner_of
from rookery.control.run_log import RunLog
from rookery.control.run_state import ACTIVE, DELETED, STOPPED, RunState
from rookery.messages import CommandAccepted, CommandRejected, RunEnded

T = TypeVar("T")

TICK_S = 0.02


class LocalLog:
    """The log of one run or of all; read when it is made, so that no answer to what is sent later
    can be in what others have folded already, and whenever somebody waits."""

    def __init__(self, home: Home, run: str | None = None) -> None:
        _ = home.control  # made first: a home that cannot be used says so
        self._home, self._log = home, RunLog(home, run)
        self._answers: dict[str, Said] = {}
        self._read()

    @property
    def states(self) -> Mapping[str, RunState]:
        return self._log.states

    def answer(self, command_id: str) -> Said | None:
        return self._answers.get(command_id)

    def owner(self, run: str) -> str:
        return owner_of(self._home, self.states[run]) if run in self.states else ""

    def log(
        self, channel: Literal["events", "commands"], run: str | None, after: int, limit: int
    ) -> list[Message]:
        return read_bus(self._home, None, channel, run, after, limit).messages

    async def until(self, run: str, probe: Callable[[], T | None], wait_s: float) -> T | None:
        deadline = time.monotonic() + wait_s
        while True:
            self._read()
            found = probe()
            if found is not None or time.monotonic() >= deadline:
                return found
            if not (_is_ours(self._home, self.states.get(run)) and _answer(self._home, run)):
                await asyncio.sleep(TICK_S)

    def _read(self) -> None:
        for message in self._log.read():
            if isinstance(message, CommandAccepted | CommandRejected):
                self._answers.setdefault(message.command, message)  # the first counts


def is_carried(home: Home, run: str) -> bool:
    """Whether somebody sees to the run now, or will at once."""
    return home.is_owned(run) or home.has_server()


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Its result; in a thread where an event loop runs here already, as in a notebook."""
    if asyncio._get_running_loop() is None:
        return _run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_run, work).result()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Not `asyncio.run`: with that Ctrl-C would wait for an environment that takes its time."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()


def _is_ours(home: Home, state: RunState | None) -> bool:
    """Whether nobody else will answer. A cluster's runs may be carried by another machine."""
    if state is None or not state.commands or is_carried(home, state.id):
        return False
    return home.cluster is None or state.status not in ACTIVE


def _answer(home: Home, run: str) -> bool:
    """Judge what waits, as the owner that the run has for this moment; False: it has another."""
    lease = home.take_lease(run)
    if lease is None:
        return False
    with lease:
        log = RunLog(home, run)
        log.read()
        log.answer(run)
        state = log.states[run]
        if state.desired == STOPPED and state.status in ACTIVE:  # its owner died
            home.record(RunEnded(run=run, status="stopped", reason="asked to stop"))
        if state.desired == DELETED:
            purge(home, state)
    return True
