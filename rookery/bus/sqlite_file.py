"""One SQLite file that several processes and threads read and write at once.

    file = SqliteFile(path, schema="CREATE TABLE ...", read_only=False)
    rows = file.read(lambda db: db.execute("SELECT ...").fetchall())
    file.write(lambda db: db.execute("INSERT ..."), patience_s=60.0, size_bytes=330_000)

Each thread has its own connection. A write is one BEGIN IMMEDIATE transaction, so a process that is
killed leaves all of it or nothing. Waiting for a lock is done here, in short sleeps: SQLite's own
busy handler sleeps up to 100 ms.

The WAL is checkpointed here too, by the process that wrote much, always as RESTART: that holds
writers off meanwhile, so the WAL starts anew instead of growing, and it avoids the race between a
checkpoint and a write that SQLite before 3.51.3 has (sqlite.org/wal.html#walresetbug). A WAL that
grew all the same, while many wrote or one read for long, is cut (TRUNCATE); as a rule that would
only cost time, 450 against 290 MB/s.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from rookery.bus import embedded
from rookery.errors import BusError, BusUnmade
from rookery.processes import look_at, sqlite_writers

T = TypeVar("T")

SCHEMA_VERSION = 1
APPLICATION_ID = 0x526F6F6B  # "Rook": tells our file from any other database
PAGE_BYTES = 16384  # 330 kB messages went nearly twice as fast as with SQLite's 4096
COMMIT_BYTES = 4 * PAGE_BYTES  # what a commit adds to the WAL besides its payloads, roughly
CHECKPOINT_BYTES = 16 << 20  # written by this process; more means longer stalls (fsync), not fewer
LARGE_WAL_BYTES = 64 << 20
CHECKPOINT_PATIENCE_MS = 100  # for readers in the way; writers wait meanwhile
LOCK_PAUSE_S = 0.0003
# A process that is frozen may hold the lock until it is found and ended: waits outlast that. A
# time-out of 0 means "do not wait for room", not "not for a lock".
LEAST_WRITE_PATIENCE_S = 60.0
READ_PATIENCE_S = 60.0  # a reader only waits while another process recovers the WAL

SQLITE_BUSY, SQLITE_LOCKED, SQLITE_READONLY, SQLITE_IOERR = 5, 6, 8, 10
SQLITE_CORRUPT, SQLITE_FULL, SQLITE_CANTOPEN, SQLITE_PROTOCOL, SQLITE_NOTADB = 11, 13, 14, 15, 26
NO_HELPERS = (SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN)

logger = logging.getLogger(__name__)


class _Connection:
    """A thread's connection; the lock keeps `close` from pulling it away in mid-statement."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self.lock = threading.Lock()
        self.snapshots = 0  # depth of nested snapshots

    def __del__(self) -> None:
        self.db.close()


class SqliteFile:
    """The file with its schema; made when missing unless `read_only`."""

    def __init__(self, path: str | os.PathLike[str], schema: str, read_only: bool = False) -> None:
        self.path = Path(path).absolute()
        self._wal = f"{self.path}-wal"
        self._read_only = read_only
        self._pid = os.getpid()
        self._closed = False
        self._guard = threading.Lock()
        self._connections: weakref.WeakSet[_Connection] = weakref.WeakSet()
        self._thread = threading.local()
        self._written_bytes = 0  # by us since our last checkpoint, of whatever success
        self._large_wal_bytes = LARGE_WAL_BYTES
        self._uri = f"{self.path.as_uri()}?mode="
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._retried(lambda: self._open(schema), READ_PATIENCE_S)
        except BusError as error:
            if not read_only or _code(error.__cause__) not in NO_HELPERS or not self.path.exists():
                raise
            self._uri = self._as_it_lies()
            self._retried(lambda: self._open(schema), READ_PATIENCE_S)

    def _as_it_lies(self) -> str:
        """Where SQLite cannot put its helpers beside the file, on a disk that is full or may not be
        written: nobody can be writing there, so it holds still. With a WAL it is read in a copy."""
        if not os.path.exists(self._wal) or not os.path.getsize(self._wal):
            return f"{self.path.as_uri()}?immutable=1&mode="
        self._copy = tempfile.TemporaryDirectory(prefix="rookery-")
        for path in (self.path, self._wal):
            shutil.copy(path, self._copy.name)
        return f"{Path(self._copy.name, self.path.name).as_uri()}?mode="

    def read(self, query: Callable[[sqlite3.Connection], T], *, one_statement: bool = False) -> T:
        """Run a query in one read transaction, or in the snapshot that this thread is inside.

        One statement that is read to its end is a transaction of its own: cheaper, for polling.
        """
        connection = self._connection()

        def attempt() -> T:
            with connection.lock:
                db = self._usable(connection)
                if one_statement or connection.snapshots:
                    return query(db)
                return _in_transaction(db, "BEGIN", query)

        return self._retried(attempt, READ_PATIENCE_S)

    def write(
        self, change: Callable[[sqlite3.Connection], T], patience_s: float, size_bytes: int
    ) -> T:
        """Run a change of about this size in one transaction, after other writers' ones."""
        self.check_writable()
        connection = self._connection()

        def attempt() -> T:
            with connection.lock:
                db = self._usable(connection)
                result = _in_transaction(db, "BEGIN IMMEDIATE", change)
                self._written_bytes += size_bytes + COMMIT_BYTES
                self._checkpoint_if_due(db)
                return result

        return self._retried(attempt, max(patience_s, LEAST_WRITE_PATIENCE_S))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """This thread's reads inside see one moment; the WAL cannot shrink meanwhile."""
        connection = self._connection()
        if not connection.snapshots:
            self._retried(lambda: self._pin(connection), READ_PATIENCE_S)
        connection.snapshots += 1
        try:
            yield
        finally:
            connection.snapshots -= 1
            with connection.lock:
                if not (connection.snapshots or self._closed) and connection.db.in_transaction:
                    connection.db.execute("ROLLBACK")

    def check_writable(self) -> None:
        """Raise when this thread is inside a snapshot."""
        if self.in_snapshot():
            raise embedded.write_in_snapshot(str(self.path))

    def in_snapshot(self) -> bool:
        return self._connection().snapshots > 0

    def close(self) -> None:
        """Close every thread's connection; a statement that is running ends first."""
        self._closed = True
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            with connection.lock:
                connection.db.close()
        if self._copy is not None:
            self._copy.cleanup()

    def _pin(self, connection: _Connection) -> None:
        with connection.lock:
            db = self._usable(connection)
            try:
                db.execute("BEGIN")
                db.execute("SELECT count(*) FROM sqlite_master").fetchall()
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    def _usable(self, connection: _Connection) -> sqlite3.Connection:
        if self._closed:
            raise embedded.closed(str(self.path))
        return connection.db

    def _connection(self) -> _Connection:
        """This thread's connection."""
        if os.getpid() != self._pid:
            raise BusError(f"{self.path} was opened before a fork: open it again in this process")
        connection: _Connection | None = getattr(self._thread, "connection", None)
        if connection is None:
            if self._closed:
                raise embedded.closed(str(self.path))
            connection = self._retried(lambda: self._connect("rw"), READ_PATIENCE_S)
            self._thread.connection = connection
        return connection

    def _connect(self, mode: str) -> _Connection:
        uri = f"{self._uri}{'ro' if self._read_only else mode}"
        db = sqlite3.connect(
            uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False
        )
        connection = _Connection(db)
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("PRAGMA secure_delete=OFF")  # some builds overwrite removed pages by default
        with self._guard:
            self._connections.add(connection)
        return connection

    def _open(self, schema: str) -> None:
        """Connect the first thread and make the file's schema if it has none."""
        connection = self._connect("rwc")
        try:
            self._check_schema(connection.db, schema)
        except BaseException:
            connection.db.close()
            raise
        self._thread.connection = connection

    def _check_schema(self, db: sqlite3.Connection, schema: str) -> None:
        version, _, tables = _in_transaction(db, "BEGIN", _identity)
        if version == 0:
            if self._read_only and not tables:
                raise BusUnmade(f"{self.path} holds nothing yet: try again")
            if self._read_only or tables:
                raise BusError(f"{self.path} is not a bus file: check the path")
            db.execute(f"PRAGMA page_size={PAGE_BYTES}")
            db.execute("PRAGMA auto_vacuum=NONE")
            db.execute("PRAGMA journal_mode=WAL")
            _in_transaction(db, "BEGIN IMMEDIATE", lambda db: _create(db, schema))
        version, application, _ = _in_transaction(db, "BEGIN", _identity)
        if application != APPLICATION_ID:
            raise BusError(f"{self.path} is another program's database: check the path")
        if version > SCHEMA_VERSION:
            raise BusError(
                f"{self.path} has bus format {version} and this Rookery knows up to "
                f"{SCHEMA_VERSION}: upgrade Rookery, or choose another path"
            )

    def _checkpoint_if_due(self, db: sqlite3.Connection) -> None:
        """Move the WAL into the file now and then. The commit stands whatever happens here."""
        try:
            wal_bytes = os.stat(self._wal).st_size
        except FileNotFoundError as error:
            raise BusError(f"{self.path} was removed while in use: open the bus again") from error
        if wal_bytes > self._large_wal_bytes:
            mode = "TRUNCATE"
        elif self._written_bytes > CHECKPOINT_BYTES:
            mode = "RESTART"
        else:
            return
        self._written_bytes = 0
        db.execute(f"PRAGMA busy_timeout={CHECKPOINT_PATIENCE_MS}")
        try:
            busy = bool(db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()[0][0])
        except sqlite3.OperationalError as error:
            busy = True
            if not _is_busy(error):
                logger.warning("cannot checkpoint the WAL of %s: %s", self.path, error)
        finally:
            db.execute("PRAGMA busy_timeout=0")
        in_vain = busy and mode == "TRUNCATE"
        self._large_wal_bytes = wal_bytes + CHECKPOINT_BYTES if in_vain else LARGE_WAL_BYTES

    def _retried(self, attempt: Callable[[], T], patience_s: float) -> T:
        """The result of `attempt`, again and again while the file is locked."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                return attempt()
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise self._translated(error, patience_s) from error
            time.sleep(LOCK_PAUSE_S)

    def _translated(self, error: sqlite3.Error, patience_s: float) -> BusError:
        """What happened, to which file, and what to do about it."""
        code = _code(error)
        if code == SQLITE_FULL or (code == SQLITE_IOERR and self._disk_is_full()):
            return BusError(
                f"disk is full while writing {self.path}: free some space, then resume the run"
            )
        if code == SQLITE_READONLY:
            return BusError(
                f"{self.path} may not be written: make the file and its directory writable for "
                f"this user, or open it read-only"
            )
        if code == SQLITE_CANTOPEN:
            return BusError(f"cannot open {self.path}: {self._why_not_opened()}")
        if code in (SQLITE_NOTADB, SQLITE_CORRUPT):
            return BusError(
                f"{self.path} is damaged or not a bus file ({error}): "
                f"move it away, or put back a copy"
            )
        if _is_busy(error):
            waited = f"{self.path} stayed locked for {patience_s:.2g} s"
            return BusError(f"{waited} by {self._lock_holder()}")
        return BusError(f"cannot use {self.path}: {error}; check its disk")

    def _lock_holder(self) -> str:
        """Who that is, and what to do about it."""
        for pid in sqlite_writers(self.path):
            if (seen := look_at(pid)) is not None:
                frozen = f", which is frozen: let it go on with kill -CONT {pid}, or end it with"
                return f"process {pid}{frozen if seen.stopped else ': end it with'} kill -9 {pid}"
        return f"another process: see which with `fuser {self.path}`"

    def _disk_is_full(self) -> bool:
        return shutil.disk_usage(self.path.parent).free < 1 << 20

    def _why_not_opened(self) -> str:
        if not self.path.parent.is_dir():
            return f"the directory {self.path.parent} does not exist; create it"
        if self.path.is_dir():
            return "it is a directory; name a file"
        if not self.path.exists() and self._read_only:
            return "the file does not exist; check the path, or start what writes it"
        return "check that this user may write the file and its directory"


def _in_transaction(
    db: sqlite3.Connection, begin: str, work: Callable[[sqlite3.Connection], T]
) -> T:
    try:
        db.execute(begin)
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # SQLite itself rolls back after some errors
            db.execute("ROLLBACK")
        raise
    return result


def _create(db: sqlite3.Connection, schema: str) -> None:
    """Make the tables, unless another process was first."""
    if _pragma(db, "user_version"):
        return
    for statement in schema.split(";"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id={APPLICATION_ID}")
    db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchall()[0][0])


def _identity(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Format, program and number of tables; in one transaction, as another may be making them."""
    tables = int(db.execute("SELECT count(*) FROM sqlite_master").fetchall()[0][0])
    return _pragma(db, "user_version"), _pragma(db, "application_id"), tables


def _code(error: BaseException | None) -> int:
    """SQLite's primary result code; 0 when the error is the Python module's own."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _is_busy(error: sqlite3.Error) -> bool:
    return _code(error) in (SQLITE_BUSY, SQLITE_LOCKED, SQLITE_PROTOCOL)
