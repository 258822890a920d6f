"""The number of actors follows what the learner can take, in simulations with measured rates."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.control.autoscale import AGAIN_S, AutoActors, Look

Rates = Callable[[int], float]
MOST = 16


def waiting(rate: float, actors: int, alone: float) -> float:
    """The share of their time that actors wait, if each could play `alone` steps a second."""
    return max(0.0, 1.0 - rate / (actors * alone))


def simulated(
    rates: Rates, alone: float, seconds: float, noise: float = 0.0, begin: int = 1, most: int = MOST
) -> list[int]:
    """The number of actors in each second."""
    auto, drawn = AutoActors(most, begin), random.Random(7)
    actors, steps, found = begin, 0.0, []
    for now in range(int(seconds)):
        rate = rates(actors)
        steps += rate * drawn.uniform(1 - noise, 1 + noise)
        wanted = auto.look(Look(float(now), actors, int(steps), waiting(rate, actors, alone)))
        actors = actors if wanted is None else wanted
        found.append(actors)
    return found


def by_learner(most: float, alone: float) -> Rates:
    return lambda actors: min(most, actors * alone)


def by_cores(cores: int, learner: float, alone: float, cost: float) -> Rates:
    """Actors that share cores with each other and with the learner, which they slow down."""
    return lambda actors: min(learner / (1 + cost * max(0, actors - cores)), actors * alone)


CASES: dict[str, tuple[Rates, float]] = {
    "the learner is the limit": (by_learner(50_000, 120_000), 120_000),
    "they are in balance at 3": (by_learner(30_000, 10_000), 10_000),
    "they are in balance at 11": (by_learner(11_000, 1_000), 1_000),
    "actors are the limit": (by_learner(1e9, 200), 200),
    "more than 2 take the learner's core": (by_cores(2, 40_000, 15_000, 0.5), 15_000),
}


@pytest.mark.parametrize(("rates", "alone"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("begin", [1, 4, 16])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_it_comes_within_a_fifth_of_the_best_fixed_number(
    rates: Rates, alone: float, begin: int, noise: float
) -> None:
    found = simulated(rates, alone, 3600, noise, begin)
    best = max(map(rates, range(1, MOST + 1)))
    settled = found[300:]  # after five minutes; trials cost too
    assert sum(map(rates, settled)) / len(settled) >= 0.8 * best


def test_it_does_not_swing() -> None:
    for rates, alone in CASES.values():
        found = simulated(rates, alone, 3600, 0.05)
        changes = sum(a != b for a, b in itertools.pairwise(found[600:]))
        assert changes <= 10  # in fifty minutes


def test_what_did_not_pay_is_tried_again_later_and_less_and_less_often() -> None:
    found = simulated(by_learner(1_000, 1_000 / 0.8), 1_000 / 0.8, 3600)
    tried = [now for now, (a, b) in enumerate(itertools.pairwise(found)) if b > a == 1]
    gaps = [b - a for a, b in itertools.pairwise(tried)]
    assert len(tried) >= 3 and gaps[0] >= AGAIN_S
    assert all(b > 1.5 * a for a, b in itertools.pairwise(gaps))


def test_a_run_that_stands_still_is_left_alone() -> None:
    auto = AutoActors(MOST, 2)
    assert all(auto.look(Look(float(now), 2, 0, 0.0)) is None for now in range(200))


def test_a_change_is_not_judged_before_it_has_taken_hold() -> None:
    auto = AutoActors(MOST, 1)
    wanted = [auto.look(Look(float(now), 1, 100 * now, 0.0)) for now in range(30)]
    (asked,) = [w for w in wanted if w is not None]
    assert asked == 2
    late = [auto.look(Look(float(now), 1, 100 * now, 0.0)) for now in range(30, 90)]
    assert not any(late), "the second actor has not come yet"


def test_a_run_that_goes_on_is_measured_once_all_its_actors_are_back() -> None:
    auto = AutoActors(MOST, 4)
    for now in range(5):
        assert auto.look(Look(float(now), 1, 100 * now, 0.0)) is None, "three are to come"
    asked = [auto.look(Look(float(now), 4, 400 * now, 0.0)) for now in range(5, 20)]
    assert [each for each in asked if each] == [8]


def test_a_learner_that_goes_back_to_a_checkpoint_begins_the_measurement_anew() -> None:
    auto = AutoActors(MOST, 1)
    assert not any(auto.look(Look(float(now), 1, 1_000 * now, 0.0)) for now in range(10))
    rest = [auto.look(Look(float(now), 1, 1_000 * (now - 10), 0.0)) for now in range(10, 25)]
    assert [each for each in rest if each] == [2]
    back = [auto.look(Look(float(now), 2, 2_000 * (now - 25), 0.0)) for now in range(25, 45)]
    assert 1 not in back, "two are twice as fast"


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(0, 10_000), st.floats(0, 1)),
        min_size=1,
        max_size=300,
    ),
    st.integers(1, 64),
)
def test_what_is_wanted_is_always_possible(seen: list[tuple[float, int, float]], most: int) -> None:
    auto, now, steps, actors = AutoActors(most, 1), 0.0, 0, 1
    for seconds, more, share in seen:
        now, steps = now + seconds, steps + more
        wanted = auto.look(Look(now, actors, steps, share))
        if wanted is not None:
            assert 1 <= wanted <= most and wanted != actors
            actors = wanted
