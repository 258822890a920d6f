"""The bus on a real broker."""

from __future__ import annotations

import random
from collections.abc import Mapping
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.bus import EARLIEST, Bus, Outgoing
from rookery.bus.kafka.bus import KafkaBus
from rookery.bus.kafka.settings import KafkaSettings
from rookery.testing.bus_suite import BusSuite, RetentionSuite, drain
from tools.kafka.broker import Cluster


class TestKafkaBus(RetentionSuite):
    @pytest.fixture(autouse=True)
    def _cluster(self, kafka: Cluster) -> None:
        self.settings = KafkaSettings(kafka.servers)

    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        return KafkaBus(self.settings)


class TestOneRunsShare(BusSuite):
    """The same contract for a bus that sees one run's messages only."""

    @pytest.fixture(autouse=True)
    def _cluster(self, kafka: Cluster) -> None:
        self.settings = KafkaSettings(kafka.servers)

    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        return KafkaBus(self.settings, run="ours")


def test_messages_of_any_size_arrive_whole_on_a_broker_with_default_limits(kafka: Cluster) -> None:
    settings = KafkaSettings(kafka.servers, prefix=f"{uuid4().hex}.")
    bus = KafkaBus(settings, run="ours")
    weights = random.Random(1).randbytes(40 << 20)
    for number in range(2):
        bus.publish([Outgoing("model_updates", weights[number:], "main", {"number": str(number)})])
    bus.publish([Outgoing("experiences", weights[: 30 << 20], "0.1", {"kind": "fragment"})])
    late = KafkaBus(settings, run="ours")
    newest = late.newest("model_updates", "main")
    assert newest is not None and newest.payload == weights[1:] and newest.headers["number"] == "1"
    (record,) = drain(late.subscribe("experiences", EARLIEST), 1)
    assert (record.key, record.payload) == ("0.1", weights[: 30 << 20])
    assert list(late.newest_headers("experiences")) == ["0.1"]
    bus.close()
    late.close()


def test_runs_share_topics_without_seeing_each_other(kafka: Cluster) -> None:
    settings = KafkaSettings(kafka.servers, prefix=f"{uuid4().hex}.")
    buses = {run: KafkaBus(settings, run) for run in ("one", "two")}
    for i in range(6):
        run = ("one", "two")[i % 2]
        buses[run].publish([Outgoing("experiences", b"%d" % i, "0.1", {"steps": str(i)})])
    for run, numbers in {"one": "024", "two": "135"}.items():
        bus = buses[run]
        records = drain(bus.subscribe("experiences", EARLIEST), 3)
        assert [r.payload.decode() for r in records] == list(numbers)
        assert {r.key for r in records} == {"0.1"}
        assert [h["steps"] for h in bus.headers("experiences", (0,))] == list(numbers)
        newest = bus.newest("experiences", "0.1")
        assert newest is not None and newest.payload.decode() == numbers[-1]
        assert bus.newest_headers("experiences") == {"0.1": {"steps": numbers[-1]}}
    everything = KafkaBus(settings)
    assert len(drain(everything.subscribe("experiences", EARLIEST), 6)) == 6
    for bus in (*buses.values(), everything):
        bus.close()


def test_partitions_keep_each_key_in_order_and_positions_resume(kafka: Cluster) -> None:
    settings = KafkaSettings(kafka.servers, prefix=f"{uuid4().hex}.", partitions=4)
    bus = KafkaBus(settings)
    keys = [f"{i}.1" for i in range(6)]
    for i in range(60):
        bus.publish([Outgoing("experiences", b"%d" % i, keys[i % 6])])
    reader = bus.subscribe("experiences", EARLIEST)
    first = drain(reader, 25)
    assert len(reader.position()) == 4
    rest = drain(bus.subscribe("experiences", reader.position()), 35)
    for key in keys:
        mine = [int(r.payload) for r in (*first, *rest) if r.key == key]
        assert mine == [i for i in range(60) if keys[i % 6] == key]
    assert sum(bus.end("experiences")) == 60
    bus.close()


def test_topics_that_would_lose_data_get_a_warning(kafka: Cluster) -> None:
    prefix = f"{uuid4().hex}."
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    made = admin.create_topics(
        [
            NewTopic(prefix + "commands.control", config={"retention.ms": "1000"}),
            NewTopic(prefix + "model_updates", config={"cleanup.policy": "delete"}),
            NewTopic(prefix + "events", config={"retention.ms": "-1", "retention.bytes": "-1"}),
        ]
    )
    for future in made.values():
        future.result(20)
    warnings: list[str] = []
    bus = KafkaBus(KafkaSettings(kafka.servers, prefix), warn=warnings.append)
    for topic in ("commands.control", "model_updates", "events", "experiences"):
        bus.end(topic)
    bus.close()
    assert len(warnings) == 2
    assert "commands.control has retention.ms=1000" in warnings[0] and "forget" in warnings[0]
    assert "model_updates has cleanup.policy=delete" in warnings[1] and "late" in warnings[1]
