"""What every bus must do. Subclass the suite and say how a bus is made:

    class TestMyBus(BusSuite):
        def make_bus(self, limits=None):
            return MyBus(limits=limits)

Topics are new names in each test, so a broker that outlives the test will do; they must have one
partition. `RetentionSuite` and `EmbeddedBusSuite` hold what only some buses can do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from rookery.bus import EARLIEST, LATEST, Bus, Outgoing, Record, Subscription
from rookery.errors import BusClosed, BusError, BusFull

PATIENCE_S = 20.0  # nothing here takes this long unless it hangs


def drain(subscription: Subscription, count: int, limit: int = 256) -> list[Record]:
    """The next `count` records; fails when they do not come."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"got {len(records)} of {count} records"
        records += subscription.poll(1.0, min(limit, count - len(records)))
    return records


class BusSuite:
    """The contract of `rookery.bus.Bus`."""

    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        """A new, empty bus (or at least one whose topics can be new)."""
        raise NotImplementedError

    @pytest.fixture
    def topic(self) -> str:
        return f"suite.{uuid4().hex}"

    @pytest.fixture
    def other(self) -> str:
        return f"suite.{uuid4().hex}"

    @pytest.fixture
    def bus(self) -> Iterator[Bus]:
        bus = self.make_bus(None)
        yield bus
        bus.close()

    @pytest.fixture
    def start(self) -> Iterator[Callable[..., Future[Any]]]:
        """Run a function in another thread; its result is asked for with a time-out."""
        pool = ThreadPoolExecutor(16)
        yield pool.submit
        pool.shutdown(wait=True, cancel_futures=True)

    # Publishing and reading

    def test_a_reader_gets_what_was_published_in_order(self, bus: Bus, topic: str) -> None:
        offsets = [bus.publish([Outgoing(topic, b"%d" % i, key=str(i % 3))])[0] for i in range(20)]
        records = drain(bus.subscribe(topic, EARLIEST), 20)
        assert offsets == list(range(20))
        assert [record.offset for record in records] == offsets
        assert [record.payload for record in records] == [b"%d" % i for i in range(20)]
        assert [record.key for record in records] == [str(i % 3) for i in range(20)]
        assert {(record.topic, record.partition) for record in records} == {(topic, 0)}

    def test_a_record_carries_its_headers_time_and_bytes(self, bus: Bus, topic: str) -> None:
        headers = {"steps": "4096", "name": 'Zoë \u2654 "quoted"', "empty": ""}
        payload = bytes(range(256)) * 2000
        before = time.time()
        bus.publish([Outgoing(topic, payload, "ключ", headers), Outgoing(topic, b"")])
        full, bare = drain(bus.subscribe(topic, EARLIEST), 2)
        assert (full.payload, full.key, full.headers) == (payload, "ключ", headers)
        assert (bare.payload, bare.key, bare.headers) == (b"", "", {})
        assert before - 1.0 <= full.time_s <= time.time() + 1.0

    def test_a_readers_change_to_headers_stays_its_own(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"", "k", {"a": "1"})])
        drain(bus.subscribe(topic, EARLIEST), 1)[0].headers["a"] = "2"
        assert drain(bus.subscribe(topic, EARLIEST), 1)[0].headers == {"a": "1"}
        assert bus.newest_headers(topic) == {"k": {"a": "1"}}

    def test_a_batch_gets_offsets_in_each_of_its_topics(
        self, bus: Bus, topic: str, other: str
    ) -> None:
        bus.publish([Outgoing(other, b"0")])
        names = [topic, other, topic, other]
        assert bus.publish([Outgoing(name, name.encode()) for name in names]) == [0, 1, 1, 2]
        assert [r.offset for r in drain(bus.subscribe(topic, EARLIEST), 2)] == [0, 1]
        assert [r.offset for r in drain(bus.subscribe(other, EARLIEST), 3)] == [0, 1, 2]

    def test_an_empty_batch_is_nothing(self, bus: Bus, topic: str) -> None:
        assert bus.publish([]) == []
        assert bus.end(topic) == (0,)

    def test_publishers_in_many_threads_lose_nothing(
        self, bus: Bus, topic: str, start: Callable[..., Future[Any]]
    ) -> None:
        def publish(name: int) -> list[int]:
            return [
                offset
                for i in range(25)
                for offset in bus.publish(
                    [Outgoing(topic, b"%d" % (2 * i + j), str(name)) for j in range(2)]
                )
            ]

        publishers = [start(publish, name) for name in range(4)]
        records = drain(bus.subscribe(topic, EARLIEST), 200)
        acknowledged = [offset for p in publishers for offset in p.result(PATIENCE_S)]
        assert sorted(acknowledged) == list(range(200)) == [r.offset for r in records]
        for name in range(4):
            mine = [int(record.payload) for record in records if record.key == str(name)]
            assert mine == list(range(50))

    # Where a reader starts and stands

    def test_latest_skips_what_is_there(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"old")])
        subscription = bus.subscribe(topic, LATEST)
        bus.publish([Outgoing(topic, b"new")])
        assert [record.payload for record in drain(subscription, 1)] == [b"new"]

    def test_a_position_resumes_where_another_reader_stopped(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"%d" % i) for i in range(6)])
        first = bus.subscribe(topic, EARLIEST)
        drain(first, 4, limit=3)
        assert first.position() == (4,)
        second = bus.subscribe(topic, first.position())
        assert second.position() == (4,)
        assert [record.payload for record in drain(second, 2)] == [b"4", b"5"]

    def test_a_position_past_the_end_reads_what_comes_next(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"0")])
        subscription = bus.subscribe(topic, (7,))
        bus.publish([Outgoing(topic, b"1")])
        assert [record.payload for record in drain(subscription, 1)] == [b"1"]

    def test_a_start_that_makes_no_sense_is_refused(self, bus: Bus, topic: str) -> None:
        with pytest.raises(BusError, match="earliest"):
            bus.subscribe(topic, "yesterday")
        with pytest.raises(BusError, match="partition"):
            bus.subscribe(topic, (0, 0))

    def test_a_reader_may_come_before_the_topic(self, bus: Bus, topic: str) -> None:
        subscriptions = [bus.subscribe(topic, start) for start in (EARLIEST, LATEST, (0,))]
        assert [subscription.lag() for subscription in subscriptions] == [0, 0, 0]
        bus.publish([Outgoing(topic, b"first")])
        for subscription in subscriptions:
            assert drain(subscription, 1)[0].payload == b"first"

    def test_lag_counts_what_is_not_yet_polled(self, bus: Bus, topic: str) -> None:
        subscription = bus.subscribe(topic, EARLIEST)
        bus.publish([Outgoing(topic, b"x") for _ in range(5)])
        assert subscription.lag() == 5
        drain(subscription, 2)
        assert subscription.lag() == 3
        drain(subscription, 3)
        assert subscription.lag() == 0

    def test_poll_gives_at_most_the_limit(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"x") for _ in range(5)])
        subscription = bus.subscribe(topic, EARLIEST)
        assert len(subscription.poll(PATIENCE_S, limit=2)) <= 2
        with pytest.raises(BusError):
            subscription.poll(0.0, limit=0)

    # Waiting

    def test_poll_returns_empty_when_the_time_is_up(self, bus: Bus, topic: str) -> None:
        subscription = bus.subscribe(topic, EARLIEST)
        began = time.monotonic()
        assert subscription.poll(0.05) == []
        assert 0.04 <= time.monotonic() - began < PATIENCE_S

    def test_a_publish_wakes_a_waiting_reader(
        self, bus: Bus, topic: str, start: Callable[..., Future[Any]]
    ) -> None:
        waiting = threading.Event()

        def read() -> list[Record]:
            subscription = bus.subscribe(topic, EARLIEST)
            waiting.set()
            return subscription.poll(PATIENCE_S)

        reader = start(read)
        assert waiting.wait(PATIENCE_S)
        began = time.monotonic()
        bus.publish([Outgoing(topic, b"wake")])
        assert [record.payload for record in reader.result(PATIENCE_S)] == [b"wake"]
        assert time.monotonic() - began < PATIENCE_S / 2

    # Keys and headers

    def test_newest_is_the_last_record_of_its_key(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"%d" % i, "ab"[i % 2]) for i in range(5)])
        newest = bus.newest(topic, "a")
        assert newest is not None and (newest.offset, newest.payload) == (4, b"4")
        newest = bus.newest(topic, "b")
        assert newest is not None and (newest.offset, newest.payload) == (3, b"3")
        assert bus.newest(topic, "c") is None

    def test_the_newest_of_all_keys_come_in_order(self, bus: Bus, topic: str) -> None:
        assert bus.newest_all(topic) == []
        bus.publish([Outgoing(topic, b"%d" % i, "abac"[i % 4], {"i": str(i)}) for i in range(7)])
        found = bus.newest_all(topic)
        assert [(r.offset, r.key, r.payload) for r in found] == [
            (3, "c", b"3"),
            (5, "b", b"5"),
            (6, "a", b"6"),
        ]
        assert found == [bus.newest(topic, key) for key in "cba"]

    def test_headers_that_are_not_text_are_refused(self, bus: Bus, topic: str) -> None:
        with pytest.raises(BusError, match="steps"):
            bus.publish([Outgoing(topic, b"", headers={"steps": 4096})])  # type: ignore[dict-item]
        assert bus.end(topic) == (0,)

    def test_a_topic_never_used_is_empty(self, bus: Bus, topic: str) -> None:
        assert bus.end(topic) == (0,)
        assert bus.size_bytes(topic) == 0
        assert bus.newest(topic, "") is None
        assert bus.newest_headers(topic) == {}
        assert list(bus.headers(topic, (0,))) == []
        bus.retain(topic, (5,))
        bus.thin(topic, (5,), lambda record: True)
        assert bus.end(topic) == (0,)

    # Closing

    def test_a_closed_bus_says_so(self, topic: str) -> None:
        bus = self.make_bus(None)
        bus.publish([Outgoing(topic, b"x")])
        subscription = bus.subscribe(topic, EARLIEST)
        bus.close()
        bus.close()
        uses: list[Callable[[], object]] = [
            lambda: bus.publish([Outgoing(topic, b"x")]),
            lambda: bus.subscribe(topic, EARLIEST),
            lambda: bus.newest(topic, ""),
            lambda: bus.newest_all(topic),
            lambda: bus.newest_headers(topic),
            lambda: bus.thin(topic, (1,), lambda record: True),
            lambda: list(bus.headers(topic, (0,))),
            lambda: bus.end(topic),
            lambda: bus.retain(topic, (1,)),
            lambda: bus.snapshot().__enter__(),
            lambda: bus.size_bytes(topic),
            lambda: subscription.poll(0.0),
            subscription.lag,
        ]
        for use in uses:
            with pytest.raises(BusClosed):
                use()

    def test_close_ends_a_waiting_poll(self, topic: str, start: Callable[..., Future[Any]]) -> None:
        bus = self.make_bus(None)
        subscription = bus.subscribe(topic, EARLIEST)
        reader = start(subscription.poll, PATIENCE_S * 2)
        with pytest.raises(TimeoutError):
            reader.result(0.05)
        bus.close()
        with pytest.raises(BusClosed):
            reader.result(PATIENCE_S)


class RetentionSuite(BusSuite):
    """A bus from which records can be removed."""

    # Where a reader starts and stands

    def test_a_position_older_than_what_is_kept_starts_at_the_oldest(
        self, bus: Bus, topic: str
    ) -> None:
        bus.publish([Outgoing(topic, b"%d" % i) for i in range(6)])
        bus.retain(topic, (4,))
        for start in ((1,), EARLIEST):
            subscription = bus.subscribe(topic, start)
            assert (subscription.position(), subscription.lag()) == ((4,), 2)
            assert [record.offset for record in drain(subscription, 2)] == [4, 5]

    # Keys and headers

    def test_newest_headers_outlive_their_record(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"", "ab"[i % 2], {"i": str(i)}) for i in range(5)])
        expected = {"a": {"i": "4"}, "b": {"i": "3"}}
        assert bus.newest_headers(topic) == expected
        bus.retain(topic, bus.end(topic))
        assert bus.newest(topic, "a") is None
        assert bus.newest_headers(topic) == expected

    def test_headers_are_read_from_a_position_on(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"x", headers={"i": str(i)}) for i in range(6)])
        assert [headers["i"] for headers in bus.headers(topic, (4,))] == ["4", "5"]
        bus.retain(topic, (2,))
        assert [headers["i"] for headers in bus.headers(topic, (0,))] == ["2", "3", "4", "5"]
        assert list(bus.headers(topic, bus.end(topic))) == []

    # Retention

    def test_retention_removes_what_is_before_the_position(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"x" * (i + 1)) for i in range(5)])
        assert bus.size_bytes(topic) == 15
        bus.retain(topic, (3,))
        assert bus.size_bytes(topic) == 9
        assert [r.offset for r in drain(bus.subscribe(topic, EARLIEST), 2)] == [3, 4]
        bus.retain(topic, (1,))
        assert bus.size_bytes(topic) == 9

    def test_an_offset_is_never_given_twice(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"x") for _ in range(3)])
        subscription = bus.subscribe(topic, EARLIEST)
        drain(subscription, 3)
        bus.retain(topic, bus.end(topic))
        assert (bus.size_bytes(topic), bus.end(topic)) == (0, (3,))
        assert bus.publish([Outgoing(topic, b"y")]) == [3]
        assert [record.payload for record in drain(subscription, 1)] == [b"y"]

    def test_retention_past_the_end_removes_only_what_is_there(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"x")])
        bus.retain(topic, (100,))
        assert bus.publish([Outgoing(topic, b"y")]) == [1]
        assert [r.offset for r in drain(bus.subscribe(topic, EARLIEST), 1)] == [1]


class EmbeddedBusSuite(RetentionSuite):
    """A bus with transactions and with bounds of its own: its publishers wait for room."""

    @pytest.fixture
    def bounded(self, topic: str) -> Iterator[Bus]:
        """A bus that keeps at most 100 bytes of `topic`."""
        bus = self.make_bus({topic: 100})
        yield bus
        bus.close()

    # Publishing and reading

    def test_a_batch_is_seen_whole_or_not_at_all(
        self, bus: Bus, topic: str, other: str, start: Callable[..., Future[Any]]
    ) -> None:
        done = threading.Event()

        def publish() -> None:
            for _ in range(100):
                bus.publish([Outgoing(name, b"x") for name in (topic, other, topic)])
            done.set()

        publisher = start(publish)
        torn = []
        while not done.wait(0):
            with bus.snapshot():
                ends = (bus.end(topic)[0], bus.end(other)[0])
            if ends[0] != 2 * ends[1]:
                torn.append(ends)
        publisher.result(PATIENCE_S)
        assert torn == []

    def test_a_refused_batch_leaves_nothing(self, bounded: Bus, topic: str, other: str) -> None:
        bounded.publish([Outgoing(topic, b"x" * 60)])
        with pytest.raises(BusFull):
            bounded.publish([Outgoing(other, b"y"), Outgoing(topic, b"x" * 60)], timeout_s=0.0)
        assert bounded.end(other) == (0,)
        assert bounded.end(topic) == (1,)

    # Waiting

    def test_a_full_topic_blocks_until_retention_makes_room(
        self, bounded: Bus, topic: str, start: Callable[..., Future[Any]]
    ) -> None:
        bounded.publish([Outgoing(topic, b"x" * 60)])
        publisher = start(bounded.publish, [Outgoing(topic, b"y" * 60)], PATIENCE_S)
        with pytest.raises(TimeoutError):
            publisher.result(0.05)
        assert bounded.end(topic) == (1,)
        bounded.retain(topic, (1,))
        assert publisher.result(PATIENCE_S) == [1]
        assert bounded.size_bytes(topic) == 60

    def test_a_topic_that_stays_full_is_an_error_that_says_so(
        self, bounded: Bus, topic: str
    ) -> None:
        bounded.publish([Outgoing(topic, b"x" * 100)])
        began = time.monotonic()
        with pytest.raises(BusFull, match=rf"{topic}.* 100 bytes .*limit of 100"):
            bounded.publish([Outgoing(topic, b"y")], timeout_s=0.05)
        assert time.monotonic() - began >= 0.04

    def test_what_can_never_fit_is_refused_at_once(self, bounded: Bus, topic: str) -> None:
        with pytest.raises(BusError, match=rf"101 bytes .*{topic}.*100") as caught:
            bounded.publish([Outgoing(topic, b"x" * 101)], timeout_s=PATIENCE_S)
        assert not isinstance(caught.value, BusFull)

    def test_a_full_topic_does_not_hold_up_another(
        self, bounded: Bus, topic: str, other: str, start: Callable[..., Future[Any]]
    ) -> None:
        bounded.publish([Outgoing(topic, b"x" * 100)])
        blocked = start(bounded.publish, [Outgoing(topic, b"y")], PATIENCE_S)
        assert bounded.publish([Outgoing(other, b"z")], timeout_s=PATIENCE_S) == [0]
        bounded.retain(topic, (1,))
        assert blocked.result(PATIENCE_S) == [1]

    def test_words_are_let_into_a_full_topic(self, topic: str) -> None:
        bus = self.make_bus({topic: 1 << 20})
        try:
            bus.publish([Outgoing(topic, bytes(1 << 20))])
            assert bus.publish([Outgoing(topic, bytes(1024))], timeout_s=0.0) == [1]
            with pytest.raises(BusFull):
                bus.publish([Outgoing(topic, bytes(1025))], timeout_s=0.0)
        finally:
            bus.close()

    # Retention

    def test_retention_can_keep_each_keys_newest(self, bus: Bus, topic: str) -> None:
        keys = "abaacc"
        bus.publish([Outgoing(topic, b"%d" % i, key) for i, key in enumerate(keys)])
        bus.retain(topic, (5,), keep_newest=True)
        subscription = bus.subscribe(topic, EARLIEST)
        assert subscription.lag() == 3
        assert [record.offset for record in drain(subscription, 3)] == [1, 3, 5]
        assert subscription.lag() == 0
        assert bus.size_bytes(topic) == 3
        kept = bus.newest(topic, "b")
        assert kept is not None and kept.payload == b"1"
        bus.publish([Outgoing(topic, b"6", "b")])
        bus.retain(topic, (5,), keep_newest=True)
        assert [r.offset for r in drain(bus.subscribe(topic, EARLIEST), 3)] == [3, 5, 6]
        bus.retain(topic, (5,))
        assert [r.offset for r in drain(bus.subscribe(topic, EARLIEST), 2)] == [5, 6]

    def test_single_records_can_be_taken_out(self, bus: Bus, topic: str) -> None:
        asked: list[int] = []

        def is_odd(record: Record) -> bool:
            asked.append(record.offset)
            return bool(int(record.payload) % 2)

        bus.publish([Outgoing(topic, b"%d" % i, "ab"[i % 2]) for i in range(8)])
        reader = bus.subscribe(topic, EARLIEST)
        bus.thin(topic, (5,), is_odd)
        bus.thin(topic, (5,), is_odd)
        bus.thin(topic, (7,), is_odd)
        assert asked == [0, 1, 2, 3, 4, 5, 6], "each is asked about once"
        assert bus.size_bytes(topic) == 5 and reader.lag() == 5
        assert [record.offset for record in drain(reader, 5)] == [0, 2, 4, 6, 7]
        assert bus.subscribe(topic, (3,)).position() == (4,)
        assert [record.offset for record in bus.newest_all(topic)] == [6, 7]
        assert bus.publish([Outgoing(topic, b"8")]) == [8]

    def test_the_newest_that_was_taken_out_is_no_longer_there(self, bus: Bus, topic: str) -> None:
        bus.publish([Outgoing(topic, b"0", "a"), Outgoing(topic, b"1", "b")])
        bus.thin(topic, (9,), lambda record: record.key == "b")
        assert bus.newest(topic, "b") is None
        assert [record.key for record in bus.newest_all(topic)] == ["a"]
        assert bus.end(topic) == (2,)

    # One moment

    def test_reads_in_a_snapshot_see_one_moment(
        self, bus: Bus, topic: str, other: str, start: Callable[..., Future[Any]]
    ) -> None:
        bus.publish([Outgoing(topic, b"1", "k", {"v": "1"})])

        def change() -> None:
            bus.publish([Outgoing(topic, b"22", "k", {"v": "2"}), Outgoing(other, b"x")])
            bus.retain(topic, (1,))

        with bus.snapshot():
            start(change).result(PATIENCE_S)
            assert bus.end(topic) == (1,)
            assert bus.end(other) == (0,)
            assert bus.newest_headers(topic) == {"k": {"v": "1"}}
            assert list(bus.headers(topic, (0,))) == [{"v": "1"}]
            assert bus.size_bytes(topic) == 1
            with bus.snapshot():
                assert bus.end(topic) == (1,)
            newest = bus.newest(topic, "k")
            assert newest is not None and newest.payload == b"1"
            subscription = bus.subscribe(topic, EARLIEST)
            assert [record.payload for record in subscription.poll(PATIENCE_S)] == [b"1"]
            assert subscription.poll(PATIENCE_S) == []  # at once: nothing new can come
        assert bus.end(topic) == (2,)
        assert bus.newest_headers(topic) == {"k": {"v": "2"}}
        assert list(bus.headers(topic, (0,))) == [{"v": "2"}]
        assert bus.size_bytes(topic) == 2

    def test_a_thread_cannot_write_in_its_own_snapshot(self, bus: Bus, topic: str) -> None:
        with bus.snapshot():
            with pytest.raises(BusError, match="snapshot"):
                bus.publish([Outgoing(topic, b"x")])
            with pytest.raises(BusError, match="snapshot"):
                bus.retain(topic, (1,))
            with pytest.raises(BusError, match="snapshot"):
                bus.thin(topic, (1,), lambda record: True)
        assert bus.publish([Outgoing(topic, b"x")]) == [0]

    def test_a_reader_that_retention_overtook_goes_on(self, bus: Bus, topic: str) -> None:
        subscription = bus.subscribe(topic, EARLIEST)
        bus.publish([Outgoing(topic, b"%d" % i) for i in range(4)])
        bus.retain(topic, (4,))
        assert subscription.lag() == 0
        assert subscription.poll(0.01) == []
        bus.publish([Outgoing(topic, b"4")])
        assert [record.payload for record in drain(subscription, 1)] == [b"4"]
