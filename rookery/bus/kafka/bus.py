"""The bus on Apache Kafka: idempotent producers, positions that are the reader's own, chunks.

    bus = KafkaBus(KafkaSettings.of("kafka://127.0.0.1:9092"), run="cartpole-k3f9a")

Runs share topics: with a `run`, each message carries it in a header and before its key, and those
of other runs are skipped by that header, undecoded. A publish returns when all brokers that must
have it have it; while the cluster is away it waits, and `trouble` says so.
"""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from rookery.bus import EARLIEST, LATEST, Outgoing, Position, Record, embedded
from rookery.bus.kafka.chunks import chunk_key, split
from rookery.bus.kafka.client import DELIVERY_S, MESSAGE_BYTES, REACH_S, TRY_S, Clients
from rookery.bus.kafka.settings import KafkaSettings
from rookery.bus.kafka.subscription import RUN, SLICE_S, KafkaSubscription
from rookery.bus.kafka.topics import NEWEST, Topics, is_compacted
from rookery.errors import BusError

logger = logging.getLogger(__name__)


class KafkaBus:
    """Topics of a cluster, all of them or what one run has in them."""

    def __init__(
        self,
        settings: KafkaSettings,
        run: str | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.settings, self.run = settings, run
        self.clients = Clients(settings)
        self._reader = self.clients.consumer()  # for questions, never assigned
        self._topics = Topics(self.clients, self._reader, warn)
        self._topics.reach()
        self._made_producer: Any = None  # by the first who publishes
        self._ask_again = 0.0
        self._closed = False
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._subscriptions: list[KafkaSubscription] = []
        self._newest: tuple[KafkaSubscription, dict[str, dict[str, dict[str, str]]]] | None = None
        self._newest_lock = threading.Lock()

    @property
    def trouble(self) -> str | None:
        """One line while the cluster does not answer; nobody waits for it once this is closed."""
        if self._closed:
            return None
        if self._made_producer is not None:
            self._made_producer.poll(0)
        if self.clients.health.trouble is not None and time.monotonic() >= self._ask_again:
            self._ask_again = time.monotonic() + 1.0  # nobody else asks meanwhile,
            self.clients.answers(self._reader)
            self._ask_again = time.monotonic() + 1.0  # nor right after: an answer takes LOOK_S
        return self.clients.health.trouble

    @property
    def _producer(self) -> Any:
        with self._lock:
            self._check_open()
            if self._made_producer is None:
                self._made_producer = self.clients.producer()
            return self._made_producer

    def name(self, topic: str) -> str:
        """The topic's name in the cluster."""
        scope = f"{self.run}." if self.settings.per_run and self.run else ""
        return self.settings.prefix + scope + topic

    def partitions(self, topic: str) -> int:
        self._check_open()
        return self._topics.partitions(self.name(topic), topic)

    # --- publishing ------------------------------------------------------------------------------

    def publish(self, messages: Sequence[Outgoing], timeout_s: float = 60.0) -> list[int]:
        """Returns when every message is acknowledged; a cluster that is away is waited for."""
        embedded.needed_bytes(messages, {})
        _ = self._producer  # it connects while the topics are looked up
        counts = {m.topic: self.partitions(m.topic) for m in messages}
        delivery = _Delivery()
        numbers = [self._send(message, counts[message.topic], delivery) for message in messages]
        for message in messages:
            if not is_compacted(message.topic):
                self._send_newest(message, delivery)
        while delivery.waiting:
            self._check_open()
            self._serve(messages[0].topic)
        if delivery.errors:
            raise self.clients.health.explain(*delivery.errors[0])
        self.clients.health.answered()
        return [delivery.offsets[number] for number in numbers]

    def _send(self, message: Outgoing, partitions: int, delivery: _Delivery) -> int:
        key = self._key(message.key)
        partition = zlib.crc32(key.encode()) % partitions
        number = 0
        with self._sending:  # the chunks of one message are not mixed with another's
            for extra, part in split(message.payload, MESSAGE_BYTES):
                number = self._produce(
                    message.topic,
                    chunk_key(key, extra) if is_compacted(message.topic) else key,
                    self._scoped(message.headers) | extra,
                    part,
                    partition,
                    delivery,
                )
        return number

    def _send_newest(self, message: Outgoing, delivery: _Delivery) -> None:
        """Each key's newest headers, where retention does not reach them."""
        self.partitions(NEWEST)
        key = self._key(f"{message.topic} {message.key}")
        self._produce(NEWEST, key, self._scoped(message.headers), b"", 0, delivery)

    def _produce(
        self,
        topic: str,
        key: str,
        headers: Mapping[str, str],
        payload: bytes,
        partition: int,
        delivery: _Delivery,
    ) -> int:
        number = delivery.expect()
        while True:
            try:
                self._producer.produce(
                    self.name(topic),
                    value=payload,
                    key=key.encode(),
                    headers=[(name, value.encode()) for name, value in headers.items()],
                    partition=partition,
                    on_delivery=lambda error, found: delivery.note(number, error, found),
                )
                return number
            except BufferError:  # the client's own queue is full: wait until it has sent some
                self._check_open()
                self._serve(topic)
            except KafkaException as error:
                raise self.clients.health.explain(error, self.name(topic)) from None

    def _serve(self, topic: str) -> None:
        """Let delivery reports in; one who may not write at all is told so here."""
        try:
            self._producer.poll(SLICE_S)
        except KafkaException as error:
            raise self.clients.health.explain(error, self.name(topic)) from None

    def _key(self, key: str) -> str:
        return f"{self.run}/{key}" if self.run else key

    def _scoped(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {RUN: self.run, **headers} if self.run else dict(headers)

    # --- reading ---------------------------------------------------------------------------------

    def subscribe(self, topic: str, start: Position | str) -> KafkaSubscription:
        low, high = self._watermarks(topic)
        if start == EARLIEST:
            first = low
        elif start == LATEST:
            first = high
        elif isinstance(start, str):
            embedded.start_offset(start, 0)  # raises
            raise AssertionError
        elif len(start) != len(high):
            raise BusError(
                f"position {start} has {len(start)} partitions and topic {self.name(topic)} has "
                f"{len(high)}: it was taken from another bus, or the topic was changed"
            )
        else:
            first = tuple(min(max(at, a), b) for at, a, b in zip(start, low, high, strict=True))
        subscription = KafkaSubscription(self, topic, first)
        with self._lock:
            self._subscriptions.append(subscription)
        return subscription

    def newest(self, topic: str, key: str) -> Record | None:
        """Looks back from the end, further and further."""
        count = self.partitions(topic)
        partition = zlib.crc32(self._key(key).encode()) % count
        low, high = (ends[partition] for ends in self._watermarks(topic))
        window = 64
        while True:
            first = max(low, high - window)
            found = None
            for record in self._scan(topic, {partition: (first, high)}):
                if record.key == key:
                    found = record
            if found is not None or first == low:
                return found
            window *= 8

    def newest_all(self, topic: str) -> list[Record]:
        found = {record.key: record for record in self._scan(topic, None)}
        return sorted(found.values(), key=lambda record: record.offset)

    def newest_headers(self, topic: str) -> dict[str, dict[str, str]]:
        if is_compacted(topic):
            return {record.key: record.headers for record in self._scan(topic, None)}
        with self._newest_lock:
            if self._newest is None:
                self._newest = (self.subscribe(NEWEST, EARLIEST), {})
            subscription, known = self._newest
            while records := subscription.poll(0.0, limit=4096):
                for record in records:
                    name, _, key = record.key.partition(" ")
                    known.setdefault(name, {})[key] = record.headers
            return {key: dict(headers) for key, headers in known.get(topic, {}).items()}

    def headers(self, topic: str, start: Position) -> Iterator[dict[str, str]]:
        low, high = self._watermarks(topic)
        if len(start) != len(high):
            raise BusError(f"position {start} is not one of topic {self.name(topic)}")
        spans = {p: (max(low[p], start[p]), high[p]) for p in range(len(high))}
        return (record.headers for record in self._scan(topic, spans))

    def end(self, topic: str) -> Position:
        return self._watermarks(topic)[1]

    def retain(self, topic: str, start: Position, keep_newest: bool = False) -> None:
        """Only a run's own topics are cut; shared ones are bounded by the broker's retention, and
        compaction keeps each key's newest."""
        self._check_open()
        if keep_newest or is_compacted(topic) or (self.run and not self.settings.per_run):
            return
        low, high = self._watermarks(topic)
        ends = [min(at, end) for at, end in zip(start, high, strict=True)]
        name = self.name(topic)
        cut = [TopicPartition(name, p, at) for p, at in enumerate(ends) if at > low[p]]
        try:
            if cut:
                self._topics.remove_before(name, cut)
        except BusError:
            if self.trouble is None:
                raise
            logger.warning("%s was not cut: the cluster is away; the next call does it", name)

    def thin(self, topic: str, start: Position, is_over: Callable[[Record], bool]) -> None:
        """Kafka takes nothing out of the middle of a topic."""
        self._check_open()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Kafka has no moment of all topics; what is read inside may be of different ones."""
        self._check_open()
        yield

    def size_bytes(self, topic: str) -> int:
        return sum(len(record.payload) for record in self._scan(topic, None))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with self._lock:
            subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            subscription.close()
        if self._made_producer is not None:
            self._made_producer.flush(REACH_S)
        self._reader.close()
        self._newest = self._made_producer = None  # a client's threads end with it

    def forget(self, subscription: KafkaSubscription) -> None:
        with self._lock:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)

    def _scan(self, topic: str, spans: Mapping[int, tuple[int, int]] | None) -> Iterator[Record]:
        """The records of these offsets, of each partition; of the whole topic without any."""
        low, high = self._watermarks(topic)
        count = len(high)
        if spans is None:
            spans = {p: (low[p], high[p]) for p in range(count)}
        first = tuple(spans[p][0] if p in spans else high[p] for p in range(count))
        until = tuple(spans[p][1] if p in spans else 0 for p in range(count))
        subscription = KafkaSubscription(self, topic, first)
        with self._lock:
            self._subscriptions.append(subscription)
        try:
            deadline = time.monotonic() + 6 * REACH_S
            while any(at < end for at, end in zip(subscription.next, until, strict=True)):
                if time.monotonic() > deadline:
                    raise BusError(f"topic {self.name(topic)} could not be read to its end")
                for record in subscription.poll(SLICE_S, limit=4096):
                    if record.offset < until[record.partition]:
                        yield record
        finally:
            subscription.close()

    def _watermarks(
        self, topic: str, timeout_s: float = TRY_S, away_s: float = DELIVERY_S
    ) -> tuple[Position, Position]:
        name, low, high = self.name(topic), [], []
        for partition in range(self.partitions(topic)):
            at = TopicPartition(name, partition)
            found = self.clients.asked(
                self._reader,
                lambda at=at: self._reader.get_watermark_offsets(at, timeout=timeout_s),  # type: ignore[misc]
                away_s,
            )
            low.append(found[0])
            high.append(found[1])
        return tuple(low), tuple(high)

    def _check_open(self) -> None:
        if self._closed:
            raise embedded.closed(self.settings.uri)


class _Delivery:
    """What became of one batch. Delivery reports may come in any thread that polls."""

    def __init__(self) -> None:
        self.offsets: dict[int, int] = {}
        self.errors: list[tuple[Any, str]] = []  # and the topic
        self._expected = 0
        self._seen = 0

    def expect(self) -> int:
        self._expected += 1
        return self._expected - 1

    def note(self, number: int, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append((error, message.topic()))
        else:
            self.offsets[number] = message.offset()
        self._seen += 1

    @property
    def waiting(self) -> bool:
        return self._seen < self._expected
