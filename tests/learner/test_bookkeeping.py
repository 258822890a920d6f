"""What a learner tells and lets go of beside its training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from rookery.algorithms.batch import blank
from rookery.bus import EARLIEST, Outgoing, Position
from rookery.bus.memory import MemoryBus
from rookery.checkpoints.checkpoint import newest_checkpoint
from rookery.checkpoints.store import FileStore
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.envs.registry import describe
from rookery.learner.bookkeeping import Bookkeeper
from rookery.learner.inbox import NO_ORDERS
from rookery.learner.ledger import Ledger
from rookery.learner.manifest import LearnerManifest
from rookery.learner.report import Report, Window
from rookery.messages import (
    EXPERIENCES,
    METRICS_TRAINING,
    HyperparametersChanged,
    WeightsVersion,
)
from rookery.messages.fragment import Episode, Fragment, FragmentHeader, encode_fragment
from rookery.players.seat_map import Seating
from rookery.worker.policies import HEADER_BYTES, delivery_bytes, least_experience, networks

RATE = "algorithm.learning_rate"
CONFIG = build({"environment": {"id": "CartPole-v1"}})


class World:
    """A learner that trains nothing, and what surrounds it; each life goes on from the last."""

    def __init__(self, path: Path, bus: MemoryBus, config: RunConfig = CONFIG) -> None:
        self.bus, self.config, self.store = bus, config, FileStore(path)
        self.orders, self.number, self.generation = NO_ORDERS, 0, 0
        self.position: Position = bus.end(EXPERIENCES)
        self.received: list[Any] = []
        self.bytes_read = self.delivery_bytes = self.trained = 0
        self.inbox: Any = None
        self.transport: Any = None
        self.trainer: Any = None

    def order(self, **hyperparameters: float) -> None:
        values = {f"algorithm.{name}": value for name, value in hyperparameters.items()}
        self.orders = msgspec.structs.replace(
            self.orders, revision=self.orders.revision + 1, hyperparameters=values
        )

    def begin(self) -> Bookkeeper:
        self.generation += 1
        self.position = self.bus.end(EXPERIENCES)
        manifest = LearnerManifest.beginning("r", self.config, has_league=False)
        self.trainer = SimpleNamespace(hyper={"main": {}}, save=dict)
        self.inbox = SimpleNamespace(
            orders=self.orders,
            ledger=Ledger(trained=self.trained),
            book=manifest.book,
            branch=SimpleNamespace(starts={}),
            updates_begun=0,
            bytes_read=self.bytes_read,
            received=self.received,
            pending_steps=0,
            position=self.position,
        )
        self.transport = SimpleNamespace(
            generation=self.generation,
            number=self.number,
            version=WeightsVersion(self.generation, self.number),
        )
        return Bookkeeper(
            self.bus,
            self.config,
            self.store,
            self.inbox,
            self.trainer,
            self.transport,
            Report("r", {"main": Window()}, 1, 0.0),
            None,
            newest_checkpoint(self.store, LearnerManifest),
            self.delivery_bytes,
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


PLAN = [
    {"steps": 100, "set": {RATE: 0.25}},
    {"steps": 200, "set": {RATE: 0.125, "algorithm.gamma": 0.5}},
]


def test_changes_of_the_config_take_hold_when_training_comes_to_them(tmp_path: Path) -> None:
    config = build({"environment": {"id": "CartPole-v1"}, "changes": PLAN})
    world = World(tmp_path / "checkpoints", MemoryBus(), config)
    bookkeeper = world.begin()
    for trained, expected in ((99, []), (100, [{RATE: 0.25}]), (150, [])):
        bookkeeper.inbox.ledger = Ledger(trained=trained)
        assert [values for _, values in changes(bookkeeper)] == expected
    assert world.trainer.hyper["main"]["learning_rate"] == 0.25
    world.order(learning_rate=0.75)
    bookkeeper.inbox.orders = world.orders
    assert [values for _, values in changes(bookkeeper)] == [{RATE: 0.75}]
    bookkeeper.inbox.ledger = Ledger(trained=250)
    both = {RATE: 0.75, "algorithm.gamma": 0.5}
    assert [values for _, values in changes(bookkeeper)] == [both], "what people set stays set"
    hyper = world.trainer.hyper["main"]
    assert (hyper["learning_rate"], hyper["gamma"]) == (0.75, 0.5)


def test_a_run_that_goes_on_has_the_changes_that_it_has_passed(tmp_path: Path) -> None:
    config = build({"environment": {"id": "CartPole-v1"}, "changes": PLAN})
    world = World(tmp_path / "checkpoints", MemoryBus(), config)
    world.trained = 150
    resumed = world.begin()
    assert world.trainer.hyper["main"]["learning_rate"] == 0.25
    assert changes(resumed) == [], "it was told in the life before"


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


# --- room on the bus -----------------------------------------------------------------------------


def bounded(path: Path, delivery_bytes: int, fragments: int = 1, keep: int = 3) -> World:
    """A run whose bus has the room that its workers give it."""
    config = build(
        {"environment": {"id": "CartPole-v1"}},
        {
            "bus": {"kind": "memory", "max_experience_mb": 1},
            "launcher": "inline",
            "checkpoint": {"keep": keep, "interval_s": 3600.0},
            "learner": {"fragments_per_batch": fragments},
        },
    )
    lag = config.learner.max_policy_lag_versions
    room = max(1 << 20, fragments * (lag + 2) * delivery_bytes)
    world = World(path, MemoryBus({EXPERIENCES: room}), config)
    world.delivery_bytes = delivery_bytes
    return world


def read_and_train(world: World, bookkeeper: Bookkeeper, fragments: int) -> None:
    """An update of a batch that was just published; BusFull if there was no room for it."""
    for _ in range(fragments):
        message = Outgoing(EXPERIENCES, bytes(world.delivery_bytes))
        world.bus.publish([message], timeout_s=0.0)
        world.inbox.bytes_read += world.delivery_bytes
    world.inbox.position = world.bus.end(EXPERIENCES)
    world.train(bookkeeper)
    if bookkeeper.checkpoint_is_due():
        bookkeeper.save()


@pytest.mark.parametrize("delivery_bytes", [10_000, 150_000, 530_000, 1_000_000, 4_000_000])
@pytest.mark.parametrize("fragments", [1, 4])
@pytest.mark.parametrize("keep", [1, 10])
def test_there_is_always_room_for_the_next_batch(
    tmp_path: Path, delivery_bytes: int, fragments: int, keep: int
) -> None:
    world = bounded(tmp_path, delivery_bytes, fragments, keep)
    bookkeeper = world.begin()
    for _ in range(4 + keep + (3 << 20) // (delivery_bytes * fragments)):
        read_and_train(world, bookkeeper, fragments)
    resumed = world.begin()
    for _ in range(4):
        read_and_train(world, resumed, fragments)


def test_small_fragments_are_kept_for_every_checkpoint(tmp_path: Path) -> None:
    """From the oldest checkpoint that is kept, all that came after it can be read again."""
    world = bounded(tmp_path, 1_000)
    bookkeeper = world.begin()
    for _ in range(6):
        read_and_train(world, bookkeeper, 1)
        bookkeeper.save()
    assert world.bus.subscribe(EXPERIENCES, EARLIEST).lag() == 2


def test_a_checkpoint_is_not_due_before_something_was_trained(tmp_path: Path) -> None:
    world = bounded(tmp_path, 1_000_000)
    bookkeeper = world.begin()
    read_and_train(world, bookkeeper, 1)
    world.inbox.bytes_read += 10 << 20
    assert not bookkeeper.checkpoint_is_due()
    world.train(bookkeeper)
    assert bookkeeper.checkpoint_is_due()


def test_room_is_made_for_what_the_fragments_of_a_run_really_take() -> None:
    """Workers know the size of a delivery before the first one is played."""
    config = build({"environment": {"id": "CartPole-v1"}}, {"actors": {"envs_per_actor": 3}})
    spec = describe("CartPole-v1")
    seating = Seating.of(config, spec)
    network = networks(config, seating)["main"]
    steps = blank(network, config.actors.rollout_steps, 3)
    played = tuple(Episode("player_0", 1.0, 1) for _ in range(3 * config.actors.rollout_steps // 3))
    header = FragmentHeader(
        run="cartpole-k3f9a",
        policy="main",
        actor="0.1",
        sequence=0,
        first_step=0,
        steps=0,
        version=WeightsVersion(1, 1),
        seats=("player_0",),
        players=("policy",),
        episodes=played,
    )
    real = len(encode_fragment(Fragment(header, steps)))
    assert real <= delivery_bytes(config, seating) < 2 * real + HEADER_BYTES
    assert least_experience(config, seating) >= 3 * real
