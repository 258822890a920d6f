"""The home's log as a sweep follows it: the states of all runs, and what its evaluations found.

`Results` alone is for who follows the log already, as a server does: it reads on where it was left.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
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


ReadLog = Callable[[Literal["events"], str | None, int, int], list[Message]]
"""The first events after a seq."""


class Results:
    """What the evaluations of sweeps found, by the command that asked for each; one thread's."""

    def __init__(self, home: Home) -> None:
        self.found: dict[str, Result] = {}
        self._home = home
        self._sweeps: set[str] = set()
        self._judging: set[str] = set()
        self._seats: dict[str, list[str]] = {}
        self._after = -1

    def want(self, spec: SweepSpec) -> None:
        """Those of another sweep too; what was read before is read again for it."""
        if spec.id in self._sweeps:
            return
        self._sweeps.add(spec.id)
        self._judging |= {
            command_id(spec.id, trial, seed, "evaluate")
            for trial in range(spec.trials)
            for seed in range(spec.places)
        }
        self._after = -1

    def read(self, log: ReadLog, states: Mapping[str, RunState], end: int | None = None) -> None:
        """On from where it was left; `end`: the seq up to which `states` know the runs."""
        while end is None or self._after < end:
            found = log("events", None, self._after, PORTION)
            known = [message for message in found if end is None or message.seq <= end]
            for message in known:
                if message.kind in _MATTER and message.run in states:
                    self.note(decode_json(message.payload, Event), states)
            if not known:
                return
            self._after = known[-1].seq

    def note(self, said: JobDone | CommandRejected, states: Mapping[str, RunState]) -> None:
        if said.command not in self._judging or said.command in self.found:
            return
        if isinstance(said, CommandRejected):
            self.found[said.command] = Result(error=f"it was not judged: {said.why}")
        else:
            self.found[said.command] = result_of(said, self._seats_of(states[said.run]))

    def _seats_of(self, state: RunState) -> list[str]:
        """Where the first policy that learns sits."""
        if state.id not in self._seats:
            config, spec = self._home.config(state), self._home.spec(state)
            names = list(spec.seats)
            live = Seating.of(config, spec).live.get(config.learning[0], ()) if names[1:] else ()
            self._seats[state.id] = [names[number] for number in live]
        return self._seats[state.id]


class SweepLog:
    """A `LogView` for the service; one thread's."""

    def __init__(self, home: Home, spec: SweepSpec) -> None:
        self._home = home
        everyone = [(n, seed) for n in range(spec.trials) for seed in range(spec.places)]
        self.created = {command_id(spec.id, n, seed) for n, seed in everyone}
        self._answers: dict[str, Said] = {}
        self._results = Results(home)
        self._results.want(spec)
        self._log = RunLog(home)
        self._log.read()
        if any(self.is_mine(state) for state in self.states.values()):
            self._results.read(self.log, self.states)  # of before, once

    @property
    def results(self) -> dict[str, Result]:
        return self._results.found

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
                self._results.note(message, self.states)
        return bool(messages)

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
