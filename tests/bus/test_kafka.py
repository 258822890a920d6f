"""The bus on a real broker."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rookery.bus import Bus
from rookery.bus.kafka import KafkaBus
from rookery.bus.kafka_settings import KafkaSettings
from rookery.testing.bus_suite import BusSuite, RetentionSuite
from rookery.testing.kafka_broker import Cluster


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
