"""What is on the bus, for people and scripts: topics, newest messages, how far the learner is.

The same for every bus: whatever is said here is asked through the contract in `rookery.bus`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from rookery.bus import EARLIEST, Bus, Position, Record
from rookery.control.balance import count
from rookery.control.details import last_ledger
from rookery.control.home import Home
from rookery.errors import InputError, MessageError, UnknownName
from rookery.messages import (
    COMMANDS,
    EVENTS,
    EXPERIENCES,
    METRICS_ACTORS,
    METRICS_TRAINING,
    MODEL_UPDATES,
    ActorMetrics,
    Command,
    Event,
    TrainingMetrics,
    decode_json,
)

FOLLOW_S = 0.5


class Topic(NamedTuple):
    """What a topic is for."""

    name: str
    writers: str
    readers: str
    kind: Any = None  # what its messages are, if they are JSON
    of_run: bool = True  # or of all runs, in the control log


TOPICS = (
    Topic(COMMANDS, "people, scripts", "controllers", Command, of_run=False),
    Topic(EVENTS, "controllers, workers", "everyone", Event, of_run=False),
    Topic(EXPERIENCES, "actors, controller, learner", "learner"),
    Topic(MODEL_UPDATES, "learner, controller", "actors"),
    Topic(METRICS_TRAINING, "learner", "everyone", TrainingMetrics),
    Topic(METRICS_ACTORS, "actors", "everyone", ActorMetrics),
)
NEWEST = Topic("newest", "every publisher", "controller, learner")  # Kafka has no other index


def known_topics(home: Home) -> tuple[Topic, ...]:
    return (*TOPICS, NEWEST) if home.cluster is not None else TOPICS


def find_topic(home: Home, name: str) -> Topic:
    known = {topic.name: topic for topic in known_topics(home)}
    if name not in known:
        raise UnknownName("topic", name, known, "Run `rookery bus topics`.")
    return known[name]


@contextmanager
def _run_bus(home: Home, run: str) -> Iterator[Bus | None]:
    bus = home.read_run_bus(home.state(run))
    try:
        yield bus
    finally:
        if bus is not None:
            bus.close()


def _unread(run: str) -> InputError:
    return InputError(f"run {run} has no bus that can be read: it was in memory, or never started")


# --- topics --------------------------------------------------------------------------------------


def topics(home: Home, run: str) -> dict[str, Any]:
    """The JSON object of `rookery bus topics`."""
    config = home.config(home.state(run))
    place = home.cluster.uri if home.cluster is not None else str(home.path)
    with _run_bus(home, run) as bus:
        rows = []
        for topic in known_topics(home):
            source = bus if topic.of_run else home.control
            embedded = config.bus.kind != "kafka" if topic.of_run else home.cluster is None
            if source is not None:
                rows.append(_topic_row(topic, source, embedded))
    return {"run": run, "bus": config.bus.kind, "place": place, "topics": rows}


def _topic_row(topic: Topic, bus: Bus, embedded: bool) -> dict[str, Any]:
    end = bus.end(topic.name)
    return {
        "topic": topic.name,
        "partitions": len(end),
        "kept": _kept(bus, topic.name)[1],
        "end": list(end),
        "bytes": bus.size_bytes(topic.name) if embedded else None,  # a cluster would be read whole
        "writers": topic.writers,
        "readers": topic.readers,
    }


def _kept(bus: Bus, topic: str) -> tuple[Position, int]:
    """The position of the oldest record, and how many there are."""
    with closing(bus.subscribe(topic, EARLIEST)) as subscription:
        return subscription.position(), subscription.lag()


# --- tail ----------------------------------------------------------------------------------------


class Tail:
    """The newest messages of a topic, then those to come; a run's own, or everybody's."""

    def __init__(self, topic: Topic, bus: Bus, only: str | None) -> None:
        self._topic, self._bus, self._only = topic, bus, only
        self._subscription = bus.subscribe(topic.name, bus.end(topic.name))

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The last ones that are kept, oldest first; looks back further and further."""
        end = self._bus.end(self._topic.name)
        window = count
        while True:
            start = tuple(max(0, at - window) for at in end)
            self._subscription.close()
            self._subscription = self._bus.subscribe(self._topic.name, start)
            found: list[Record] = []
            while records := self._subscription.poll(0.0, limit=1024):
                found += filter(self._is_meant, records)
                found = sorted(found, key=lambda r: (r.time_s, r.partition, r.offset))[-count:]
            if len(found) == count or not any(start):
                return [row(self._topic, record) for record in found]
            window *= 8

    def follow(self) -> Iterator[dict[str, Any]]:
        """Whatever comes after the newest, for ever."""
        while True:
            for record in self._subscription.poll(FOLLOW_S):
                if self._is_meant(record):
                    yield row(self._topic, record)

    def _is_meant(self, record: Record) -> bool:
        return self._only is None or record.key == self._only


@contextmanager
def open_tail(home: Home, name: str, run: str | None) -> Iterator[Tail]:
    """A run's topics are those of `last` unless one is named; the control log is everybody's."""
    topic = find_topic(home, name)
    if not topic.of_run:
        yield Tail(topic, home.control, home.find(run) if run else None)
        return
    found = home.find(run or "last")
    with _run_bus(home, found) as bus:
        if bus is None:
            raise _unread(found)
        yield Tail(topic, bus, None)


def row(topic: Topic, record: Record) -> dict[str, Any]:
    """One message as JSON; what a binary one holds stays out."""
    found: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "key": record.key,
        "headers": record.headers,
        "time_s": record.time_s,
        "bytes": len(record.payload),
    }
    if topic.kind is None:
        return found
    try:
        decode_json(record.payload, topic.kind)
    except MessageError as error:
        return found | {"unreadable": str(error)}
    return found | {"message": json.loads(record.payload)}


def row_text(found: dict[str, Any]) -> str:
    """A readable message as it was published; of any other where it is and how large."""
    if "message" in found:
        return json.dumps(found["message"])
    if "unreadable" in found:
        return json.dumps({k: found[k] for k in ("unreadable", "partition", "offset", "bytes")})
    headers = " ".join(f"{name}={value}" for name, value in found["headers"].items())
    return (
        f"{found['partition']}:{found['offset']}  {found['key']}  {headers}  "
        f"{found['bytes']:,} bytes"
    )


# --- lag -----------------------------------------------------------------------------------------


def lag(home: Home, run: str) -> dict[str, Any]:
    """The JSON object of `rookery bus lag`: from what the learner last said to the topic's end."""
    state = home.state(run)
    with _run_bus(home, run) as bus:
        if bus is None:
            raise _unread(run)
        with bus.snapshot():
            ledger, version, _ = last_ledger(home, state, bus)
            end = bus.end(EXPERIENCES)
            first, _ = _kept(bus, EXPERIENCES)
            position = ledger.position or (0,) * len(end)
            counts = [[0, 0] for _ in end]
            unread = bus.subscribe(EXPERIENCES, position)
            while records := unread.poll(0.0, limit=1024):
                for record in records:
                    if record.offset < end[record.partition]:
                        counts[record.partition][0] += 1
                        counts[record.partition][1] += count(record.headers, "steps")
    partitions = [
        {
            "partition": i,
            "position": at,
            "end": end[i],
            "records": counts[i][0],
            "steps": counts[i][1],
            "removed": max(0, first[i] - at) if ledger.position else 0,
        }
        for i, at in enumerate(position)
    ]
    return {
        "run": run,
        "weights_version": version,
        "records": sum(records for records, _ in counts),
        "steps": sum(steps for _, steps in counts),
        "partitions": partitions,
    }


def lag_text(found: dict[str, Any]) -> str:
    """One line; the partitions are a table of the caller's."""
    said = (
        f"as of weights {found['weights_version']}" if found["weights_version"] else "at its start"
    )
    removed = sum(each["removed"] for each in found["partitions"])
    lost = f"; retention took {removed:,} offsets that it had not read" if removed else ""
    return (
        f"{found['run']}: its learner, {said}, is {found['records']:,} records and "
        f"{found['steps']:,} steps behind the end of {EXPERIENCES}{lost}"
    )
