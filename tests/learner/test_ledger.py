"""Every fragment has one outcome; gaps and repeats show."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.learner.ledger import TRAINED, Ledger


def test_neighbours_become_one_interval_per_outcome() -> None:
    ledger = Ledger()
    for sequence in (0, 1, 2):
        ledger.train("0.1", sequence, 10)
    ledger.drop("0.1", 3, 10, "abandoned")
    for sequence in (4, 5):
        ledger.train("0.1", sequence, 10)

    assert ledger.outcomes == {"0.1": {TRAINED: [(0, 2), (4, 5)], "abandoned": [(3, 3)]}}
    assert (ledger.trained, ledger.dropped) == (50, {"abandoned": 10})


def test_a_repeat_is_counted_and_not_received() -> None:
    ledger = Ledger()
    assert ledger.receive("0.1", 0, 8)
    assert ledger.receive("0.1", 1, 8)
    assert not ledger.receive("0.1", 1, 8)
    assert not ledger.receive("0.1", 0, 8)
    assert (ledger.duplicates, ledger.gaps, ledger.seen) == (2, 0, {"0.1": 16})


def test_a_gap_is_counted_by_the_fragments_that_are_missing() -> None:
    ledger = Ledger()
    ledger.receive("0.1", 2, 8)
    ledger.receive("0.1", 3, 8)
    ledger.receive("0.1", 6, 8)
    assert (ledger.gaps, ledger.next_sequence) == (4, {"0.1": 7})


def test_incarnations_are_counted_apart() -> None:
    ledger = Ledger()
    ledger.receive("0.1", 0, 8)
    assert ledger.receive("0.2", 0, 8)
    assert (ledger.gaps, ledger.duplicates) == (0, 0)


def test_the_summary_says_what_the_ledger_says() -> None:
    ledger = Ledger()
    ledger.receive("0.1", 1, 8)
    ledger.train("0.1", 1, 8)
    summary = ledger.summary(pending=5, position=(3,))
    assert (summary.trained, summary.pending, summary.position) == (8, 5, (3,))
    assert (summary.seen, summary.gaps, summary.duplicates) == ({"0.1": 8}, 1, 0)


def test_two_ledgers_share_nothing() -> None:
    first = Ledger()
    first.receive("0.1", 0, 1)
    first.drop("0.1", 0, 1, "x")
    assert Ledger() == msgspec.json.decode(msgspec.json.encode(Ledger()), type=Ledger)
    assert Ledger().seen == Ledger().dropped == Ledger().outcomes == {}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([TRAINED, "abandoned", "uncredited", "lost"]), max_size=40))
def test_intervals_hold_exactly_what_became_of_each_fragment(outcomes: list[str]) -> None:
    ledger = Ledger()
    for sequence, outcome in enumerate(outcomes):
        if outcome == "lost":
            continue
        assert ledger.receive("0.1", sequence, sequence)
        if outcome == TRAINED:
            ledger.train("0.1", sequence, sequence)
        else:
            ledger.drop("0.1", sequence, sequence, outcome)

    back = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    assert back == ledger
    found = {
        sequence: outcome
        for outcome, intervals in ledger.outcomes.get("0.1", {}).items()
        for first, last in intervals
        for sequence in range(first, last + 1)
    }
    assert found == {i: o for i, o in enumerate(outcomes) if o != "lost"}
    covered = sum(
        last - first + 1
        for intervals in ledger.outcomes.get("0.1", {}).values()
        for first, last in intervals
    )
    assert covered == len(found), "an overlap"
    assert ledger.trained + sum(ledger.dropped.values()) == sum(ledger.seen.values())
    lost_before_the_last = [
        i for i, o in enumerate(outcomes) if o == "lost" and i < max(found, default=-1)
    ]
    assert ledger.gaps == len(lost_before_the_last)
