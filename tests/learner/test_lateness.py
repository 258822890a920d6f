"""Slow is what takes much longer than the others do, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rookery.learner.lateness import GLANCE_S, NOTICED_S, PATIENCE, UNKNOWN_S, WAITED_S, Lateness


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def ticking(
    lateness: Lateness, clock: Clock, seconds: float, owing: Mapping[str, float]
) -> set[str]:
    """Everyone brings turn after turn, each at its own pace; who was overdue at any time."""
    found: set[str] = set()
    due = dict(owing)
    for hundredth in range(round(100 * seconds)):
        clock.now = hundredth / 100
        lateness.look(owing)
        for actor, at in due.items():
            if at <= hundredth / 100:
                lateness.arrived(actor)
                due[actor] += owing[actor]
        found |= lateness.overdue()
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lateness(clock: Clock) -> Lateness:
    return Lateness(clock)


def test_an_actor_much_slower_than_its_peers_is_overdue(lateness: Lateness, clock: Clock) -> None:
    pace = {"a": 0.05, "b": 0.06, "c": 0.05, "slow": 1.5}
    assert ticking(lateness, clock, 5.0, pace) == {"slow"}


def test_peers_that_are_about_as_fast_never_are(lateness: Lateness, clock: Clock) -> None:
    pace = {"a": 1.0, "b": 1.3, "c": 0.9 * PATIENCE}
    assert ticking(lateness, clock, 20.0, pace) == set()


def test_turns_of_a_moment_are_never_slow(lateness: Lateness, clock: Clock) -> None:
    assert ticking(lateness, clock, 3.0, {"a": 0.01, "b": 0.9 * NOTICED_S}) == set()


def test_with_nobody_to_compare_it_by_an_actor_is_measured_by_itself(
    lateness: Lateness, clock: Clock
) -> None:
    assert ticking(lateness, clock, 2.0, {"a": 0.5}) == set()
    for _ in range(2):
        clock.now += 0.9 * WAITED_S
        lateness.look(["a"])
    assert lateness.overdue() == {"a"}


def test_one_of_whom_nothing_is_known_has_a_minute(lateness: Lateness, clock: Clock) -> None:
    lateness.look(["a"])
    for second in range(round(UNKNOWN_S) + 2):
        assert lateness.overdue() == (set() if second <= UNKNOWN_S else {"a"})
        clock.now += GLANCE_S
        lateness.look(["a"])


def test_time_in_which_the_bus_cannot_be_heard_counts_for_nobody(
    lateness: Lateness, clock: Clock
) -> None:
    ticking(lateness, clock, 2.0, {"a": 0.05, "b": 0.05})
    for _ in range(100):
        clock.now += 0.5
        lateness.look(["a", "b"], hears=False)
    assert lateness.overdue() == set()


def test_who_left_is_forgotten(lateness: Lateness, clock: Clock) -> None:
    ticking(lateness, clock, 5.0, {"a": 0.05, "slow": 1.5})
    lateness.forget("slow")
    lateness.look(["a", "slow"])
    assert lateness.overdue() == set()
