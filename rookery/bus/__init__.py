"""The bus: ordered, replayable topics between processes.

    bus = open_bus("sqlite:runs/x/bus.sqlite", limits={"experiences": 512 << 20})
    bus.publish([Outgoing("experiences", payload, key="0.1", headers={"steps": "4096"})])
    subscription = bus.subscribe("experiences", EARLIEST)
    for record in subscription.poll(timeout_s=1.0): ...

Three buses keep this contract (memory, sqlite, kafka) and one suite, `rookery.testing.bus_suite`,
runs on each. A batch handed to `publish` becomes visible all at once and in order where the bus has
transactions (memory, sqlite). A bounded topic that is full blocks its publishers; it never drops.
Only words, of a thousandth of the limit and a kilobyte at most, are taken all the same: whoever
makes room has to hear who came and who left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rookery.config.kinds import BUSES, load_kind

Position = tuple[int, ...]
"""The next offset to read in each partition; the embedded buses have one partition."""

EARLIEST = "earliest"
LATEST = "latest"


class Outgoing(NamedTuple):
    """What a publisher hands over."""

    topic: str
    payload: bytes
    key: str = ""
    headers: Mapping[str, str] = {}


class Record(NamedTuple):
    """What a subscriber receives."""

    topic: str
    partition: int
    offset: int
    key: str
    headers: dict[str, str]
    payload: bytes
    time_s: float  # when it was published, seconds since the epoch


class Subscription(Protocol):
    """One reader's place in one topic."""

    def poll(self, timeout_s: float, limit: int = 256) -> list[Record]:
        """The next records in order, as soon as there is one; empty when the time is up."""
        ...

    def position(self) -> Position:
        """Where the next poll begins."""
        ...

    def lag(self) -> int:
        """How many records are published but not yet polled."""
        ...

    def overtaken(self) -> bool:
        """Whether retention took records, since the last call, that were not read yet."""
        ...

    def close(self) -> None:
        """Done with it; closing the bus does this too."""
        ...


class Bus(Protocol):
    """Topics come into being when first used. Safe to use from several threads."""

    def publish(self, messages: Sequence[Outgoing], timeout_s: float = 60.0) -> list[int]:
        """Append the messages and return their offsets; raises BusFull after `timeout_s`.

        A batch larger than a topic's limit is a BusError at once; so is publishing inside one's
        own `snapshot`."""
        ...

    def subscribe(self, topic: str, start: Position | str) -> Subscription:
        """A reader from EARLIEST, LATEST or a position; an older position than what is kept starts
        at the oldest record that is, one past the end at the end."""
        ...

    def newest(self, topic: str, key: str) -> Record | None:
        """The newest kept record with this key."""
        ...

    def newest_all(self, topic: str) -> list[Record]:
        """The newest kept record of every key, oldest first."""
        ...

    def newest_headers(self, topic: str) -> dict[str, dict[str, str]]:
        """Each key's newest headers, kept even when retention took the record itself."""
        ...

    def headers(self, topic: str, start: Position) -> Iterator[dict[str, str]]:
        """Headers of the records from `start` on, without their payloads."""
        ...

    def end(self, topic: str) -> Position:
        """The position after the newest record."""
        ...

    def retain(self, topic: str, start: Position, keep_newest: bool = False) -> None:
        """Remove the records before `start`, but for each key's newest if `keep_newest`. The owner
        of a topic's readers calls this; nothing but this and `thin` removes a record."""
        ...

    def thin(self, topic: str, start: Position, is_over: Callable[[Record], bool]) -> None:
        """Remove records before `start` that are over, for good: each is asked about once, and
        those that stay are not looked at again. A bus that cannot take out single records keeps
        them."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Reads of this thread inside the `with` see one moment of all topics."""
        ...

    @property
    def trouble(self) -> str | None:
        """One line while the bus cannot be reached and everybody waits; None when all is well."""
        ...

    def size_bytes(self, topic: str) -> int:
        """Payload bytes that are kept and count against the topic's limit."""
        ...

    def close(self) -> None: ...


class BusPlace(NamedTuple):
    """Where a run's bus is to be, or is."""

    run: str
    directory: Path  # the run's own, on this machine
    config: Any  # of the bus's own model
    cluster: Any = None  # how this machine reaches its cluster, if it has one
    warn: Callable[[str], None] | None = None  # told of settings that would lose data
    least_bytes: int = 0  # of experience that a bounded bus has room for, whatever its config says

    @property
    def experience_bytes(self) -> int:
        """How much experience is kept before its publishers wait."""
        asked: int = self.config.max_experience_mb << 20
        return max(asked, self.least_bytes)


class RunBus(Protocol):
    """How runs get a bus of one kind: what a line of `config.kinds.BUSES` names."""

    Config: type  # its model, a `config.bus.BusConfig`

    @staticmethod
    def open(place: BusPlace) -> Bus: ...

    @staticmethod
    def read(place: BusPlace) -> Bus | None:
        """For reading only, if there is one."""
        ...


def run_bus(kind: str) -> RunBus:
    found: RunBus = load_kind(BUSES, kind)
    return found
