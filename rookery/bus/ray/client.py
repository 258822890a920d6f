"""The contract of a bus over a line to its host: what workers on other nodes use."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from uuid import uuid4

from rookery.bus import Outgoing, Position, Record, embedded
from rookery.bus.ray.calls import Call, encode, records_from, result_of

LOOK_UP_S = 1.0  # a call waits at its host for so long at most: a closed bus is noticed


class Line(Protocol):
    """Carries calls to a host, and waits while it is away."""

    name: str

    def ask(self, content: bytes) -> bytes: ...

    def close(self) -> None: ...

    @property
    def trouble(self) -> str | None: ...


class HostedBus:
    """A bus that a host keeps. Batches are seen whole, as in its file."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._closed = False
        self._thread = threading.local()  # .snapshot: the name of one; .client, .numbers

    def publish(self, messages: Sequence[Outgoing], timeout_s: float = 60.0) -> list[int]:
        embedded.needed_bytes(messages, {})
        self.check_writable()
        rows = [(m.topic, bytes(m.payload), m.key, dict(m.headers)) for m in messages]
        found: list[int] = self._numbered("publish", rows, timeout_s)
        return found

    def subscribe(self, topic: str, start: Position | str) -> HostedSubscription:
        if not isinstance(start, str):
            start = (embedded.only_offset(start),)
        first = start if isinstance(start, str) else start[0]
        return HostedSubscription(self, topic, self.call("first", topic, first))

    def newest(self, topic: str, key: str) -> Record | None:
        found = self.call("newest", topic, key)
        return records_from([found])[0] if found is not None else None

    def newest_all(self, topic: str) -> list[Record]:
        return records_from(self.call("newest_all", topic))

    def newest_headers(self, topic: str) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = self.call("newest_headers", topic)
        return found

    def headers(self, topic: str, start: Position) -> Iterator[dict[str, str]]:
        return iter(self.call("headers", topic, max(0, embedded.only_offset(start))))

    def end(self, topic: str) -> Position:
        return (self.call("end", topic),)

    def retain(self, topic: str, start: Position, keep_newest: bool = False) -> None:
        self.check_writable()
        self.call("retain", topic, embedded.only_offset(start), keep_newest)

    def thin(self, topic: str, start: Position, is_over: Callable[[Record], bool]) -> None:
        self.check_writable()
        stop = embedded.only_offset(start)
        while records := records_from(self.call("above_floor", topic, stop)):
            upto = records[-1].offset + 1
            self.call("take_out", topic, upto, [r.offset for r in records if is_over(r)])

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        outer = self.pinned
        if not outer:
            self._thread.snapshot = self.call("snapshot")
        try:
            yield
        finally:
            if not outer:
                name, self._thread.snapshot = self._thread.snapshot, ""
                if not self._closed:
                    self.call("leave_snapshot", name)

    @property
    def trouble(self) -> str | None:
        return self._line.trouble

    def size_bytes(self, topic: str) -> int:
        found: int = self.call("size_bytes", topic)
        return found

    def close(self) -> None:
        self._closed = True
        self._line.close()

    @property
    def pinned(self) -> str:
        """The snapshot that this thread reads in; empty: none."""
        found: str = getattr(self._thread, "snapshot", "")
        return found

    def check_writable(self) -> None:
        self.check_open()
        if self.pinned:
            raise embedded.write_in_snapshot(self._line.name)

    def check_open(self) -> None:
        if self._closed:
            raise embedded.closed(self._line.name)

    def call(self, method: str, *arguments: Any) -> Any:
        self.check_open()
        call = Call(method, [*arguments], snapshot=self.pinned)
        return result_of(self._line.ask(encode(call)))

    def _numbered(self, method: str, *arguments: Any) -> Any:
        """A call that its host recognises when it is sent again, as no answer came to the first."""
        if not hasattr(self._thread, "client"):
            self._thread.client, self._thread.numbers = uuid4().hex, itertools.count(1)
        call = Call(method, [*arguments], self._thread.client, next(self._thread.numbers))
        return result_of(self._line.ask(encode(call)))


class HostedSubscription:
    """A reader of a HostedBus; one thread at a time."""

    def __init__(self, bus: HostedBus, topic: str, first: int) -> None:
        self._bus, self._topic, self._next = bus, topic, first

    def poll(self, timeout_s: float, limit: int = 256) -> list[Record]:
        embedded.check_limit(limit)
        left = timeout_s
        while True:
            wait_s = min(left, LOOK_UP_S)
            rows, self._next = self._bus.call("poll", self._topic, self._next, wait_s, limit)
            left -= LOOK_UP_S
            if rows or left <= 0 or self._bus.pinned:
                return records_from(rows)

    def position(self) -> Position:
        return (self._next,)

    def lag(self) -> int:
        found: int = self._bus.call("lag", self._topic, self._next)
        return found

    def overtaken(self) -> bool:
        """Only a reader's own side removes records here."""
        return False

    def close(self) -> None:
        """It holds nothing."""
