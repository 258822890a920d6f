"""Pages of the log: what happened, and who changed what with what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from rookery.control.actions import own_fields
from rookery.control.models import AuditEntry, AuditPage, LogEntry, LogPage
from rookery.messages import Command, CommandAccepted, CommandRejected, decode_json
from rookery.server.answers import Said, find_answers
from rookery.server.feed.recent_log import Message

if TYPE_CHECKING:
    from rookery.server.feed.follower import Follower


def event_page(follower: Follower, run: str | None, after: int, limit: int) -> LogPage:
    """Of one run, or of all."""
    found = follower.log("events", run, after, limit)
    entries = [_entry(message) for message in found]
    return LogPage.model_construct(entries=entries, next=_next(found, limit))


def audit_page(follower: Follower, run: str | None, after: int, limit: int) -> AuditPage:
    """Commands joined with their answers."""
    found = follower.log("commands", run, after, limit)
    commands: list[Command] = [decode_json(message.payload, Command) for message in found]
    answers = find_answers(follower, commands)
    entries = [
        audited(message, command, answers.get(command.id))
        for message, command in zip(found, commands, strict=True)
    ]
    return AuditPage(entries=entries, next=_next(found, limit))


def audited(message: Message, command: Command, said: Said | None) -> AuditEntry:
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
