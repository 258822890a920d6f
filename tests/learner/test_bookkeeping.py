"""What a learner tells and lets go of beside its training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rookery.bus import Position
from rookery.bus.memory import MemoryBus
from rookery.checkpoints.checkpoint import newest_checkpoint
from rookery.checkpoints.store import FileStore
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.learner.bookkeeping import Bookkeeper
from rookery.learner.inbox import NO_ORDERS
from rookery.learner.ledger import Ledger
from rookery.learner.manifest import LearnerManifest
from rookery.learner.report import Report, Window
from rookery.messages import METRICS_TRAINING, HyperparametersChanged, WeightsVersion

RATE = "algorithm.learning_rate"
CONFIG = build({"environment": {"id": "CartPole-v1"}})


class World:
    """A learner that trains nothing, and what surrounds it; each life goes on from the last."""

    def __init__(self, path: Path, bus: MemoryBus, config: RunConfig = CONFIG) -> None:
        self.bus, self.config, self.store = bus, config, FileStore(path)
        self.orders, self.number, self.generation = NO_ORDERS, 0, 0
        self.position: Position = (0,)
        self.received: list[Any] = []
        self.bytes_read = 0

    def order(self, **hyperparameters: float) -> None:
        values = {f"algorithm.{name}": value for name, value in hyperparameters.items()}
        self.orders = msgspec.structs.replace(
            self.orders, revision=self.orders.revision + 1, hyperparameters=values
        )

    def begin(self) -> Bookkeeper:
        self.generation += 1
        manifest = LearnerManifest.beginning("r", self.config, has_league=False)
        self.trainer = SimpleNamespace(hyper={"main": {}}, save=dict)
        self.inbox: Any = SimpleNamespace(
            orders=self.orders,
            ledger=Ledger(),
            book=manifest.book,
            branch=SimpleNamespace(starts={}),
            updates_begun=0,
            bytes_read=self.bytes_read,
            received=self.received,
            position=self.position,
        )
        self.transport: Any = SimpleNamespace(
            generation=self.generation,
            number=self.number,
            version=WeightsVersion(self.generation, self.number),
        )
        return Bookkeeper(
            self.bus,
            self.config,
            self.store,
            self.inbox,
            self.trainer,  # type: ignore[arg-type]
            self.transport,
            Report("r", {"main": Window()}, 1, 0.0),
            None,
            newest_checkpoint(self.store, LearnerManifest),
        )

    def train(self, bookkeeper: Bookkeeper) -> None:
        self.number += 1
        self.transport.number = self.number
        self.transport.version = WeightsVersion(self.generation, self.number)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "checkpoints", MemoryBus())


def changes(bookkeeper: Bookkeeper) -> list[tuple[int, dict[str, float]]]:
    events = bookkeeper.apply_orders()
    return [(e.update, e.values) for e in events if isinstance(e, HyperparametersChanged)]


def test_what_was_set_while_a_run_was_stopped_is_told_when_it_takes_effect(world: World) -> None:
    bookkeeper = world.begin()
    world.train(bookkeeper)
    bookkeeper.save()
    world.order(learning_rate=0.5)

    resumed = world.begin()

    assert world.trainer.hyper["main"]["learning_rate"] == 0.5
    assert changes(resumed) == [(2, {RATE: 0.5})]
    assert changes(resumed) == [], "once"


def test_what_was_told_before_is_not_told_at_each_resume(world: World) -> None:
    bookkeeper = world.begin()
    world.order(learning_rate=0.5)
    bookkeeper.inbox.orders = world.orders
    assert changes(bookkeeper) == [(1, {RATE: 0.5})]
    world.train(bookkeeper)
    bookkeeper.save()

    resumed = world.begin()

    assert world.trainer.hyper["main"]["learning_rate"] == 0.5
    assert changes(resumed) == []


class ManyPartitions(MemoryBus):
    """A topic that somebody made with three partitions, as a cluster allows."""

    retained: Position = ()

    def end(self, topic: str) -> Position:
        return (200_000, 5, 100_001) if topic == METRICS_TRAINING else super().end(topic)

    def retain(self, topic: str, start: Position, keep_newest: bool = False) -> None:
        if topic == METRICS_TRAINING:
            self.retained = start
        else:
            super().retain(topic, start, keep_newest)


def test_metrics_in_several_partitions_are_no_trouble_to_a_learner(tmp_path: Path) -> None:
    bus = ManyPartitions()
    bookkeeper = World(tmp_path, bus).begin()
    assert bookkeeper.save() is not None
    assert bus.retained == (100_000, 0, 1)
