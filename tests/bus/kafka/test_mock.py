"""The bus on the broker that is built into librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import uuid4

import pytest

from rookery.bus import Bus
from rookery.bus.kafka import topics as kafka_topics
from rookery.bus.kafka.bus import KafkaBus
from rookery.bus.kafka.settings import KafkaSettings
from rookery.bus.kafka.topics import NEWEST
from rookery.errors import BusError
from rookery.testing.bus_suite import BusSuite
from tools.kafka.mock import MockCluster


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    with MockCluster(brokers=2) as cluster:
        cluster.create_topic(NEWEST)
        yield cluster


def test_a_cluster_without_a_controller_is_told(
    mock: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topics, "REACH_S", 0.5)
    bus = KafkaBus(KafkaSettings(mock.servers))
    mock.set_controller(0)
    try:
        with pytest.raises(BusError, match="no Kafka broker answers"):
            bus.end("unmade")
    finally:
        mock.set_controller(1)
        bus.close()


def test_a_topic_that_nobody_can_make_is_told(
    mock: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topics, "REACH_S", 0.5)
    bus = KafkaBus(KafkaSettings(mock.servers))
    with pytest.raises(BusError, match="topic 'unmade' could not be made"):
        bus.end("unmade")
    bus.close()


class TestKafkaBusOnTheMock(BusSuite):
    """All but retention, which needs the admin API."""

    @pytest.fixture(autouse=True)
    def _cluster(self, mock: MockCluster) -> None:
        self.mock = mock

    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        return KafkaBus(KafkaSettings(self.mock.servers))

    def _new_topic(self) -> str:
        name = f"suite.{uuid4().hex}"
        self.mock.create_topic(name)
        return name

    @pytest.fixture
    def topic(self) -> str:
        return self._new_topic()

    @pytest.fixture
    def other(self) -> str:
        return self._new_topic()
