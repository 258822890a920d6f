"""When a snapshot is taken, what it is called, and which are kept."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.league.snapshots import Schedule, Snapshot, thin


def taken(*numbers: int) -> list[Snapshot]:
    return [Snapshot("main", 1, number, number * 512) for number in numbers]


def numbers_of(snapshots: list[Snapshot]) -> list[int]:
    return [snapshot.number for snapshot in snapshots]


def test_a_snapshot_has_a_name_to_play_under_and_one_to_be_stored_under() -> None:
    snapshot = Snapshot("main", 2, 340, 174_080)
    assert snapshot.name == "main@340"
    assert snapshot.file == "main-000002-0000000340"


def test_the_first_is_due_at_once() -> None:
    assert Schedule(every_updates=100).due(0, None, 0.5, 0)


def test_the_clock() -> None:
    schedule = Schedule(every_updates=100)
    assert not schedule.due(199, 100, 1.0, 1000)
    assert schedule.due(200, 100, 0.0, 0)
    assert schedule.due(230, 100, 0.0, 0)


def test_outgrowing_the_pool() -> None:
    schedule = Schedule(every_updates=0, win_rate=0.7, min_updates=10, min_games=50)
    assert schedule.due(110, 100, 0.7, 50)
    assert not schedule.due(109, 100, 0.7, 50)
    assert not schedule.due(110, 100, 0.69, 50)
    assert not schedule.due(110, 100, 0.7, 49)
    assert not schedule.due(100_000, 100, 0.0, 0)


def test_the_same_weights_are_not_due_twice() -> None:
    assert not Schedule(every_updates=0, win_rate=0.0).due(100, 100, 1.0, 9)


def test_few_enough_are_all_kept_in_order() -> None:
    assert numbers_of(thin(taken(20, 0, 10), 3)) == [0, 10, 20]
    assert thin([], 3) == []


def test_the_crowded_go_first() -> None:
    assert numbers_of(thin(taken(0, 10, 11, 20, 30), 4)) == [0, 10, 20, 30]
    assert numbers_of(thin(taken(0, 1, 2, 3, 4), 3)) == [0, 2, 4]


def test_one_is_the_newest_and_two_are_the_ends() -> None:
    assert numbers_of(thin(taken(0, 5, 9), 1)) == [9]
    assert numbers_of(thin(taken(0, 5, 9), 2)) == [0, 9]


def test_none_cannot_be_kept() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        thin(taken(0), 0)


@given(st.lists(st.integers(0, 5000), unique=True, min_size=1, max_size=60), st.integers(2, 20))
def test_a_thinned_pool_is_spread_over_the_run(numbers: list[int], keep: int) -> None:
    kept = numbers_of(thin(taken(*numbers), keep))
    assert kept == numbers_of(thin(reversed(taken(*numbers)), keep))
    assert len(kept) == min(keep, len(numbers))
    assert (kept[0], kept[-1]) == (min(numbers), max(numbers))
    assert_no_gap_is_wide(kept, sorted(numbers), keep)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=80), st.integers(2, 12))
def test_thinning_after_every_snapshot_keeps_the_spread(steps: list[int], keep: int) -> None:
    number, all_numbers, kept = 0, [0], taken(0)
    for step in steps:
        number += step
        all_numbers.append(number)
        kept = thin([*kept, *taken(number)], keep)
    assert_no_gap_is_wide(numbers_of(kept), all_numbers, keep)


def assert_no_gap_is_wide(kept: list[int], numbers: list[int], keep: int) -> None:
    if len(kept) < 2:
        return
    given_gap = max(after - before for before, after in pairwise(numbers))
    even = (numbers[-1] - numbers[0]) / (keep - 1)
    widest = max(after - before for before, after in pairwise(kept))
    assert widest <= max(2 * even, given_gap)
