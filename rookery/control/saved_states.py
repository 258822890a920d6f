"""The states of runs as somebody folded them, so that nobody has to fold the whole log again.

`control.states` has each run's newest state, with the positions in the log up to which it was
folded, and a `SavedLog`: every message of any run before its positions is in the states. Whoever
reads begins there and passes over what a state has already: several who save do no harm.

States are signed with the home's key and lie under its name. They are a copy: what is missing,
damaged or another's is folded again from the log, which keeps all that makes a difference.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from rookery.bus import Bus, Outgoing, Position, Record
from rookery.control.answered import Answered
from rookery.control.run_state import RunState
from rookery.control.signing import SIGNATURE, Key
from rookery.errors import BusClosed, BusError, BusRefused, MessageError
from rookery.messages import (
    COMMANDS,
    EVENTS,
    STATES,
    CheckpointSaved,
    Event,
    JsonRecord,
    decode_json,
)
from rookery.messages.json_records import SCHEMA

KEPT_WHOLE = 10_000  # the newest events; of older ones checkpoints that were replaced are removed
MOST_UNSIGNED = 1_000  # commands that wait for their rejection, among what is saved
AT_ONCE = 256  # states in one publish

logger = logging.getLogger(__name__)


class Positions(NamedTuple):
    """A place in the log."""

    commands: Position
    events: Position


class Unsigned(NamedTuple):
    """A command that nobody vouches for, until the owner of its run has rejected it."""

    run: str
    id: str


class SavedState(JsonRecord, frozen=True, kw_only=True, tag="run_state"):
    run: str
    read: Positions
    config: msgspec.Raw  # of the state, which has none of its own here
    state: RunState


class SavedConfig(Mapping[str, Any]):
    """A run's config that is decoded whenever it is asked for: ten thousand of them as dicts would
    take seconds and much memory, for the few that are looked into."""

    __slots__ = ("raw",)

    def __init__(self, raw: msgspec.Raw) -> None:
        self.raw = bytes(raw)

    def __getitem__(self, key: str) -> Any:
        return self._decoded()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded())

    def __len__(self) -> int:
        return len(self._decoded())

    def _decoded(self) -> dict[str, Any]:
        found: dict[str, Any] = _config_decoder.decode(self.raw)
        return found


class SavedLog(JsonRecord, frozen=True, kw_only=True, tag="log_read"):
    run: str = ""
    read: Positions
    unsigned: tuple[Unsigned, ...] = ()
    strangers: tuple[str, ...] = ()  # runs that somebody without our key gave commands to


class StatesHome(Protocol):
    """What is asked of the home."""

    @property
    def control(self) -> Bus: ...

    @property
    def key(self) -> Key | None: ...

    def trusts(self, topic: str, run: str, payload: bytes, headers: Mapping[str, str]) -> bool: ...


class Found(NamedTuple):
    """What a reader begins with."""

    start: Positions | None  # None: at the beginning
    states: dict[str, RunState]
    read: dict[str, Positions]  # by run: what its state has of the log
    unsigned: Sequence[Unsigned] = ()
    strangers: Sequence[str] = ()


def load(home: StatesHome, only: str | None) -> Found:
    """The states that are saved, of one run or of all, the oldest run first."""
    nothing = Found(None, {}, {})
    if home.key is None:
        return nothing
    try:
        saved = [_decode(home, record) for record in _records(home, home.key, only)]
    except BusRefused as error:  # who may only look, and nobody has made the topic
        logger.debug("%s is not read: %s", STATES, error)
        return nothing
    logs = [each for each in saved if isinstance(each, SavedLog)]
    states = sorted(
        (each for each in saved if isinstance(each, SavedState)),
        key=lambda each: each.state.age,
    )
    found = Found(None, {s.run: _whole(s) for s in states}, {s.run: s.read for s in states})
    if not logs or None in saved:
        return found  # from the beginning, for those that have no state
    start = logs[0].read if only not in found.read else _later(logs[0].read, found.read[only])
    unsigned = [command for command in logs[0].unsigned if only in (None, command.run)]
    return found._replace(start=start, unsigned=unsigned, strangers=logs[0].strangers)


def save(
    home: StatesHome,
    states: Iterable[RunState],
    read: Positions,
    unsigned: Iterable[Unsigned] = (),
    strangers: Iterable[str] = (),
) -> None:
    """Save the states that changed since they were loaded or saved; who may not write does not."""
    key = home.key
    if key is None:
        return
    saved: list[SavedState | SavedLog] = [_parted(state, read) for state in states]
    waiting, others = tuple(unsigned)[:MOST_UNSIGNED], tuple(strangers)[:MOST_UNSIGNED]
    saved.append(SavedLog(read=read, unsigned=waiting, strangers=others))  # after what it is about
    try:
        for first in range(0, len(saved), AT_ONCE):
            part = saved[first : first + AT_ONCE]
            home.control.publish([_outgoing(key, each) for each in part])
        home.control.retain(STATES, home.control.end(STATES), keep_newest=True)
    except BusClosed:
        raise
    except BusError as error:
        logger.debug("states are not saved: %s", error)


def thin_events(bus: Bus, states: Mapping[str, RunState], end: Position) -> None:
    """Take old checkpoints out of the log that a newer one of their run has replaced."""

    def is_over(record: Record) -> bool:
        state = states.get(record.key)
        try:
            event: Event = decode_json(record.payload, Event)
        except MessageError:
            return False
        return (
            state is not None
            and isinstance(event, CheckpointSaved)
            and event.run == record.key
            and event.name != state.checkpoint
        )

    try:
        bus.thin(EVENTS, tuple(max(0, at - KEPT_WHOLE) for at in end), is_over)
    except BusClosed:
        raise
    except BusError as error:
        logger.debug("old events are not removed: %s", error)


def behind(bus: Bus, start: Positions | None) -> int:
    """How many messages of the log came after a place."""
    ends = sum(bus.end(COMMANDS)) + sum(bus.end(EVENTS))
    return ends - (sum(start.commands) + sum(start.events) if start is not None else 0)


def _records(home: StatesHome, key: Key, only: str | None) -> list[Record]:
    """The log's own first: a state that is newer than that does no harm, an older one would."""
    if only is None:
        prefix = f"{key.name}/"
        return [r for r in home.control.newest_all(STATES) if r.key.startswith(prefix)]
    found = [home.control.newest(STATES, f"{key.name}/{run}") for run in ("", only)]
    return [record for record in found if record is not None]


def _decode(home: StatesHome, record: Record) -> SavedState | SavedLog | None:
    """None for what is damaged, or was not saved with our key."""
    run = record.key.partition("/")[2]
    if not home.trusts(STATES, run, record.payload, record.headers):
        return None
    try:
        found = _decoder.decode(record.payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if found.run == run and found.schema == SCHEMA else None


def _parted(state: RunState, read: Positions) -> SavedState:
    config = state.config
    raw = config.raw if isinstance(config, SavedConfig) else _encoder.encode(config)
    bare = msgspec.structs.replace(state, config={})
    return SavedState(run=state.id, read=read, config=msgspec.Raw(raw), state=bare)


def _whole(saved: SavedState) -> RunState:
    return msgspec.structs.replace(saved.state, config=SavedConfig(saved.config))


def _outgoing(key: Key, saved: SavedState | SavedLog) -> Outgoing:
    payload = _encoder.encode(saved)
    headers = {SIGNATURE: key.sign(STATES, saved.run, payload)}
    return Outgoing(STATES, payload, f"{key.name}/{saved.run}", headers)


def _later(a: Positions, b: Positions) -> Positions:
    return Positions(*(tuple(map(max, x, y)) for x, y in zip(a, b, strict=True)))


def _plain(value: Any) -> Any:
    if isinstance(value, Answered):
        return list(value)
    raise NotImplementedError(f"{type(value).__name__} is no part of a state")


def _made(kind: type, value: Any) -> Any:
    assert kind is Answered, kind
    return Answered(value)


_config_decoder = msgspec.json.Decoder(dict[str, Any])
_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder = msgspec.json.Decoder(SavedState | SavedLog, dec_hook=_made)
