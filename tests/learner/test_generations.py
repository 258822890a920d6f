"""Generations of learners: claimed through the log, one owner each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.bus import EARLIEST, Bus, Outgoing
from rookery.bus.memory import MemoryBus
from rookery.bus.sqlite import SqliteBus
from rookery.errors import LearnerFenced
from rookery.learner.credits import CreditBook
from rookery.learner.generations import Branch, claim
from rookery.learner.inbox import Inbox
from rookery.learner.ledger import Ledger
from rookery.learner.walk_ins import WalkIns
from rookery.messages import EXPERIENCES


@pytest.fixture(params=["memory", "sqlite"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bus]:
    made: Bus = MemoryBus() if request.param == "memory" else SqliteBus(tmp_path / "bus.sqlite")
    yield made
    made.close()


def inbox(bus: Bus, generation: int) -> Inbox:
    branch = Branch({generation: 0})
    return Inbox(bus, CreditBook(1, 1), Ledger(), branch, EARLIEST, [], 0.0, WalkIns())


def test_generations_grow_also_when_the_log_was_cut(bus: Bus) -> None:
    assert claim(bus, 1) == 1
    assert claim(bus, 1) == 2
    assert claim(bus, 7) == 7
    bus.retain(EXPERIENCES, bus.end(EXPERIENCES))
    assert claim(bus, 1) == 8


def test_learners_that_claim_at_once_get_different_generations(bus: Bus) -> None:
    found: list[int] = []
    barrier = threading.Barrier(6)

    def learner() -> None:
        barrier.wait(20)
        found.append(claim(bus, 1))

    threads = [threading.Thread(target=learner) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(found) == len(set(found)) == 6


def test_a_learner_is_fenced_by_a_later_claim_and_not_by_its_own_or_an_earlier_one(
    bus: Bus,
) -> None:
    claim(bus, 1)
    mine = claim(bus, 2)
    older, newer = inbox(bus, 1), inbox(bus, mine)
    newer.receive(0)
    with pytest.raises(LearnerFenced, match="generation 2"):
        older.receive(0)


def test_what_is_no_message_is_skipped_and_counted(
    bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    bus.publish([Outgoing(EXPERIENCES, b"nonsense", "0.1", {"kind": "fragment"})])
    bus.publish([Outgoing(EXPERIENCES, b"{}", "0.1", {"kind": "joined"})])
    bus.publish([Outgoing(EXPERIENCES, b"", "x")])
    reader = inbox(bus, 1)
    reader.receive(0)
    assert reader.ledger.damaged == 3
    assert [f"offset {i}: skipped" in caplog.text for i in range(3)] == [True] * 3
