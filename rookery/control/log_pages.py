"""Pages of the log: what happened, and who changed what with what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol, TypeVar

import msgspec

from rookery.control.actions import own_fields
from rookery.control.log_messages import Message
from rookery.control.models import AuditEntry, AuditPage, LogEntry, LogPage
from rookery.control.run_state import RunState
from rookery.messages import Command, CommandAccepted, CommandRejected, Event, decode_json

T = TypeVar("T")
Said = CommandAccepted | CommandRejected

PORTION = 1000
_TAGS = ("command_accepted", "command_rejected")


class LogView(Protocol):
    """The log as who follows it sees it: a server's follower, or a command in the shell."""

    @property
    def states(self) -> Mapping[str, RunState]:
        """All runs, the deleted ones too."""
        ...

    def answer(self, command_id: str) -> Said | None:
        """What became of a command, if that was lately."""
        ...

    def log(
        self, channel: Literal["events", "commands"], run: str | None, after: int, limit: int
    ) -> list[Message]:
        """The first messages after a seq, of all runs or of one."""
        ...

    def owner(self, run: str) -> str:
        """Who carries the run; empty: nobody."""
        ...

    async def until(self, run: str, probe: Callable[[], T | None], wait_s: float) -> T | None:
        """What `probe` finds, asked at once and whenever there is something new of the run; None:
        it found nothing in time."""
        ...


def event_page(log: LogView, run: str | None, after: int, limit: int) -> LogPage:
    """Of one run, or of all."""
    found = log.log("events", run, after, limit)
    entries = [_entry(message) for message in found]
    return LogPage.model_construct(entries=entries, next=_next(found, limit))


def audit_page(log: LogView, run: str | None, after: int, limit: int) -> AuditPage:
    """Commands joined with their answers."""
    found = log.log("commands", run, after, limit)
    commands: list[Command] = [decode_json(message.payload, Command) for message in found]
    answers = find_answers(log, commands)
    entries = [
        _audited(message, command, answers.get(command.id))
        for message, command in zip(found, commands, strict=True)
    ]
    return AuditPage(entries=entries, next=_next(found, limit))


def find_answers(log: LogView, commands: Iterable[Command]) -> Mapping[str, Said]:
    """By id of the command. Reads the log where memory is too short, so it may be slow."""
    found: dict[str, Said] = {}
    old: dict[str, set[str]] = {}  # run -> commands that were answered, nobody knows how
    for command in commands:
        said = log.answer(command.id)
        state = log.states.get(command.run)
        if said is not None:
            found[command.id] = said
        elif state is not None and command.id in state.answered:
            old.setdefault(command.run, set()).add(command.id)
    for run, wanted in old.items():
        found |= _from_log(log, run, wanted)
    return found


def _from_log(log: LogView, run: str, wanted: set[str]) -> dict[str, Said]:
    found: dict[str, Said] = {}
    after = -1
    while wanted - found.keys():
        messages = log.log("events", run, after, PORTION)
        for message in messages:
            if message.kind in _TAGS:
                said = decode_json(message.payload, Event)
                if said.command in wanted:
                    found.setdefault(said.command, said)
        if len(messages) < PORTION:
            break
        after = messages[-1].seq
    return found


def _audited(message: Message, command: Command, said: Said | None) -> AuditEntry:
    outcome = "waiting"
    if said is not None:
        outcome = "accepted" if isinstance(said, CommandAccepted) else "rejected"
    return AuditEntry.model_validate(
        {
            "seq": message.seq,
            "run": command.run,
            "command": command.id,
            "kind": message.kind,
            "author": command.author,
            "origin": command.origin,
            "reason": command.reason,
            "time_s": message.time_s,
            "outcome": outcome,
            "why": said.why if isinstance(said, CommandRejected) else "",
            "data": own_fields(command),
        }
    )


def _entry(message: Message) -> LogEntry:
    return LogEntry.model_construct(
        seq=message.seq,
        run=message.run,
        kind=message.kind,
        time_s=message.time_s,
        data=msgspec.json.decode(message.payload),
    )


def _next(found: Sequence[Message], limit: int) -> int | None:
    return found[-1].seq if found and len(found) == limit else None
