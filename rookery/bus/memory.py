"""A bus inside one process: deterministic, and the model that the other buses are tested against.

One lock guards all topics; its condition wakes readers that wait for records and publishers that
wait for room.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from time import time
from typing import Literal

from pydantic import Field

from rookery.bus import BusPlace, Outgoing, Position, Record, embedded
from rookery.config.bus import MOST_EXPERIENCE_MB, BusConfig
from rookery.errors import BusFull
from rookery.messages.ids import EXPERIENCES


class _Topic:
    """The records of one topic: all from `floor` on, and below it each key's newest if kept."""

    def __init__(self) -> None:
        self.floor = 0
        self.tail: list[Record] = []  # offset floor + index
        self.leftovers: dict[int, Record] = {}  # below the floor, in order of offset
        self.newest: dict[str, Record] = {}  # without payloads
        self.bytes = 0

    @property
    def head(self) -> int:
        return self.floor + len(self.tail)

    def copy(self) -> _Topic:
        other = _Topic()
        other.floor, other.bytes = self.floor, self.bytes
        other.tail, other.leftovers = self.tail.copy(), self.leftovers.copy()
        other.newest = self.newest.copy()
        return other

    def append(self, message: Outgoing, time_s: float) -> int:
        offset = self.head
        payload = bytes(message.payload)
        headers = dict(message.headers)
        record = Record(message.topic, 0, offset, message.key, headers, payload, time_s)
        self.tail.append(record)
        self.newest[message.key] = record._replace(payload=b"")
        self.bytes += len(payload)
        return offset

    def since(self, start: int) -> Iterator[Record]:
        """The kept records from `start` on, in order."""
        old = [] if start >= self.floor else [r for o, r in self.leftovers.items() if o >= start]
        return chain(old, self.tail[max(0, start - self.floor) :])

    def get(self, offset: int) -> Record | None:
        if offset < self.floor:
            return self.leftovers.get(offset)
        return self.tail[offset - self.floor]

    def remove_before(self, stop: int, keep_newest: bool) -> None:
        old = [*self.leftovers.values(), *self._cut(stop)]
        self.leftovers.clear()
        for record in old:
            newest = self.newest[record.key].offset == record.offset
            self._leave(record, record.offset >= stop or (keep_newest and newest))

    def thin(self, stop: int, is_over: Callable[[Record], bool]) -> None:
        for record in self._cut(stop):
            self._leave(record, not is_over(_own(record)))

    def _cut(self, stop: int) -> list[Record]:
        """Move the floor, and return what was above it."""
        cut = max(0, stop - self.floor)
        old = self.tail[:cut]
        del self.tail[:cut]
        self.floor = max(self.floor, stop)
        return old

    def _leave(self, record: Record, stays: bool) -> None:
        if stays:
            self.leftovers[record.offset] = record
        else:
            self.bytes -= len(record.payload)


class MemoryBus:
    """Topics in this process. `limits` bounds a topic's kept payload bytes."""

    def __init__(self, limits: Mapping[str, int] | None = None) -> None:
        self._limits = dict(limits or {})
        self._changed = threading.Condition()
        self._topics: dict[str, _Topic] = {}
        self._closed = False
        self._thread = threading.local()  # .view: this thread's snapshot, if it is inside one

    def publish(self, messages: Sequence[Outgoing], timeout_s: float = 60.0) -> list[int]:
        needed = embedded.needed_bytes(messages, self._limits)

        def ready() -> bool:
            return self._closed or self._refusal(needed, timeout_s) is None

        with self._changed:
            self._check_writable()
            self._changed.wait_for(ready, timeout_s)
            self._check_open()
            if error := self._refusal(needed, timeout_s):
                raise error
            now = time()
            offsets = [self._topic(message.topic).append(message, now) for message in messages]
            self._changed.notify_all()
            return offsets

    def subscribe(self, topic: str, start: Position | str) -> MemorySubscription:
        with self._changed:
            state = self._visible(topic)
            lowest = embedded.start_offset(start, state.head)
            first = next((record.offset for record in state.since(lowest)), state.head)
            return MemorySubscription(self, topic, first)

    def newest(self, topic: str, key: str) -> Record | None:
        with self._changed:
            state = self._visible(topic)
            record = state.get(state.newest[key].offset) if key in state.newest else None
            return _own(record) if record else None

    def newest_all(self, topic: str) -> list[Record]:
        with self._changed:
            state = self._visible(topic)
            found = (state.get(record.offset) for record in state.newest.values())
            kept = [_own(record) for record in found if record is not None]
            return sorted(kept, key=lambda record: record.offset)

    def newest_headers(self, topic: str) -> dict[str, dict[str, str]]:
        with self._changed:
            return {key: dict(r.headers) for key, r in self._visible(topic).newest.items()}

    def headers(self, topic: str, start: Position) -> Iterator[dict[str, str]]:
        with self._changed:
            records = self._visible(topic).since(max(0, embedded.only_offset(start)))
            return (dict(record.headers) for record in records)

    def end(self, topic: str) -> Position:
        with self._changed:
            return (self._visible(topic).head,)

    def retain(self, topic: str, start: Position, keep_newest: bool = False) -> None:
        stop = embedded.only_offset(start)
        with self._changed:
            self._check_writable()
            state = self._topic(topic)
            state.remove_before(min(stop, state.head), keep_newest)
            self._changed.notify_all()

    def thin(self, topic: str, start: Position, is_over: Callable[[Record], bool]) -> None:
        stop = embedded.only_offset(start)
        with self._changed:
            self._check_writable()
            state = self._topic(topic)
            state.thin(min(stop, state.head), is_over)
            self._changed.notify_all()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        with self._changed:
            self._check_open()
            outer = getattr(self._thread, "view", None)
            if outer is None:
                self._thread.view = {name: t.copy() for name, t in self._topics.items()}
        try:
            yield
        finally:
            self._thread.view = outer

    @property
    def trouble(self) -> None:
        """It is there or it raises."""
        return None

    def size_bytes(self, topic: str) -> int:
        with self._changed:
            return self._visible(topic).bytes

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._topics.clear()
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise embedded.closed("memory:")

    def _check_writable(self) -> None:
        self._check_open()
        if getattr(self._thread, "view", None) is not None:
            raise embedded.write_in_snapshot("memory:")

    def _topic(self, name: str) -> _Topic:
        return self._topics.setdefault(name, _Topic())

    def _visible(self, name: str) -> _Topic:
        """The topic as this thread may see it; the lock is held."""
        self._check_open()
        view: dict[str, _Topic] | None = getattr(self._thread, "view", None)
        return (self._topics if view is None else view).get(name) or _Topic()

    def _refusal(self, needed: Mapping[str, int], timeout_s: float) -> BusFull | None:
        """What to raise while a topic has no room for what it is to get."""
        for topic, size in needed.items():
            if topic in self._limits:
                kept, limit = self._topic(topic).bytes, self._limits[topic]
                if not embedded.has_room(kept, size, limit):
                    return embedded.full(topic, kept, size, limit, timeout_s)
        return None


class MemorySubscription:
    """A reader of a MemoryBus; one thread at a time."""

    def __init__(self, bus: MemoryBus, topic: str, first: int) -> None:
        self._bus = bus
        self._topic = topic
        self._next = first

    def poll(self, timeout_s: float, limit: int = 256) -> list[Record]:
        """The next records; inside a snapshot nothing new can come, so it does not wait."""
        embedded.check_limit(limit)
        bus = self._bus

        def ready() -> bool:
            return bus._closed or bool(self._take(limit))

        with bus._changed:
            bus._check_open()
            if getattr(bus._thread, "view", None) is None:
                bus._changed.wait_for(ready, timeout_s)
            records = self._take(limit)
            if records:
                self._next = records[-1].offset + 1
            return [_own(record) for record in records]

    def position(self) -> Position:
        return (self._next,)

    def lag(self) -> int:
        with self._bus._changed:
            state = self._bus._visible(self._topic)
            leftovers = sum(1 for offset in state.leftovers if offset >= self._next)
            return state.head - max(self._next, state.floor) + leftovers

    def overtaken(self) -> bool:
        """Only a reader's own side removes records here."""
        return False

    def close(self) -> None:
        """It holds nothing."""

    def _take(self, limit: int) -> list[Record]:
        """Up to `limit` records that are there; the lock is held."""
        state = self._bus._visible(self._topic)
        if self._next >= state.head:
            return []
        records = [record for record, _ in zip(state.since(self._next), range(limit), strict=False)]
        if not records:  # retention took all that was left to read
            self._next = state.head
        return records


def _own(record: Record) -> Record:
    """A copy whose headers the reader may change."""
    return record._replace(headers=dict(record.headers))


class MemoryBusConfig(BusConfig):
    """Inside one process; leaves nothing on disk but checkpoints."""

    one_process = True
    kind: Literal["memory"] = "memory"
    max_experience_mb: int = Field(default=256, ge=1, le=MOST_EXPERIENCE_MB)


class MemoryRunBus:
    Config = MemoryBusConfig

    @staticmethod
    def open(place: BusPlace) -> MemoryBus:
        return MemoryBus({EXPERIENCES: place.experience_bytes})

    @staticmethod
    def read(place: BusPlace) -> None:
        return None
