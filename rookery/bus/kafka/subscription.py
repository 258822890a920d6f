"""A reader of a topic on Kafka: its own place in every partition, chunks put together."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition

from rookery.bus import Position, Record, embedded
from rookery.bus.kafka.chunks import CHUNK, Assembler, Damaged
from rookery.bus.kafka.client import DELIVERY_S, LOOK_S, REACH_S, RETRIED, TRY_S
from rookery.bus.kafka.topics import is_compacted
from rookery.errors import BusError, BusRefused

if TYPE_CHECKING:
    from rookery.bus.kafka.bus import KafkaBus

RUN = "run"  # the header that scopes a message
SLICE_S = 0.1  # a wait looks up this often, to see whether the bus was closed
STUCK_S = 8.0  # without a message, before a reader asks whether there should have been one
_PASSED_OVER = (  # by a reader: brokers come back, and it needs no group
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    *RETRIED,
)

logger = logging.getLogger(__name__)


class KafkaSubscription:
    """A reader of all partitions of a topic; one thread at a time."""

    def __init__(self, bus: KafkaBus, topic: str, first: Position) -> None:
        self._bus, self._topic = bus, topic
        self.next = list(first)
        self.skipped = 0  # messages that could not be read
        self._prefix = f"{bus.run}/" if bus.run else ""
        self._run = bus.run.encode() if bus.run else None
        self._chunks = [Assembler() for _ in first]
        self._lock = threading.Lock()
        self._closed = self._overtaken = False
        self._failure: BusError | None = None
        self._consumer = self._begin()

    def _begin(self) -> Any:
        """A client that goes on from here."""
        self._heard = time.monotonic()
        name, consumer = self._bus.name(self._topic), self._bus.clients.consumer()
        consumer.assign([TopicPartition(name, p, at) for p, at in enumerate(self.next)])
        return consumer

    def poll(self, timeout_s: float, limit: int = 256) -> list[Record]:
        embedded.check_limit(limit)
        deadline = time.monotonic() + timeout_s
        while True:
            self._bus._check_open()
            with self._lock:
                records = self._take(max(0.0, min(SLICE_S, deadline - time.monotonic())), limit)
            if records:
                return records
            self._begin_again_if_stuck()
            if time.monotonic() >= deadline and (timeout_s > 0 or self._is_at_end(deadline)):
                return []

    def _begin_again_if_stuck(self) -> None:
        """librdkafka may stay with a broker that leads no more (its issue 5593) and fetch nothing:
        with messages to read and a cluster that answers, another client takes over."""
        if time.monotonic() - self._heard < STUCK_S:
            return
        self._heard = time.monotonic()
        try:
            if self._bus.trouble is not None or self._lag(LOOK_S, away_s=0.0) == 0:
                return
        except BusError as error:
            logger.info("%s cannot be asked for its end: %s", self._topic, error)
            return
        logger.warning("%s brings nothing though there is more: reading anew", self._topic)
        with self._lock:
            if not self._closed:
                self._consumer.close()
                self._consumer = self._begin()

    def _is_at_end(self, since: float) -> bool:
        """Whether all that was published before the call has been read, as far as can be told.

        A leader that is away while others answer is waited for: another will be elected.
        """
        if self._bus.trouble is not None:
            return True
        try:
            return self._lag(LOOK_S, away_s=0.0) == 0
        except BusRefused:
            raise
        except BusError:
            if self._bus.trouble is not None:
                return True
            if time.monotonic() - since > 6 * REACH_S:
                raise
            return False

    def _take(self, wait_s: float, limit: int) -> list[Record]:
        records: list[Record] = []
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        while len(records) < limit:
            message = self._consumer.poll(0.0 if records else wait_s)
            if message is None:
                break
            wait_s = 0.0
            error = message.error()
            if error is not None:
                if error.code() in _PASSED_OVER:
                    continue
                failure = self._bus.clients.health.explain(error, self._bus.name(self._topic))
                if not records:
                    raise failure
                self._failure = failure  # for the next call: what was read is handed over first
                break
            self._bus.clients.health.answered()
            self._heard = time.monotonic()
            record = self._record(message)
            self._move(message.partition(), message.offset())
            self.next[message.partition()] = message.offset() + 1  # less, if it was sent back
            if record is not None:
                records.append(record)
        return records

    def _record(self, message: Any) -> Record | None:
        """None for other runs' messages, for all but the last chunk, and for what is damaged."""
        raw = dict(message.headers() or ())
        if self._run is not None and raw.pop(RUN, None) != self._run:
            return None
        partition, offset = message.partition(), message.offset()
        time_s = message.timestamp()[1] / 1000
        try:
            headers = {name: (value or b"").decode() for name, value in raw.items()}
            key = (message.key() or b"").decode().removeprefix(self._prefix)
            payload = message.value() or b""
            chunk, chunks = headers.pop(CHUNK, None), self._chunks[partition]
            if chunk is None:
                chunks.passed(key, time_s)
            else:
                key = key.partition("#")[0]
                whole = chunks.add(key, chunk, payload, offset, time_s)
                if whole is None:
                    return None
                payload = whole
        except (Damaged, ValueError) as error:
            self.skipped += 1
            name = self._bus.name(self._topic)
            logger.warning("%s offset %d of %d: skipped: %s", name, offset, partition, error)
            return None
        return Record(self._topic, partition, offset, key, headers, payload, time_s)

    def _move(self, partition: int, offset: int) -> None:
        """Offsets have no holes but those that retention makes, or compaction where it is meant."""
        if offset > self.next[partition]:
            self._overtaken |= not is_compacted(self._topic)
            self.next[partition] = offset

    def overtaken(self) -> bool:
        if self._bus.trouble is None:
            low, _ = self._bus._watermarks(self._topic)
            for partition, offset in enumerate(low):
                self._move(partition, offset)
        found, self._overtaken = self._overtaken, False
        return found

    def position(self) -> Position:
        """Before the first chunk that waits for others, so that none is lost on the way."""
        return tuple(
            at if chunks.oldest is None else min(at, chunks.oldest)
            for at, chunks in zip(self.next, self._chunks, strict=True)
        )

    def lag(self) -> int:
        return self._lag(TRY_S, DELIVERY_S)

    def _lag(self, timeout_s: float, away_s: float) -> int:
        low, high = self._bus._watermarks(self._topic, timeout_s, away_s)
        spans = zip(self.next, low, high, strict=True)
        return sum(max(0, end - max(at, start)) for at, start, end in spans)

    def close(self) -> None:
        self._bus.forget(self)
        with self._lock:
            if not self._closed:
                self._closed = True
                self._consumer.close()
