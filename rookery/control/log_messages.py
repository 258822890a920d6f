"""Messages as they are handed on, of the control log and of runs' metrics: near or far the same.

Commands and events that nobody vouches for are left out: whoever may write to the bus could put any
name under them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rookery.bus import Position, Record
from rookery.control.home import Home
from rookery.control.run_log import trusts_event
from rookery.control.run_state import RunState
from rookery.errors import BusError, MessageError
from rookery.messages import (
    COMMANDS,
    EVENTS,
    METRICS_ACTORS,
    METRICS_TRAINING,
    ActorMetrics,
    Command,
    Event,
    TrainingMetrics,
    decode_json,
    decode_or_none,
)

CHANNELS: dict[str, tuple[str, Any]] = {"events": (EVENTS, Event), "commands": (COMMANDS, Command)}
TOPICS = {"metrics": METRICS_TRAINING, "actors": METRICS_ACTORS}  # by a channel's first part
SHARED = ("kafka", "shared")  # a bus's kind, and whose its topics are
PORTION = 1024  # records that one poll takes of a topic


class Message(NamedTuple):
    """A record of the bus as it is handed on."""

    channel: str  # events, commands, metrics/RUN, actors/RUN
    seq: int  # its offset on the bus
    run: str
    kind: str
    time_s: float  # when it was published, seconds since the epoch
    payload: bytes  # its JSON as it lies on the bus


def read_record(
    home: Home, channel: str, record: Record, states: Mapping[str, RunState]
) -> tuple[Message, Command | Event] | None:
    """A record of the control log, if it is one that counts."""
    topic, kind = CHANNELS[channel]
    try:
        said: Command | Event = decode_json(record.payload, kind)
    except MessageError:
        return None
    if not is_text(record.payload):
        return None
    if channel == "commands" and not (
        record.key == said.run and home.trusts(topic, said.run, record.payload, record.headers)
    ):
        return None
    state = states.get(said.run)
    is_signed = state is not None and state.signed_events  # those of older runs are not
    if channel == "events" and is_signed and not trusts_event(home, record):
        return None
    tag = str(said.__struct_config__.tag)
    return Message(channel, record.offset, said.run, tag, record.time_s, record.payload), said


def is_text(payload: bytes) -> bool:
    """Decoding JSON does not look into what it skips."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_metrics(
    part: str, run: str, record: Record
) -> tuple[Message, TrainingMetrics | ActorMetrics] | None:
    """A record of a run's metrics, if it is one."""
    kind: Any = TrainingMetrics if part == "metrics" else ActorMetrics
    found = decode_or_none(record.payload, kind)
    if found is None or not is_text(record.payload):
        return None
    name = "training" if part == "metrics" else "actor"
    return Message(f"{part}/{run}", record.offset, run, name, record.time_s, record.payload), found


def is_shared(state: RunState) -> bool:
    """Whether the run's metrics are in topics that runs share."""
    config = state.config.get("config")
    bus = config.get("bus") if isinstance(config, dict) else None  # nobody has judged it yet
    return isinstance(bus, dict) and (bus.get("kind"), bus.get("topics", "shared")) == SHARED


def only(position: Position, topic: str) -> int:
    if len(position) != 1:
        raise BusError(
            f"topic {topic} has {len(position)} partitions, and its messages no order: make it "
            "with one"
        )
    return position[0]
