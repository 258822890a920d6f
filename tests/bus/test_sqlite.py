"""The SQLite bus keeps the contract, between processes and when they are killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rookery.bus import EARLIEST, LATEST, Bus, Outgoing, Position, Record, Subscription, sqlite_file
from rookery.bus.memory import MemoryBus
from rookery.bus.open import open_bus
from rookery.bus.sqlite import SqliteBus
from rookery.errors import BusError, BusFull
from rookery.testing.bus_suite import PATIENCE_S, EmbeddedBusSuite, drain

ROOT = Path(__file__).parents[2]
PROCESS_PATIENCE_S = 60.0  # a loaded machine starts Python slowly


class TestSqliteBus(EmbeddedBusSuite):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        return SqliteBus(self.directory / "bus.sqlite", limits)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sqlite"


@pytest.fixture
def bus(path: Path) -> Iterator[SqliteBus]:
    bus = SqliteBus(path)
    yield bus
    bus.close()


class Child:
    """A Python process that runs `script` and talks in lines."""

    def __init__(self, script: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._alarm = threading.Timer(PROCESS_PATIENCE_S, self.process.kill)
        self._alarm.start()  # ends a readline that would wait for ever

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def rest(self) -> list[str]:
        assert self.process.stdout is not None  # communicate() would lose what readline buffered
        lines = self.process.stdout.read().split("\n")
        self.process.wait(PROCESS_PATIENCE_S)
        return lines

    def end(self) -> None:
        self._alarm.cancel()
        self.process.kill()
        self.process.communicate(timeout=PROCESS_PATIENCE_S)


@pytest.fixture
def children() -> Iterator[list[Child]]:
    children: list[Child] = []
    yield children
    for child in children:
        child.end()


WRITER = """
    import sys
    from rookery.bus import Outgoing
    from rookery.bus.sqlite import SqliteBus
    path, name, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    bus = SqliteBus(path)
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(count):
        payload = b"%d " % i + b"x" * size
        offset, _ = bus.publish([Outgoing("t", payload, name), Outgoing("other", b"", name)])
        sys.stdout.write(f"{offset} {i}\\n")
        sys.stdout.flush()
    bus.close()
"""

READER = """
    import sys
    from rookery.bus import EARLIEST
    from rookery.bus.sqlite import SqliteBus
    path, count = sys.argv[1], int(sys.argv[2])
    bus = SqliteBus(path)
    subscription = bus.subscribe("t", EARLIEST)
    print("ready", flush=True)
    seen = 0
    while seen < count:
        for record in subscription.poll(30.0):
            print(record.offset, record.key, int(record.payload.split()[0]))
            seen += 1
"""


def test_processes_write_and_read_at_once(path: Path, children: list[Child]) -> None:
    # Given three writers and two readers that all open (and make) the file together
    writers = [Child(WRITER, path, name, 60, 20_000) for name in "abc"]
    readers = [Child(READER, path, 180) for _ in range(2)]
    children += [*writers, *readers]
    assert [child.line() for child in children] == ["ready"] * 5
    # When the writers start
    for writer in writers:
        writer.say("go")
    # Then each reader sees every acknowledged record once, in order, and whole
    expected = {}
    for name, writer in zip("abc", writers, strict=True):
        for line in writer.rest():
            if line:
                offset, i = line.split()
                expected[int(offset)] = f"{offset} {name} {i}"
    assert sorted(expected) == list(range(180))
    for reader in readers:
        assert [line for line in reader.rest() if line] == [expected[i] for i in range(180)]


@pytest.mark.parametrize("size", [50, 300_000])
def test_a_killed_writer_leaves_all_that_was_acknowledged(
    path: Path, children: list[Child], size: int
) -> None:
    bus = SqliteBus(path)
    acknowledged: dict[int, tuple[str, int]] = {}
    for name in "ab":  # the second writer goes on where the first was killed
        children.append(writer := Child(WRITER, path, name, 1_000_000, size))
        assert writer.line() == "ready"
        writer.say("go")
        for _ in range(40):
            offset, i = map(int, writer.line().split())
            acknowledged[offset] = (name, i)
        writer.process.send_signal(signal.SIGKILL)
        for line in writer.rest()[:-1]:  # what it still said; a line cut short is not an answer
            offset, i = map(int, line.split())
            acknowledged[offset] = (name, i)
    assert bus.publish([Outgoing("t", b"0 ", "c")]) == list(bus.end("other"))
    records = drain(bus.subscribe("t", EARLIEST), bus.end("t")[0])
    # no gap, nothing acknowledged is missing, and at most one in flight for each kill
    assert [record.offset for record in records] == list(range(len(records)))
    for offset, (name, i) in acknowledged.items():
        assert (records[offset].key, records[offset].payload) == (name, b"%d " % i + b"x" * size)
    assert 0 <= len(records) - 1 - len(acknowledged) <= 2
    assert bus.size_bytes("t") == sum(len(record.payload) for record in records)
    bus.close()
    assert _check(path) == "ok"


def test_a_killed_reader_holds_nobody_up(path: Path, children: list[Child]) -> None:
    holder = """
        import sys
        from rookery.bus.sqlite import SqliteBus
        bus = SqliteBus(sys.argv[1])
        with bus.snapshot():
            print("inside", flush=True)
            sys.stdin.readline()
    """
    bus = SqliteBus(path)
    bus.publish([Outgoing("t", b"x")])
    children.append(child := Child(holder, path))
    assert child.line() == "inside"
    child.process.send_signal(signal.SIGKILL)
    child.process.wait(PROCESS_PATIENCE_S)
    payload = b"x" * (1 << 20)
    for _ in range(60):
        bus.publish([Outgoing("t", payload)])
    assert _wal_bytes(path) < 32 << 20
    bus.close()


def test_many_processes_make_the_file_at_once(path: Path, children: list[Child]) -> None:
    opener = """
        import sys
        from rookery.bus import Outgoing
        from rookery.bus.sqlite import SqliteBus
        for i in range(int(sys.argv[2])):
            print("ready", flush=True)
            sys.stdin.readline()
            bus = SqliteBus(f"{sys.argv[1]}.{i}")
            print(*bus.publish([Outgoing("t", b"x")]), flush=True)
            bus.close()
    """
    children += [Child(opener, path, 10) for _ in range(4)]
    for _ in range(10):
        assert [child.line() for child in children] == ["ready"] * 4
        for child in children:
            child.say("go")
        assert sorted(child.line() for child in children) == ["0", "1", "2", "3"]


def test_a_writer_waits_for_anothers_transaction(path: Path, bus: SqliteBus) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.1, other.execute, ["ROLLBACK"])
    timer.start()
    assert bus.publish([Outgoing("t", b"x")], timeout_s=PATIENCE_S) == [0]
    timer.join(PATIENCE_S)
    other.close()


def test_a_lock_that_is_never_let_go_is_an_error(
    path: Path, bus: SqliteBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_file, "LEAST_WRITE_PATIENCE_S", 0.0)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(BusError, match=rf"locked for 0\.05 s by process {os.getpid()}:"):
        bus.publish([Outgoing("t", b"x")], timeout_s=0.05)
    assert time.monotonic() - began < PATIENCE_S
    other.execute("ROLLBACK")
    other.close()
    assert bus.publish([Outgoing("t", b"x")]) == [0]


def test_the_wal_and_the_file_stay_small_while_readers_poll(path: Path, bus: SqliteBus) -> None:
    """150 MB pass through while 1 MB is kept and two readers poll all the time."""
    stop = threading.Event()
    lost: list[int] = []

    def read() -> None:
        subscription = bus.subscribe("t", EARLIEST)
        seen = 0
        while not stop.is_set() or subscription.lag():
            seen += len(subscription.poll(0.05))
        lost.append(150 - seen)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    payload = os.urandom(1 << 20)
    wal, size = 0, 0
    for i in range(150):
        bus.publish([Outgoing("t", payload)])
        bus.retain("t", (i - 9,))
        wal = max(wal, _wal_bytes(path))
        size = max(size, path.stat().st_size)
    stop.set()
    for reader in readers:
        reader.join(PATIENCE_S)
    assert wal < 48 << 20
    assert size < 32 << 20
    assert bus.size_bytes("t") == 10 << 20
    assert len(lost) == 2


def test_the_wal_shrinks_again_after_a_long_snapshot(path: Path, bus: SqliteBus) -> None:
    bus.publish([Outgoing("t", b"x")])
    payload = bytes(1 << 20)

    def publish(count: int) -> None:
        for _ in range(count):
            bus.publish([Outgoing("t", payload)])

    with bus.snapshot():
        writer = threading.Thread(target=publish, args=(90,))
        writer.start()
        writer.join(PATIENCE_S)
        assert bus.end("t") == (1,)
        assert _wal_bytes(path) > 80 << 20
    publish(40)
    assert _wal_bytes(path) < 32 << 20


def test_much_is_removed_in_several_transactions(
    bus: SqliteBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.bus.sqlite.REMOVE_BYTES", 100)
    monkeypatch.setattr("rookery.bus.sqlite.REMOVE_RECORDS", 7)
    bus.publish([Outgoing("t", b"x" * 30, str(i % 5)) for i in range(60)])
    bus.retain("t", (50,), keep_newest=True)
    assert (bus.size_bytes("t"), bus.subscribe("t", EARLIEST).lag()) == (300, 10)
    bus.retain("t", (58,))
    assert (bus.size_bytes("t"), bus.subscribe("t", EARLIEST).position()) == (60, (58,))


def test_one_poll_does_not_fill_the_memory(bus: SqliteBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.bus.sqlite.POLL_BYTES", 100)
    bus.publish([Outgoing("t", b"x" * 60) for _ in range(5)])
    subscription = bus.subscribe("t", EARLIEST)
    assert [len(subscription.poll(0.0)) for _ in range(4)] == [2, 2, 1, 0]


def test_headers_in_portions_are_all_there(bus: SqliteBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.bus.sqlite.HEADERS_AT_ONCE", 3)
    bus.publish([Outgoing("t", b"", headers={"i": str(i)}) for i in range(10)])
    assert [h["i"] for h in bus.headers("t", (1,))] == [str(i) for i in range(1, 10)]


def test_a_bus_is_found_again_after_close(path: Path) -> None:
    bus = open_bus(f"sqlite:{path}")
    bus.publish([Outgoing("t", b"x", "k", {"a": "b"})])
    bus.close()
    again = open_bus(f"sqlite:{path}", {"t": 1})
    assert drain(again.subscribe("t", EARLIEST), 1)[0].headers == {"a": "b"}
    with pytest.raises(BusFull):
        again.publish([Outgoing("t", b"y")], timeout_s=0.0)
    again.close()


def test_opening_is_fast(path: Path) -> None:
    SqliteBus(path).close()  # making the file waits for the disk, so it is not timed
    times = []
    for _ in range(9):
        began = time.perf_counter()
        bus = SqliteBus(path)
        times.append(time.perf_counter() - began)
        bus.close()
    assert min(times) < 0.005


def test_threads_that_end_give_their_connections_back(bus: SqliteBus) -> None:
    def use() -> None:
        bus.end("t")

    bus.end("t")
    for _ in range(20):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(PATIENCE_S)
    assert len(bus._file._connections) == 1


def test_a_fork_is_told_to_open_its_own(path: Path, children: list[Child]) -> None:
    script = """
        import os, sys
        from rookery.bus.sqlite import SqliteBus
        from rookery.errors import BusError
        bus = SqliteBus(sys.argv[1])
        if os.fork() == 0:
            try:
                bus.end("t")
            except BusError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
    """
    children.append(child := Child(script, path))
    assert "open it again" in child.line()


# What goes wrong is said in one line with the path


def test_read_only_reads_what_others_write(path: Path, bus: SqliteBus) -> None:
    reader = SqliteBus(path, read_only=True)
    subscription = reader.subscribe("t", LATEST)
    bus.publish([Outgoing("t", b"x")])
    assert drain(subscription, 1)[0].payload == b"x"
    with pytest.raises(BusError, match=r"bus\.sqlite may not be written"):
        reader.publish([Outgoing("t", b"y")])
    reader.close()


def test_read_only_reads_a_file_that_nobody_writes(path: Path) -> None:
    bus = SqliteBus(path)
    bus.publish([Outgoing("t", b"x")])
    bus.close()
    reader = SqliteBus(path, read_only=True)
    assert drain(reader.subscribe("t", EARLIEST), 1)[0].payload == b"x"
    reader.close()


def test_read_only_never_makes_the_file(path: Path) -> None:
    with pytest.raises(BusError, match=r"bus\.sqlite: the file does not exist"):
        SqliteBus(path, read_only=True)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"hello", b"not a database " * 1000])
def test_a_file_that_is_no_database_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(BusError, match=r"bus\.sqlite is damaged or not a bus file"):
        SqliteBus(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE topics (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(BusError, match="not a bus file"):
        SqliteBus(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_named(path: Path) -> None:
    bus = SqliteBus(path)
    for i in range(20):
        bus.publish([Outgoing("t", bytes(50_000), str(i))])
    bus.close()
    with path.open("r+b") as file:
        file.seek(sqlite_file.PAGE_BYTES)
        file.write(b"\xff" * (path.stat().st_size - 2 * sqlite_file.PAGE_BYTES))
    with pytest.raises(BusError, match=r"bus\.sqlite is damaged"):
        bus = SqliteBus(path)
        try:
            drain(bus.subscribe("t", EARLIEST), 20)
        finally:
            bus.close()


def test_a_newer_format_is_refused(path: Path, bus: SqliteBus) -> None:
    bus.close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={sqlite_file.SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(BusError, match=r"bus\.sqlite has bus format 2 .*upgrade"):
        SqliteBus(path)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(BusError, match=r"the directory .*nowhere does not exist"):
        SqliteBus(tmp_path / "nowhere" / "bus.sqlite")


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(BusError, match="it is a directory"):
        SqliteBus(tmp_path)


def test_a_file_removed_while_in_use_is_named(path: Path, bus: SqliteBus) -> None:
    bus.publish([Outgoing("t", b"x")])
    for file in path.parent.glob("bus.sqlite*"):
        file.unlink()
    with pytest.raises(BusError, match=r"bus\.sqlite was removed while in use"):
        bus.publish([Outgoing("t", b"y")])


def test_a_path_with_odd_characters_works(tmp_path: Path) -> None:
    path = tmp_path / "50% of #1?.sqlite"
    bus = SqliteBus(path)
    bus.publish([Outgoing("t", b"x")])
    bus.close()
    assert path.exists()


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, check=False, capture_output=True, timeout=30).returncode != 0:
        pytest.skip("this machine does not let us mount a tmpfs")
    try:
        filler = tmp_path / "filler"
        filler.write_bytes(bytes(2 << 20))
        path = tmp_path / "bus.sqlite"
        bus = SqliteBus(path)
        count = 0
        with pytest.raises(BusError, match=r"disk is full while writing .*bus\.sqlite: free some"):
            for _ in range(100):
                bus.publish([Outgoing("t", bytes(100_000))])
                count += 1
        assert 5 < count < 40
        assert bus.end("t") == (count,)
        filler.unlink()
        assert bus.publish([Outgoing("t", bytes(100_000))]) == [count]
        records = drain(bus.subscribe("t", EARLIEST), count + 1)
        assert [record.offset for record in records] == list(range(count + 1))
        bus.close()
        assert _check(path) == "ok"
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True, timeout=30)


# The two embedded buses do the same

TOPICS = st.sampled_from(["t", "u"])
KEYS = st.sampled_from(["", "a", "b", "c"])
OFFSETS = st.integers(-1, 40)
MESSAGES = st.builds(
    Outgoing,
    TOPICS,
    st.binary(max_size=20),
    KEYS,
    st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)
STARTS = st.one_of(st.sampled_from([EARLIEST, LATEST]), st.tuples(OFFSETS))
LIMITS = {"t": 120}


class SameAnswers(RuleBasedStateMachine):
    """Whatever is done, memory and SQLite answer alike."""

    @initialize()
    def make(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "bus.sqlite"
        self.memory: Bus = MemoryBus(LIMITS)
        self.sqlite: Bus = SqliteBus(self.path, LIMITS)
        self.readers: list[tuple[str, Subscription, Subscription]] = []

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.sqlite.close()
            self.directory.cleanup()

    @rule(messages=st.lists(MESSAGES, max_size=5))
    def publish(self, messages: list[Outgoing]) -> None:
        assert _publish(self.memory, messages) == _publish(self.sqlite, messages)

    @rule(topic=TOPICS, offset=OFFSETS, keep_newest=st.booleans())
    def retain(self, topic: str, offset: int, keep_newest: bool) -> None:
        self.memory.retain(topic, (offset,), keep_newest)
        self.sqlite.retain(topic, (offset,), keep_newest)

    @rule(topic=TOPICS, offset=OFFSETS, over=KEYS)
    def thin(self, topic: str, offset: int, over: str) -> None:
        for bus in (self.memory, self.sqlite):
            bus.thin(topic, (offset,), lambda record: record.key == over)

    @rule(topic=TOPICS, start=STARTS)
    def subscribe(self, topic: str, start: Position | str) -> None:
        pair = (self.memory.subscribe(topic, start), self.sqlite.subscribe(topic, start))
        self.readers.append((topic, *pair))

    @precondition(lambda self: bool(getattr(self, "readers", [])))
    @rule(data=st.data(), limit=st.integers(1, 6))
    def poll(self, data: st.DataObject, limit: int) -> None:
        _, memory, sqlite = data.draw(st.sampled_from(self.readers))
        assert _plain(memory.poll(0.0, limit)) == _plain(sqlite.poll(0.0, limit))

    @rule()
    def open_again(self) -> None:
        self.sqlite.close()
        self.sqlite = SqliteBus(self.path, LIMITS)
        places = [(topic, memory.position()) for topic, memory, _ in self.readers]
        self.readers = []
        for topic, position in places:
            self.subscribe(topic, position)

    @rule(topic=TOPICS, key=KEYS, offset=OFFSETS)
    def look(self, topic: str, key: str, offset: int) -> None:
        def everything(bus: Bus) -> tuple[object, ...]:
            newest = bus.newest(topic, key)
            return (
                bus.end(topic),
                bus.size_bytes(topic),
                _plain([newest] if newest else []),
                _plain(bus.newest_all(topic)),
                bus.newest_headers(topic),
                list(bus.headers(topic, (offset,))),
            )

        assert everything(self.memory) == everything(self.sqlite)
        for _, memory, sqlite in self.readers:
            assert (memory.position(), memory.lag()) == (sqlite.position(), sqlite.lag())


def _plain(records: list[Record]) -> list[Record]:
    return [record._replace(time_s=0.0) for record in records]


def _publish(bus: Bus, messages: list[Outgoing]) -> list[int] | str:
    try:
        return bus.publish(messages, timeout_s=0.0)
    except BusFull as error:
        return str(error)


def _check(path: Path) -> str:
    db = sqlite3.connect(path)
    try:
        return str(db.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        db.close()


def _wal_bytes(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


TestSameAnswers = SameAnswers.TestCase
TestSameAnswers.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
