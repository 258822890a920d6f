"""Produced = trained + dropped + in flight, from independent counts, on every embedded bus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.bus import Bus, Outgoing
from rookery.bus.memory import MemoryBus
from rookery.bus.sqlite import SqliteBus
from rookery.control.balance import Balance, balance
from rookery.learner.ledger import Ledger
from rookery.messages import EXPERIENCES


@pytest.fixture(params=["memory", "sqlite"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bus]:
    made: Bus = MemoryBus() if request.param == "memory" else SqliteBus(tmp_path / "bus.sqlite")
    yield made
    made.close()


class Actor:
    """Publishes fragments as an actor does, without their content."""

    def __init__(self, bus: Bus, name: str) -> None:
        self.bus, self.name = bus, name
        self.total = 0

    def join(self) -> None:
        self._publish("joined", 0)

    def send(self, steps: int) -> None:
        self.total += steps
        self._publish("fragment", steps)

    def leave(self) -> None:
        self._publish("left", 0)

    def _publish(self, kind: str, steps: int) -> None:
        headers = {"kind": kind, "steps": str(steps), "steps_total": str(self.total)}
        self.bus.publish([Outgoing(EXPERIENCES, b"x", self.name, headers)])


def test_a_run_that_has_not_begun_is_in_balance(bus: Bus) -> None:
    found = balance(bus, Ledger().summary(0, ()))
    assert found == Balance(produced=0, trained=0, dropped={}, in_flight=0) and found.exact


def test_every_step_is_somewhere(bus: Bus) -> None:
    first, second, ledger = Actor(bus, "0.1"), Actor(bus, "1.1"), Ledger()
    first.join()  # offset 0
    first.send(10)
    second.send(7)
    second.leave()
    first.send(5)  # offset 4: not read yet
    ledger.receive("0.1", 0, 10)
    ledger.train("0.1", 0, 10)
    ledger.receive("1.1", 0, 7)

    found = balance(bus, ledger.summary(pending=7, position=(4,)))

    assert found == Balance(produced=22, trained=10, dropped={}, in_flight=12)
    assert found.exact


def test_dropped_steps_are_told_by_reason(bus: Bus) -> None:
    actor, ledger = Actor(bus, "0.1"), Ledger()
    for sequence, steps in enumerate((3, 4)):
        actor.send(steps)
        ledger.receive("0.1", sequence, steps)
    ledger.drop("0.1", 0, 3, "abandoned")
    ledger.drop("0.1", 1, 4, "uncredited")
    found = balance(bus, ledger.summary(0, (2,)))
    assert found.exact and found.dropped == {"abandoned": 3, "uncredited": 4}


def test_retention_takes_nothing_from_what_was_produced(bus: Bus) -> None:
    actor, ledger = Actor(bus, "0.1"), Ledger()
    for sequence in range(3):
        actor.send(5)
        ledger.receive("0.1", sequence, 5)
        ledger.train("0.1", sequence, 5)
    bus.retain(EXPERIENCES, (3,))
    found = balance(bus, ledger.summary(0, (3,)))
    assert found.produced == found.trained == 15 and found.exact


def test_an_actor_that_only_the_ledger_remembers_still_counts() -> None:
    ledger = Ledger()
    ledger.receive("0.1", 0, 5)
    ledger.train("0.1", 0, 5)
    found = balance(None, ledger.summary(0, ()))
    assert found.produced == 5 and found.exact


@pytest.mark.parametrize("mistake", ["lost", "counted twice", "never read"])
def test_a_wrong_count_shows(bus: Bus, mistake: str) -> None:
    actor, ledger = Actor(bus, "0.1"), Ledger()
    actor.send(5)
    actor.send(5)
    for sequence in range(2):
        ledger.receive("0.1", sequence, 5)
        ledger.train("0.1", sequence, 5)
    position = (2,)
    if mistake == "lost":
        ledger.trained -= 5
    elif mistake == "counted twice":
        ledger.train("0.1", 1, 5)
    else:
        position = (1,)  # the learner says it has not read what it has trained
    assert not balance(bus, ledger.summary(0, position)).exact


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(["memory", "sqlite"]),
    moves=st.lists(
        st.tuples(
            st.sampled_from(["send", "send", "read", "train", "drop", "retain"]),
            st.integers(0, 2),
            st.integers(0, 9),
        ),
        max_size=40,
    ),
)
def test_the_balance_is_exact_at_every_moment(
    kind: str, moves: list[tuple[str, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    bus: Bus = MemoryBus()
    if kind == "sqlite":
        bus = SqliteBus(tmp_path_factory.mktemp("bus") / "bus.sqlite")
    actors = [Actor(bus, f"{i}.1") for i in range(3)]
    ledger, pending = Ledger(), []
    reader = bus.subscribe(EXPERIENCES, (0,))
    sequences = dict.fromkeys((a.name for a in actors), 0)
    try:
        for move, which, steps in moves:
            if move == "send":
                actors[which].send(steps)
            elif move == "read":
                for record in reader.poll(0.0, limit=2):
                    count = int(record.headers["steps"])
                    ledger.receive(record.key, sequences[record.key], count)
                    pending.append((record.key, sequences[record.key], count))
                    sequences[record.key] += 1
            elif move == "train" and pending:
                ledger.train(*pending.pop(0))
            elif move == "drop" and pending:
                ledger.drop(*pending.pop(0), "abandoned")
            elif move == "retain":
                bus.retain(EXPERIENCES, reader.position())
            waiting = sum(count for _, _, count in pending)
            found = balance(bus, ledger.summary(waiting, reader.position()))
            assert found.exact, found
            assert found.produced == sum(a.total for a in actors)
    finally:
        bus.close()
