"""How long a question to a cluster is asked again, without a cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException

from rookery.bus.kafka import client
from rookery.bus.kafka.client import Clients
from rookery.bus.kafka.settings import KafkaSettings
from rookery.errors import BusError

UNKNOWN = KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
LONG_S = 0.2


class Cluster:
    """Answers from a moment on, and knows its topics from another on; in seconds from now."""

    def __init__(self, answers_s: float, knows_s: float) -> None:
        began = time.monotonic()
        self._answers, self._knows = began + answers_s, began + knows_s

    def list_topics(self, timeout: float) -> None:
        if time.monotonic() < self._answers:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def question(self) -> str:
        if time.monotonic() < self._knows:
            raise UNKNOWN
        return "an answer"


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    monkeypatch.setattr(client, "REACH_S", LONG_S)
    monkeypatch.setattr(client, "LOOK_S", LONG_S)
    monkeypatch.setattr(client, "PAUSE_S", 0.001)
    made = Clients(KafkaSettings("nobody:1"))
    made.health.answered()
    yield made


@pytest.mark.parametrize("answers_s", [0.0, 0.5 * LONG_S, 3.5 * LONG_S])
def test_one_that_has_just_come_back_has_time_to_know_its_topics(
    clients: Clients, answers_s: float
) -> None:
    cluster = Cluster(answers_s, answers_s + 1.2 * LONG_S)
    assert clients.asked(cluster, cluster.question) == "an answer"


@pytest.mark.parametrize("away_s", [client.DELIVERY_S, 0.0])
def test_what_it_never_knows_is_told(clients: Clients, away_s: float) -> None:
    cluster = Cluster(0.0, 3600.0)
    with pytest.raises(BusError, match="Unknown partition"):
        clients.asked(cluster, cluster.question, away_s)
