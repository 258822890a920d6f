"""The rules that the two embedded buses share: what a batch may hold and where a reader starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.bus import EARLIEST, LATEST, Outgoing, Position
from rookery.errors import BusClosed, BusError, BusFull

WORD_BYTES = 1024  # a message of so few bytes is let into a full topic


def needed_bytes(messages: Sequence[Outgoing], limits: Mapping[str, int]) -> dict[str, int]:
    """Payload bytes of the batch for each of its topics; a batch that can never fit is refused."""
    needed: dict[str, int] = {}
    for message in messages:
        for name, value in message.headers.items():
            if not (isinstance(name, str) and isinstance(value, str)):
                raise BusError(
                    f"header {name!r} of a message for topic {message.topic!r} is not text: "
                    f"convert it with str()"
                )
        needed[message.topic] = needed.get(message.topic, 0) + len(message.payload)
    for topic, size in needed.items():
        if size > limits.get(topic, size):
            raise BusError(
                f"{size} bytes for topic {topic!r} can never fit in its limit of {limits[topic]} "
                f"bytes: raise the limit or publish less at once"
            )
    return needed


def has_room(kept: int, needed: int, limit: int) -> bool:
    """Whether a batch of this size may be added to a topic that keeps this much."""
    return kept + needed <= limit or needed <= min(WORD_BYTES, limit >> 10)


def full(topic: str, kept: int, needed: int, limit: int, timeout_s: float) -> BusFull:
    """The error of a publisher that found no room in time."""
    return BusFull(
        f"topic {topic!r} stayed full for {timeout_s:g} s: {kept} bytes are kept and {needed} more "
        f"would pass its limit of {limit}; see whether its reader is alive, or raise the limit"
    )


def closed(name: str) -> BusClosed:
    """The error of any use after close."""
    return BusClosed(f"the bus {name} was closed: open it again to use it")


def write_in_snapshot(name: str) -> BusError:
    """The error of a thread that writes inside its own snapshot."""
    return BusError(f"the bus {name} cannot be written inside snapshot(): leave the `with` first")


def check_limit(limit: int) -> None:
    if limit < 1:
        raise BusError(f"poll was asked for {limit} records: ask for at least 1")


def only_offset(position: Position) -> int:
    """The one offset of a position in a bus with one partition."""
    if len(position) != 1:
        raise BusError(
            f"position {position} has {len(position)} partitions and this bus has one: "
            f"it was taken from another kind of bus"
        )
    return position[0]


def start_offset(start: Position | str, head: int) -> int:
    """The lowest offset that a new reader may be given, before retention is looked at.

    A position past the head (a power cut took the newest records) starts at the head, so that
    what is published next is read.
    """
    if start == EARLIEST:
        return 0
    if start == LATEST:
        return head
    if isinstance(start, str):
        raise BusError(f"cannot start at {start!r}: use {EARLIEST!r}, {LATEST!r} or a position")
    return max(0, min(only_offset(start), head))
