"""Topics with the settings that their use needs: made when missing, checked when they exist."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from rookery.bus.kafka.client import PAUSE_S, REACH_S, Clients
from rookery.bus.kafka.reach import reach
from rookery.bus.kafka.settings import KafkaSettings
from rookery.errors import BusError

NEWEST = "newest"  # each key's newest headers, of all topics that are not compacted
_KEYED = ("model_updates", "control.states", NEWEST)  # of each key only the newest counts

_DAY_MS = 24 * 3600 * 1000
_SMALL_SEGMENTS = {"segment.bytes": str(8 << 20), "segment.ms": str(10 * 60 * 1000)}
_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(_DAY_MS),
    **_SMALL_SEGMENTS,
}
_KEPT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_PASSING = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * _DAY_MS),
    "retention.bytes": str(256 << 20),
}


def wanted(topic: str, settings: KafkaSettings) -> dict[str, str]:
    """The settings of a topic, by its bare name."""
    if is_compacted(topic):
        return _COMPACTED
    if topic.startswith("metrics."):
        return _PASSING
    if topic == "experiences":
        return {
            "cleanup.policy": "delete",
            "retention.ms": str(int(settings.experience_hours * 3600 * 1000)),
            "retention.bytes": str(settings.experience_mb << 20),
            "segment.bytes": str(max(1 << 20, min(128 << 20, settings.experience_mb << 17))),
        }
    return _KEPT


def is_compacted(topic: str) -> bool:
    return topic in _KEYED


class Topics:
    """Knows each topic's partitions; makes the topic when it is first used."""

    def __init__(self, clients: Clients, reader: Any, warn: Callable[[str], None] | None) -> None:
        self._clients, self._reader, self._warn = clients, reader, warn
        self._lock = threading.Lock()
        self._partitions: dict[str, int] = {}

    @cached_property
    def _admin(self) -> Any:
        """Few need one, and each client has threads of its own."""
        return self._clients.admin()

    def reach(self) -> None:
        """Raise unless the cluster answers."""
        reach(self._clients, self._reader)

    def partitions(self, name: str, bare: str) -> int:
        with self._lock:
            if name not in self._partitions:
                self._partitions[name] = self._ensure(name, bare)
            return self._partitions[name]

    def _ensure(self, name: str, bare: str) -> int:
        found = self._count(name)
        if found:
            if self._warn is not None:
                self._check(name, bare, self._warn)
            return found
        settings = self._clients.settings
        count = settings.partitions if bare == "experiences" else 1
        new = NewTopic(
            name,
            num_partitions=count,
            replication_factor=settings.replication,
            config=wanted(bare, settings),
        )
        try:
            limits = {"operation_timeout": REACH_S, "request_timeout": REACH_S}
            self._admin.create_topics([new], **limits)[name].result()
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError._UNSUPPORTED_FEATURE:  # librdkafka's own broker has no admin
                return self._made_by_asking(name)
            if code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._clients.health.explain(error, name) from None
        return self._made_by_asking(name)

    def _made_by_asking(self, name: str) -> int:
        """The partitions of a topic that was just made: all brokers hear of it in a moment."""
        deadline = time.monotonic() + REACH_S
        while not (found := self._count(name)):
            if time.monotonic() > deadline:
                raise BusError(
                    f"topic {name!r} could not be made at {self._clients.settings.servers}: "
                    "create it, or let this user create topics"
                )
            time.sleep(PAUSE_S)
        return found

    def _count(self, name: str) -> int:
        found = self._metadata(name).topics.get(name)
        if found is None or found.error is not None:
            if found is not None and found.error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED,):
                raise self._clients.health.explain(found.error, name)
            return 0
        return len(found.partitions)

    def _metadata(self, name: str) -> Any:
        reader = self._reader
        return self._clients.asked(reader, lambda: reader.list_topics(name, timeout=REACH_S))

    def _check(self, name: str, bare: str, warn: Callable[[str], None]) -> None:
        """Say so when an existing topic's settings would lose what Rookery needs."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        try:
            asked = self._admin.describe_configs([resource], request_timeout=REACH_S)
            found = asked[resource].result()
        except KafkaException:
            return  # not permitted, or not known to this broker: nothing can be said
        policy = found["cleanup.policy"].value
        needed = wanted(bare, self._clients.settings)
        if needed["cleanup.policy"] not in policy:
            loss = (
                "late readers would not get each key's newest message"
                if is_compacted(bare)
                else "all but each key's newest message would be lost"
            )
            warn(
                f"topic {name} has cleanup.policy={policy}, which should be "
                f"{needed['cleanup.policy']}: {loss}"
            )
        for setting in ("retention.ms", "retention.bytes"):
            if needed.get(setting) == "-1" and found[setting].value != "-1":
                warn(
                    f"topic {name} has {setting}={found[setting].value}, which should be -1: it "
                    "holds the log of commands and would forget runs"
                )

    def remove_before(self, name: str, offsets: list[Any]) -> None:
        try:
            for future in self._admin.delete_records(offsets, request_timeout=REACH_S).values():
                future.result()
        except KafkaException as error:
            raise self._clients.health.explain(error, name) from None
