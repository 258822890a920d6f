"""The embedded bus: one SQLite file, many processes, nothing to install.

Each topic has a table of records and a row in `topics` with its head, so an offset is never given
twice even when every record was removed. Payloads are the last column: reading headers does not
touch them. Readers and blocked publishers look again every 0.3 ms at first and, the longer they
wait, more rarely, up to 2 ms: a few percent of a core and no broker to wake them.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal, NamedTuple, TypeVar

import msgspec
from pydantic import Field

from rookery.bus import BusPlace, Outgoing, Position, Record, embedded
from rookery.bus.sqlite_file import SqliteFile
from rookery.config.bus import MOST_EXPERIENCE_MB, BusConfig
from rookery.errors import BusFull, BusUnmade
from rookery.messages.ids import EXPERIENCES

T = TypeVar("T")

SCHEMA = """
CREATE TABLE topics (
    name TEXT PRIMARY KEY, id INTEGER NOT NULL, head INTEGER NOT NULL,
    floor INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE newest (
    topic INTEGER NOT NULL, key TEXT NOT NULL, offset INTEGER NOT NULL, headers TEXT NOT NULL,
    PRIMARY KEY (topic, key)
) WITHOUT ROWID
"""
COLUMNS = "offset, key, headers, payload, time_s"
RUN_FILE = "bus.sqlite"  # in a run's directory
LONGEST_PAUSE_S = 0.002
PAUSE_SHARE = 0.05  # of the time waited so far: waiting adds at most this much to any wait
POLL_BYTES = 4 << 20  # one poll stops after this much: a long read holds up the WAL's checkpoint
REMOVE_BYTES = 32 << 20  # removed in one transaction, so that publishers are not held up for long
REMOVE_RECORDS = 1024
REMOVE_PATIENCE_S = 60.0
HEADERS_AT_ONCE = 1024

_encode_headers = msgspec.json.Encoder().encode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode
_decode_offsets = msgspec.json.Decoder(list[int]).decode


class _Topic(NamedTuple):
    """A row of `topics`. All records from `floor` to `head` are kept, and few below the floor."""

    id: int
    head: int
    floor: int
    bytes: int


class _Mark(NamedTuple):
    """Which of its publications this is, by a client's own count."""

    client: str
    number: int


class SqliteBus:
    """Topics in a file. `limits` bounds a topic's kept payload bytes for this bus's publishers."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        limits: Mapping[str, int] | None = None,
        poll_interval_s: float = 0.0003,
        read_only: bool = False,
    ) -> None:
        self._file = SqliteFile(path, SCHEMA, read_only)
        self._limits = dict(limits or {})
        self._poll_interval_s = poll_interval_s

    def publish(self, messages: Sequence[Outgoing], timeout_s: float = 60.0) -> list[int]:
        return self._publish(messages, timeout_s, None)

    def publish_once(
        self, messages: Sequence[Outgoing], timeout_s: float, client: str, number: int
    ) -> list[int]:
        """The same for a client that numbers what it publishes: what is there already is not added
        again, and has the offsets that it had."""
        return self._publish(messages, timeout_s, _Mark(client, number))

    def _publish(
        self, messages: Sequence[Outgoing], timeout_s: float, mark: _Mark | None
    ) -> list[int]:
        needed = embedded.needed_bytes(messages, self._limits)
        rows = [(m, _encode_headers(m.headers).decode()) for m in messages]
        deadline = time.monotonic() + timeout_s

        def refusal(db: sqlite3.Connection) -> BusFull | None:
            return self._refusal(db, needed, timeout_s)

        def append(db: sqlite3.Connection) -> list[int] | None:
            if mark is not None and (before := _marked(db, mark)) is not None:
                return before
            if refusal(db):
                return None
            offsets = _append(db, rows, needed)
            if mark is not None:
                _set_mark(db, mark, offsets)
            return offsets

        def has_room() -> bool:
            return self._file.read(refusal) is None

        while True:
            offsets = self._file.write(append, deadline - time.monotonic(), sum(needed.values()))
            if offsets is not None:
                return offsets
            if not self._wait(has_room, deadline) and (error := self._file.read(refusal)):
                raise error

    def subscribe(self, topic: str, start: Position | str) -> SqliteSubscription:
        def first(db: sqlite3.Connection) -> int:
            row = _topic(db, topic)
            lowest = embedded.start_offset(start, row.head)
            return _first_kept(db, row, lowest)

        return SqliteSubscription(self, topic, self._file.read(first))

    def newest(self, topic: str, key: str) -> Record | None:
        def query(db: sqlite3.Connection) -> Record | None:
            row = _topic(db, topic)
            found = db.execute(
                "SELECT offset FROM newest WHERE topic = ? AND key = ?", (row.id, key)
            ).fetchall()
            if not found:
                return None
            records = _records(db, topic, row.id, found[0][0], found[0][0] + 1, 1)
            return records[0] if records else None

        return self._file.read(query)

    def newest_all(self, topic: str) -> list[Record]:
        def query(db: sqlite3.Connection) -> list[Record]:
            row = _topic(db, topic)
            if not row.id:
                return []
            cursor = db.execute(
                f"SELECT {COLUMNS} FROM records_{row.id} WHERE offset IN "
                "(SELECT offset FROM newest WHERE topic = ?) ORDER BY offset",
                (row.id,),
            )
            return [_record(topic, found) for found in cursor.fetchall()]

        return self._file.read(query)

    def newest_headers(self, topic: str) -> dict[str, dict[str, str]]:
        rows = self._file.read(
            lambda db: db.execute(
                "SELECT key, headers FROM newest WHERE topic = ?", (_topic(db, topic).id,)
            ).fetchall()
        )
        return {key: _decode_headers(headers) for key, headers in rows}

    def headers(self, topic: str, start: Position) -> Iterator[dict[str, str]]:
        first = max(0, embedded.only_offset(start))
        return self._headers(self._read_topic(topic), first)

    def _headers(self, row: _Topic, start: int) -> Iterator[dict[str, str]]:
        """In portions, so that no read transaction stays open while the caller thinks."""
        sql = (
            f"SELECT offset, headers FROM records_{row.id} "
            f"WHERE offset >= ? AND offset < ? ORDER BY offset LIMIT {HEADERS_AT_ONCE}"
        )

        def portion(db: sqlite3.Connection) -> list[tuple[int, str]]:
            return db.execute(sql, (start, row.head)).fetchall()

        while start < row.head:
            rows = self._file.read(portion)
            yield from (_decode_headers(headers) for _, headers in rows)
            start = rows[-1][0] + 1 if rows else row.head

    def end(self, topic: str) -> Position:
        return (self._read_topic(topic).head,)

    def retain(self, topic: str, start: Position, keep_newest: bool = False) -> None:
        stop = embedded.only_offset(start)

        def removable(db: sqlite3.Connection) -> bool:
            return bool(_removable(db, _topic(db, topic), stop, keep_newest, 1))

        def remove(db: sqlite3.Connection) -> None:
            _remove(db, topic, stop, keep_newest)

        self._file.check_writable()
        while self._file.read(removable):
            self._file.write(remove, REMOVE_PATIENCE_S, 0)

    def thin(self, topic: str, start: Position, is_over: Callable[[Record], bool]) -> None:
        self._file.check_writable()
        while records := self.above_floor(topic, start):
            over = [(r.offset, len(r.payload)) for r in records if is_over(r)]
            take_out = partial(_delete, name=topic, gone=over, floor=records[-1].offset + 1)
            self._file.write(take_out, REMOVE_PATIENCE_S, 0)

    def above_floor(self, topic: str, start: Position) -> list[Record]:
        """The oldest records before `start` that `thin` has not asked about, or some of them."""
        stop = embedded.only_offset(start)

        def query(db: sqlite3.Connection) -> list[Record]:
            row = _topic(db, topic)
            last = min(stop, row.head)
            return _records(db, topic, row.id, row.floor, last, REMOVE_RECORDS)

        return self._file.read(query)

    def snapshot(self) -> AbstractContextManager[None]:
        return self._file.snapshot()

    @property
    def trouble(self) -> None:
        """It is there or it raises."""
        return None

    def size_bytes(self, topic: str) -> int:
        return self._read_topic(topic).bytes

    def close(self) -> None:
        self._file.close()

    def _read_topic(self, topic: str) -> _Topic:
        return self._file.read(lambda db: _topic(db, topic), one_statement=True)

    def _refusal(
        self, db: sqlite3.Connection, needed: Mapping[str, int], timeout_s: float
    ) -> BusFull | None:
        """What to raise while a topic has no room for what it is to get."""
        for topic, size in needed.items():
            if topic in self._limits:
                kept, limit = _topic(db, topic).bytes, self._limits[topic]
                if not embedded.has_room(kept, size, limit):
                    return embedded.full(topic, kept, size, limit, timeout_s)
        return None

    def _wait(self, probe: Callable[[], T], deadline: float) -> T:
        """The first result of `probe` that is true, or its last one when the time is up."""
        began = time.monotonic()
        while True:
            result = probe()
            now = time.monotonic()
            if result or now >= deadline:
                return result
            patient = min(LONGEST_PAUSE_S, PAUSE_SHARE * (now - began))
            time.sleep(min(deadline - now, max(self._poll_interval_s, patient)))


class SqliteSubscription:
    """A reader of a SqliteBus; one thread at a time."""

    def __init__(self, bus: SqliteBus, topic: str, first: int) -> None:
        self._bus = bus
        self._topic = topic
        self._next = first

    def poll(self, timeout_s: float, limit: int = 256) -> list[Record]:
        """The next records; inside a snapshot nothing new can come, so it does not wait."""
        embedded.check_limit(limit)
        wait_s = 0.0 if self._bus._file.in_snapshot() else timeout_s
        records = self._bus._wait(lambda: self._take(limit), time.monotonic() + wait_s)
        if records:
            self._next = records[-1].offset + 1
        return records

    def position(self) -> Position:
        return (self._next,)

    def lag(self) -> int:
        def count(db: sqlite3.Connection) -> int:
            row = _topic(db, self._topic)
            if self._next >= row.floor:
                return row.head - self._next
            sql = f"SELECT count(*) FROM records_{row.id} WHERE offset >= ? AND offset < ?"
            below = db.execute(sql, (self._next, row.floor)).fetchall()[0][0]
            return int(row.head - row.floor + below)

        return self._bus._file.read(count)

    def overtaken(self) -> bool:
        """Only a reader's own side removes records here."""
        return False

    def close(self) -> None:
        """It holds nothing."""

    def _take(self, limit: int) -> list[Record]:
        """Up to `limit` records that are there."""

        row = self._bus._read_topic(self._topic)
        if self._next >= row.head:
            return []
        records = self._bus._file.read(
            lambda db: _records(db, self._topic, row.id, self._next, row.head, limit)
        )
        if not records:  # retention took all that was left to read
            self._next = row.head
        return records


def _topic(db: sqlite3.Connection, name: str) -> _Topic:
    """The topic's row; zeros when nothing was ever published to it."""
    sql = "SELECT id, head, floor, bytes FROM topics WHERE name = ?"
    rows = db.execute(sql, (name,)).fetchall()
    return _Topic(*rows[0]) if rows else _Topic(0, 0, 0, 0)


def _records(
    db: sqlite3.Connection, topic: str, topic_id: int, start: int, stop: int, limit: int
) -> list[Record]:
    """The kept records of `start` to `stop`, up to `limit` of them or POLL_BYTES."""
    if not topic_id:
        return []
    cursor = db.execute(
        f"SELECT {COLUMNS} FROM records_{topic_id} "
        f"WHERE offset >= ? AND offset < ? ORDER BY offset LIMIT ?",
        (start, stop, limit),
    )
    records: list[Record] = []
    size = 0
    for found in cursor:
        records.append(_record(topic, found))
        size += len(records[-1].payload)
        if size >= POLL_BYTES:
            break
    cursor.close()
    return records


def _record(topic: str, row: tuple[int, str, str, bytes, float]) -> Record:
    """From a row of COLUMNS."""
    offset, key, headers, payload, time_s = row
    return Record(topic, 0, offset, key, _decode_headers(headers), payload, time_s)


def _first_kept(db: sqlite3.Connection, row: _Topic, lowest: int) -> int:
    """The oldest kept offset from `lowest` on, or the head."""
    if lowest >= row.floor:
        return lowest
    sql = f"SELECT min(offset) FROM records_{row.id} WHERE offset >= ?"
    found = db.execute(sql, (lowest,)).fetchall()[0][0]
    return row.head if found is None else int(found)


def _append(
    db: sqlite3.Connection, rows: Sequence[tuple[Outgoing, str]], needed: Mapping[str, int]
) -> list[int]:
    """Insert the messages, each with its encoded headers, and move their topics' heads."""
    now = time.time()
    topics = {name: _ensure_topic(db, name) for name in needed}
    heads = {name: topic.head for name, topic in topics.items()}
    newest: dict[tuple[int, str], tuple[int, str]] = {}
    offsets = []
    for message, headers in rows:
        topic_id, offset = topics[message.topic].id, heads[message.topic]
        db.execute(
            f"INSERT INTO records_{topic_id} VALUES (?, ?, ?, ?, ?)",
            (offset, now, message.key, headers, message.payload),
        )
        newest[topic_id, message.key] = (offset, headers)
        heads[message.topic] = offset + 1
        offsets.append(offset)
    db.executemany(
        "INSERT OR REPLACE INTO newest VALUES (?, ?, ?, ?)",
        [(*where, *what) for where, what in newest.items()],
    )
    db.executemany(
        "UPDATE topics SET head = ?, bytes = bytes + ? WHERE name = ?",
        [(heads[name], size, name) for name, size in needed.items()],
    )
    return offsets


def _marked(db: sqlite3.Connection, mark: _Mark) -> list[int] | None:
    """Offsets of the publication, if it is there; only the newest of a client is remembered, as it
    waits for each."""
    sql = "SELECT offset, headers FROM newest WHERE topic = -1 AND key = ?"
    rows = db.execute(sql, (mark.client,)).fetchall()
    if not rows or rows[0][0] < mark.number:
        return None
    return _decode_offsets(rows[0][1])


def _set_mark(db: sqlite3.Connection, mark: _Mark, offsets: Sequence[int]) -> None:
    """Among the newest of a topic that there is not; 0 stands for one that nobody used yet."""
    told = _encode_headers(offsets).decode()
    db.execute("INSERT OR REPLACE INTO newest VALUES (-1, ?, ?, ?)", (*mark, told))


def _ensure_topic(db: sqlite3.Connection, name: str) -> _Topic:
    """The topic's row, made with its table at first use. A topic is never removed."""
    topic = _topic(db, name)
    if topic.id:
        return topic
    topic = _Topic(db.execute("SELECT count(*) FROM topics").fetchall()[0][0] + 1, 0, 0, 0)
    db.execute("INSERT INTO topics VALUES (?, ?, ?, ?, ?)", (name, *topic))
    db.execute(
        f"CREATE TABLE records_{topic.id} (offset INTEGER PRIMARY KEY, time_s REAL NOT NULL, "
        f"key TEXT NOT NULL, headers TEXT NOT NULL, payload BLOB NOT NULL)"
    )
    return topic


def _removable(
    db: sqlite3.Connection, topic: _Topic, stop: int, keep_newest: bool, limit: int
) -> list[tuple[int, int]]:
    """Offsets and payload sizes of the oldest records before `stop` that may go."""
    if not topic.id:
        return []
    spared = "AND offset NOT IN (SELECT offset FROM newest WHERE topic = ?)" if keep_newest else ""
    sql = (
        f"SELECT offset, length(payload) FROM records_{topic.id} "
        f"WHERE offset < ? {spared} ORDER BY offset LIMIT {limit}"
    )
    return db.execute(sql, (stop, topic.id) if keep_newest else (stop,)).fetchall()


def _remove(db: sqlite3.Connection, name: str, stop: int, keep_newest: bool) -> None:
    """Remove the oldest removable records, REMOVE_BYTES of them or a little more."""
    topic, gone, size = _topic(db, name), list[tuple[int, int]](), 0
    for offset, payload_bytes in _removable(db, topic, stop, keep_newest, REMOVE_RECORDS):
        gone.append((offset, payload_bytes))
        size += payload_bytes
        if size >= REMOVE_BYTES:
            break
    _delete(db, name, gone, gone[-1][0] + 1 if gone else 0)


def _delete(db: sqlite3.Connection, name: str, gone: Sequence[tuple[int, int]], floor: int) -> None:
    """Remove records by offset and payload size; another process may just have done the same."""
    topic, removed = _topic(db, name), 0
    for offset, size in gone:
        sql = f"DELETE FROM records_{topic.id} WHERE offset = ?"
        removed += size * db.execute(sql, (offset,)).rowcount
    db.execute(
        "UPDATE topics SET floor = max(floor, ?), bytes = bytes - ? WHERE name = ?",
        (floor, removed, name),
    )


KEPT_MB = Field(
    default=256,
    ge=1,
    le=MOST_EXPERIENCE_MB,
    description="kept experience; publishers wait when it is full; more where a few fragments are "
    "larger than that",
)


class SqliteBusConfig(BusConfig):
    """One file inside the run's directory."""

    kind: Literal["sqlite"] = "sqlite"
    max_experience_mb: int = KEPT_MB


class SqliteRunBus:
    Config: type[BusConfig] = SqliteBusConfig

    @staticmethod
    def open(place: BusPlace) -> SqliteBus:
        place.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        return SqliteBus(place.directory / RUN_FILE, {EXPERIENCES: place.experience_bytes})

    @staticmethod
    def read(place: BusPlace) -> SqliteBus | None:
        if not (place.directory / RUN_FILE).exists():
            return None
        try:
            return SqliteBus(place.directory / RUN_FILE, read_only=True)
        except BusUnmade:
            return None
