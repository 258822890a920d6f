"""A worker waits for the bus of its run, which was there when the run began."""

from __future__ import annotations

import pytest

from rookery.errors import BusAway, BusRefused
from rookery.worker import process
from rookery.worker.process import reached


class Cluster:
    """Does not answer the first few times."""

    def __init__(self, silent: int, error: type[BusRefused] = BusAway) -> None:
        self.silent, self.error, self.asked = silent, error, 0

    def open(self) -> str:
        self.asked += 1
        if self.asked <= self.silent:
            raise self.error("no answer")
        return "bus"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WAIT_S", 0.001)


def test_a_bus_that_is_away_is_waited_for() -> None:
    cluster = Cluster(silent=3)
    assert reached(cluster.open, lambda: False) == "bus"
    assert cluster.asked == 4


def test_one_that_lets_nobody_in_is_not() -> None:
    cluster = Cluster(silent=3, error=BusRefused)
    with pytest.raises(BusRefused):
        reached(cluster.open, lambda: False)
    assert cluster.asked == 1


def test_who_is_to_stop_waits_no_longer() -> None:
    cluster = Cluster(silent=1_000_000)
    with pytest.raises(BusAway):
        reached(cluster.open, lambda: cluster.asked >= 2)
    assert cluster.asked == 2


def test_the_wait_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PATIENCE_S", 0.01)
    with pytest.raises(BusAway):
        reached(Cluster(silent=1_000_000).open, lambda: False)
