"""Messages of any channel, read from the bus in the thread of who asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from rookery.bus import Bus, Record
from rookery.control.home import Home
from rookery.control.log_messages import (
    CHANNELS,
    PORTION,
    TOPICS,
    Message,
    is_shared,
    only,
    read_metrics,
    read_record,
)
from rookery.control.run_state import DELETED, RunState
from rookery.errors import InputError


class Portion(NamedTuple):
    """A stretch of a channel as it was read."""

    first: int  # the seq from which on everything that is there was read
    messages: list[Message]


def split_channel(channel: str) -> tuple[str, str]:
    """`metrics/RUN` -> its first part and its run; `events` has none."""
    part, _, run = channel.partition("/")
    if channel in CHANNELS or (part in TOPICS and run):
        return part, run
    raise InputError(
        f"there is no channel {channel[:120]!r}: use events, commands, metrics/RUN or actors/RUN"
    )


def read_bus(
    home: Home, state: RunState | None, channel: str, run: str | None, after: int, limit: int
) -> Portion:
    """The first messages of a channel after a seq, of all runs or of one.

    `state` is that of the channel's run; the log's channels have none.
    """
    topic, decode = _topic(home, state, channel)
    with _opened(home, state, channel) as bus:
        if bus is None:
            return Portion(after + 1, [])
        reader = bus.subscribe(topic, (after + 1,))
        try:
            first, found = only(reader.position(), topic), list[Message]()
            while len(found) < limit and (records := reader.poll(0.0, limit=PORTION)):
                messages = (message for record in records if (message := decode(record)))
                found += [m for m in messages if run is None or m.run == run]
        finally:
            reader.close()
    return Portion(max(first, after + 1), found[:limit])


def newest_seq(home: Home, state: RunState | None, channel: str) -> int:
    """The seq of the channel's newest message; -1: there is none."""
    topic, _ = _topic(home, state, channel)
    with _opened(home, state, channel) as bus:
        return -1 if bus is None else only(bus.end(topic), topic) - 1


def _topic(
    home: Home, state: RunState | None, channel: str
) -> tuple[str, Callable[[Record], Message | None]]:
    """The channel's topic, and what makes a message of a record if it is one of the channel's."""
    part, run = split_channel(channel)
    shared = state is not None and is_shared(state)
    states = home.states() if part == "events" else {}

    def of_log(record: Record) -> Message | None:
        found = read_record(home, channel, record, states)
        return found[0] if found is not None else None

    def of_run(record: Record) -> Message | None:
        if shared and record.headers.get("run") != run:
            return None
        found = read_metrics(part, run, record)
        return found[0] if found is not None else None

    return (CHANNELS[part][0], of_log) if part in CHANNELS else (TOPICS[part], of_run)


@contextmanager
def _opened(home: Home, state: RunState | None, channel: str) -> Iterator[Bus | None]:
    """The bus on which a channel lies; None if there is none."""
    if channel in CHANNELS or (state is not None and is_shared(state)):
        yield home.control
        return
    is_there = state is not None and state.desired != DELETED
    bus = home.read_run_bus(state) if state is not None and is_there else None
    try:
        yield bus
    finally:
        if bus is not None:
            bus.close()
