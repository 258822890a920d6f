"""The control log as its readers see it: commands and events of one run or of all, folded.

Only commands that were signed with the home's key are folded; the others are kept apart, for the
owner of their run to reject.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from rookery.bus import EARLIEST, Bus, Record, Subscription
from rookery.control.run_state import RunState, apply, why_not
from rookery.errors import MessageError
from rookery.messages import (
    COMMANDS,
    EVENTS,
    Command,
    CommandAccepted,
    CommandRejected,
    Event,
    decode_json,
)

MAX_UNSIGNED = 10_000  # kept until their run's owner has rejected them
MAX_ID = 128  # of a command that nobody vouches for
UNSIGNED = "it is not signed with this home's key: send it through the server or the command line"


class LogHome(Protocol):
    """What a log needs of its home."""

    @property
    def control(self) -> Bus: ...

    def record(self, *events: Event) -> None: ...

    def trusts(self, topic: str, run: str, payload: bytes, headers: Mapping[str, str]) -> bool: ...


class RunLog:
    """Follows the control log, of one run or of all, and folds it."""

    def __init__(
        self,
        home: LogHome,
        only: str | None = None,
        skipped: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`skipped` is told of messages that are none, in one line each."""
        self.states: dict[str, RunState] = {}
        self.unsigned: list[Command] = []  # not folded, not rejected yet
        self._rejected: set[str] = set()
        self._skipped = skipped
        self._home, self._only = home, only
        self._commands = home.control.subscribe(COMMANDS, EARLIEST)
        self._events = home.control.subscribe(EVENTS, EARLIEST)

    def read(self) -> list[Command | Event]:
        """Fold what is new and return it, in the order of time; commands before their answers."""
        events = self._new(self._events, Event)
        commands = self._new(self._commands, Command)  # read last, or an answer could come first
        messages = list(_in_order(commands, events))
        for message in messages:
            state = apply(self.states.get(message.run), message)
            if state is not None:
                self.states[message.run] = state
        return messages

    def _new(self, subscription: Subscription, kind: Any) -> list[tuple[float, Any]]:
        """Messages with the time at which each was published."""
        found = []
        while records := subscription.poll(0.0, limit=1024):
            for record in records:
                if self._only is not None and record.key != self._only:
                    continue
                message = self._message(record, kind)
                if message is not None:
                    found.append((record.time_s, message))
        return found

    def _message(self, record: Record, kind: Any) -> Command | Event | None:
        try:
            message: Command | Event = decode_json(record.payload, kind)
        except MessageError as error:
            self._skipped(f"{record.topic} offset {record.offset}: skipped: {error}")
            return None
        if kind is Event:
            if isinstance(message, CommandRejected):
                self._rejected.add(message.command)
            return message
        if record.key == message.run and self._home.trusts(
            COMMANDS, message.run, record.payload, record.headers
        ):
            return message
        if len(self.unsigned) < MAX_UNSIGNED:
            self.unsigned.append(message)  # type: ignore[arg-type]
        self._skipped(f"{record.topic} offset {record.offset}: skipped: {UNSIGNED}")
        return None

    def answer(self, run: str) -> None:
        """Judge the commands that wait, as the owner of the run; each is answered once."""
        self.refuse_unsigned(lambda command: command.run == run)
        state = self.states.get(run)
        while state is not None and state.commands:
            command = next(iter(state.commands.values()))
            why = why_not(state, command)
            event: Event
            if why is None:
                event = CommandAccepted(run=run, command=command.id)
            else:
                event = CommandRejected(run=run, command=command.id, why=why)
            self._home.record(event)
            self.read()
            state = self.states.get(run)

    def refuse_unsigned(self, mine: Callable[[Command], bool]) -> None:
        """Reject unsigned commands that nobody has rejected yet."""
        chosen = [command for command in self.unsigned if mine(command)]
        self.unsigned = [command for command in self.unsigned if not mine(command)]
        for command in chosen:
            state = self.states.get(command.run)
            folded = state is not None and (  # the signed one came first
                command.id in state.answered or command.id in state.commands
            )
            if folded or command.id in self._rejected or len(command.id) > MAX_ID:
                continue
            self._rejected.add(command.id)
            self._home.record(CommandRejected(run=command.run, command=command.id, why=UNSIGNED))


def _in_order(
    commands: list[tuple[float, Command]], events: list[tuple[float, Event]]
) -> Iterator[Command | Event]:
    """By time, each topic in its own order. Clocks differ: a command still precedes its answer."""
    places = {(c.run, c.id): place for place, (_, c) in reversed(list(enumerate(commands)))}
    taken = 0
    for time_s, event in events:
        upto = 0
        if isinstance(event, CommandAccepted):
            upto = places.get((event.run, event.command), -1) + 1
        while taken < len(commands) and (taken < upto or commands[taken][0] <= time_s):
            yield commands[taken][1]
            taken += 1
        yield event
    yield from (command for _, command in commands[taken:])
