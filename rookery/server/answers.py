"""What became of commands: from memory, or for those of long ago from the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rookery.control.models import Answer, Outcome
from rookery.messages import Command, CommandAccepted, CommandRejected, Event, decode_json

if TYPE_CHECKING:
    from rookery.server.feed.follower import Follower

Said = CommandAccepted | CommandRejected

PORTION = 1000
_TAGS = ("command_accepted", "command_rejected")


def find_answers(follower: Follower, commands: Iterable[Command]) -> Mapping[str, Said]:
    """By id of the command. Reads the log where memory is too short, so it may be slow."""
    found: dict[str, Said] = {}
    old: dict[str, set[str]] = {}  # run -> commands that were answered, nobody knows how
    for command in commands:
        said = follower.answer(command.id)
        state = follower.states.get(command.run)
        if said is not None:
            found[command.id] = said
        elif state is not None and command.id in state.answered:
            old.setdefault(command.run, set()).add(command.id)
    for run, wanted in old.items():
        found |= _from_log(follower, run, wanted)
    return found


def _from_log(follower: Follower, run: str, wanted: set[str]) -> dict[str, Said]:
    found: dict[str, Said] = {}
    after = -1
    while wanted - found.keys():
        messages = follower.log("events", run, after, PORTION)
        for message in messages:
            if message.kind in _TAGS:
                said = decode_json(message.payload, Event)
                if said.command in wanted:
                    found.setdefault(said.command, said)
        if len(messages) < PORTION:
            break
        after = messages[-1].seq
    return found


def make_answer(command: Command, outcome: Outcome, why: str, line: str) -> Answer:
    kind: str = type(command).__struct_config__.tag  # type: ignore[assignment]
    return Answer(
        command=command.id, kind=kind, run=command.run, outcome=outcome, why=why, effect=line
    )
