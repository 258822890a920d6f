"""The bus on the broker that is built into librdkafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import uuid4

import pytest

from rookery.bus import Bus
from rookery.bus.kafka import KafkaBus
from rookery.bus.kafka_settings import KafkaSettings
from rookery.bus.kafka_topics import NEWEST
from rookery.testing.bus_suite import BusSuite
from rookery.testing.kafka_mock import MockCluster


@pytest.fixture(scope="module")
def mock() -> Iterator[MockCluster]:
    with MockCluster(brokers=2) as cluster:
        cluster.create_topic(NEWEST)
        yield cluster


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
