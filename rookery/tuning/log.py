"""The home's log as a sweep follows it: the states of all runs, and what its evaluations found."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from rookery.control.home import Home
from rookery.control.log_messages import Message
from rookery.control.log_pages import PORTION, Said
from rookery.control.log_reader import read_bus
from rookery.control.queries import owner_of
from rookery.control.run_log import RunLog
from rookery.control.run_state import RunState
from rookery.messages import CommandAccepted, CommandRejected, Event, JobDone, decode_json
from rookery.players.seat_map import Seating
from rookery.tuning.spec import SweepSpec
from rookery.tuning.trials import Result, command_id, result_of

T = TypeVar("T")
TICK_S = 0.02
_MATTER = ("job_done", "command_rejected")


class SweepLog:
    """A `LogView` for the service; one thread's."""

    def __init__(self, home: Home, spec: SweepSpec) -> None:
        self._home = home
        everyone = [(n, seed) for n in range(spec.trials) for seed in range(spec.seeds)]
        self._judging = {command_id(spec.id, n, seed, "evaluate") for n, seed in everyone}
        self.created = {command_id(spec.id, n, seed) for n, seed in everyone}
        self._answers: dict[str, Said] = {}
        self._seats: dict[str, list[str]] = {}
        self.results: dict[str, Result] = {}
        self._log = RunLog(home)
        self._log.read()
        self._read_results()

    @property
    def states(self) -> dict[str, RunState]:
        return self._log.states

    def is_mine(self, state: RunState) -> bool:
        """Whether a run is one of this sweep's."""
        return state.created_by in self.created

    def read(self) -> bool:
        """Whether there was anything new."""
        messages = self._log.read()
        for message in messages:
            if isinstance(message, CommandAccepted | CommandRejected):
                self._answers.setdefault(message.command, message)
            if isinstance(message, JobDone | CommandRejected):
                self._note(message)
        return bool(messages)

    def _read_results(self) -> None:
        """Of before, once; the states hold no results."""
        if not any(self.is_mine(state) for state in self.states.values()):
            return
        after = -1
        while found := self.log("events", None, after, PORTION):
            for message in found:
                if message.kind in _MATTER:
                    self._note(decode_json(message.payload, Event))
            after = found[-1].seq

    def _note(self, said: JobDone | CommandRejected) -> None:
        if said.command not in self._judging or said.command in self.results:
            return
        if isinstance(said, CommandRejected):
            self.results[said.command] = Result(error=f"it was not judged: {said.why}")
        else:
            self.results[said.command] = result_of(said, self._seats_of(said.run))

    def _seats_of(self, run: str) -> list[str]:
        """Where the first policy that learns sits."""
        if run not in self._seats:
            state = self.states[run]
            config, spec = self._home.config(state), self._home.spec(state)
            names = list(spec.seats)
            live = Seating.of(config, spec).live.get(config.learning[0], ()) if names[1:] else ()
            self._seats[run] = [names[number] for number in live]
        return self._seats[run]

    # --- for the service -------------------------------------------------------------------------

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
            self.read()
            found = probe()
            if found is not None or time.monotonic() >= deadline:
                return found
            await asyncio.sleep(TICK_S)
