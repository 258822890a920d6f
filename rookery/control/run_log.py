"""The control log as its readers see it: commands and events of one run or of all, folded.

A reader begins with the states that others have saved, and saves them anew when it has read much.
Only commands that were signed with the home's key are folded; the others are kept apart, for the
owner of their run to reject. So are events, but of runs that an older Rookery made, which did not
sign them; those without a signature are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from msgspec.structs import replace

from rookery.bus import EARLIEST, Record, Subscription
from rookery.control.run_state import RunState, apply, why_not
from rookery.control.saved_states import (
    Found,
    Positions,
    StatesHome,
    Unsigned,
    behind,
    load,
    save,
    thin_events,
)
from rookery.control.signing import PLACE, SIGNED_EVENTS, place_of, placed
from rookery.errors import MessageError
from rookery.messages import (
    COMMANDS,
    EVENTS,
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    Event,
    decode_json,
)

SAVE_AFTER = 1_000  # messages since the states were last saved
MAX_UNSIGNED = 10_000  # kept until their run's owner has rejected them
MAX_ID = 128  # of a command that nobody vouches for
MAX_WRITERS = 1_000  # of a run's events that are remembered
UNSIGNED_EVENT = "it is not signed with this home's key"
UNSIGNED = "it is not signed with this home's key: send it through the server or the command line"


class LogHome(StatesHome, Protocol):
    """What a log needs of its home."""

    def record(self, *events: Event) -> None: ...


class RunLog:
    """Follows the control log, of one run or of all, and folds it."""

    def __init__(
        self,
        home: LogHome,
        only: str | None = None,
        skipped: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`skipped` is told of messages that are none, in one line each."""
        self._rejected: set[str] = set()
        self._skipped = skipped
        self._home, self._only = home, only
        self._created: dict[str, int] = {}  # run -> the offset of its CreateRun, until it is folded
        self._changed: set[str] = set()  # runs whose states are not saved
        self._unsaved = 0  # messages since
        self._taken: dict[str, list[tuple[Record, Any]]] = {COMMANDS: [], EVENTS: []}  # not folded
        found = load(home, only) if only is None else _shortened(home, only)
        self.states, self._read, start = found.states, found.read, found.start
        self._sealed = {run for run, state in self.states.items() if state.signed_events}
        self._writers: dict[str, dict[str, int]] = {}  # by run, where it is not in the state yet
        self.unsigned, self.strangers = list(found.unsigned), set(found.strangers)
        self._commands = home.control.subscribe(COMMANDS, start.commands if start else EARLIEST)
        self._events = home.control.subscribe(EVENTS, start.events if start else EARLIEST)

    def read(self) -> list[Command | Event]:
        """Fold what is new and return it, in the order of time; commands before their answers."""
        self._take(self._events, Event)
        self._take(self._commands, Command)  # read last, or an answer could come first
        commands = [(record.time_s, said) for record, said in self._taken[COMMANDS]]
        events = [
            (record.time_s, said) for record, said in self._taken[EVENTS] if self._new(record)
        ]
        self._taken = {COMMANDS: [], EVENTS: []}
        messages = list(_in_order(commands, events))
        for message in messages:
            before = self.states.get(message.run)
            state = apply(before, message)
            if state is not None:
                if before is None:
                    signed, offset = message.run in self._sealed, self._created.pop(message.run)
                    state = replace(state, offset=offset, signed_events=signed)
                self.states[message.run] = state
                self._changed.add(message.run)
        for run in self._writers.keys() & self.states:
            self.states[run] = replace(self.states[run], writers=self._writers.pop(run))
        if self._unsaved >= SAVE_AFTER:
            self.save()
        return messages

    def save(self) -> None:
        """Spare the next readers what was read here; one who reads a single run lets another."""
        self._unsaved = 0
        if self._only is not None:
            _shortened(self._home, self._only)
            return
        read = Positions(self._commands.position(), self._events.position())
        thin_events(self._home.control, self.states, read.events)
        changed = [self.states[run] for run in self._changed]
        save(self._home, changed, read, filter(self._waits, self.unsigned), self.strangers)
        self._changed.clear()

    def remember(self, states: Iterable[RunState]) -> None:
        """Take up what was found out about runs elsewhere, and save it with them."""
        for state in states:
            self.states[state.id] = state
            self._changed.add(state.id)
        self.save()

    def _take(self, subscription: Subscription, kind: Any) -> None:
        """Messages with the time at which each was published; a bus that fails loses none."""
        while records := subscription.poll(0.0, limit=1024):
            self._unsaved += len(records)
            for record in records:
                if self._only not in (None, record.key) or self._has(record):
                    continue
                message = self._message(record, kind)
                if message is not None:
                    self._taken[record.topic].append((record, message))
                if isinstance(message, CreateRun) and message.run not in self.states:
                    if (
                        message.run not in self._created
                        and SIGNED_EVENTS.items() <= record.headers.items()
                    ):
                        self._sealed.add(message.run)
                    self._created.setdefault(message.run, record.offset)

    def _new(self, record: Record) -> bool:
        """Whether an event is one of its run's own, and not a copy of one."""
        if not trusts_event(self._home, record):
            if record.key in self._sealed:
                self._skipped(f"{record.topic} offset {record.offset}: skipped: {UNSIGNED_EVENT}")
            return record.key not in self._sealed
        place, run = place_of(record.headers), record.key
        if place is None:
            return True
        known = self.states[run].writers if run in self.states else {}
        writers = self._writers.setdefault(run, dict(known))
        if place[1] <= writers.get(place[0], 0):
            return False
        writers[place[0]] = place[1]
        while len(writers) > MAX_WRITERS:
            del writers[next(iter(writers))]
        return True

    def _has(self, record: Record) -> bool:
        """Whether the state that was loaded has the message in it."""
        read = self._read.get(record.key)
        if read is None:
            return False
        upto = read.commands if record.topic == COMMANDS else read.events
        return record.offset < upto[record.partition]

    def _message(self, record: Record, kind: Any) -> Command | Event | None:
        try:
            message: Command | Event = decode_json(record.payload, kind)
        except MessageError as error:
            self._skipped(f"{record.topic} offset {record.offset}: skipped: {error}")
            return None
        if kind is Event:
            if isinstance(message, CommandRejected):
                self._rejected.add(message.command)
            return message if record.key == message.run else None
        if record.key == message.run and self._home.trusts(
            COMMANDS, message.run, record.payload, record.headers
        ):
            return message
        self._set_aside(message)  # type: ignore[arg-type]
        self._skipped(f"{record.topic} offset {record.offset}: skipped: {UNSIGNED}")
        return None

    def _set_aside(self, command: Command) -> None:
        if len(self.unsigned) < MAX_UNSIGNED and max(len(command.id), len(command.run)) <= MAX_ID:
            self.unsigned.append(Unsigned(command.run, command.id))
            self.strangers.add(command.run)

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

    def refuse_unsigned(self, mine: Callable[[Unsigned], bool]) -> None:
        """Reject unsigned commands that nobody has rejected yet."""
        chosen = [command for command in self.unsigned if mine(command)]
        self.unsigned = [command for command in self.unsigned if not mine(command)]
        for command in filter(self._waits, chosen):
            self._rejected.add(command.id)
            self._home.record(CommandRejected(run=command.run, command=command.id, why=UNSIGNED))

    def _waits(self, command: Unsigned) -> bool:
        """Whether nobody has rejected it, and no signed one with its id came first."""
        state = self.states.get(command.run)
        if state is not None and (command.id in state.answered or command.id in state.commands):
            return False
        return command.id not in self._rejected


def trusts_event(home: StatesHome, record: Record) -> bool:
    signed = placed(record.headers.get(PLACE, ""), record.payload)
    return home.trusts(EVENTS, record.key, signed, record.headers)


def _shortened(home: LogHome, only: str) -> Found:
    """A run's state and where to read on; where that is much, all is read and saved first."""
    found = load(home, only)
    if home.key is None or behind(home.control, found.start) <= SAVE_AFTER:
        return found
    RunLog(home).read()
    return load(home, only)


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
