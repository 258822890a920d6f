"""Hand-worked intervals and rank correlations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from rookery.league.intervals import spearman, wilson


def test_wilson_by_hand() -> None:
    # z = 2, 8 of 16: centre 0.5, half width 2 * sqrt(1/64 + 1/256) / 1.25 = sqrt(5) / 10
    half = math.sqrt(5) / 10
    assert wilson(8, 16, z=2) == pytest.approx((0.5 - half, 0.5 + half))
    # all won: low = 1 / (1 + z^2 / n)
    assert wilson(10, 10) == pytest.approx((1 / (1 + 1.96**2 / 10), 1.0))
    assert wilson(0, 10) == pytest.approx((0.0, 1 - 1 / (1 + 1.96**2 / 10)))
    # Newcombe 1998, table I: 81 of 263
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)


def test_no_games_tell_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)


def test_more_points_than_games_are_refused() -> None:
    with pytest.raises(ValueError, match="points"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="points"):
        wilson(-0.5, 2)


@given(games=st.integers(1, 2000), data=st.data())
def test_wilson_holds_the_rate_and_is_symmetric(games: int, data: st.DataObject) -> None:
    points = data.draw(st.integers(0, 2 * games)) / 2
    low, high = wilson(points, games)
    assert 0 <= low <= points / games + 1e-12
    assert points / games - 1e-12 <= high <= 1
    mirrored = wilson(games - points, games)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 99]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # 1 - 6 * sum d^2 / (n (n^2 - 1)), d = 1, 1, 0, 0
    assert spearman([1, 2, 3, 4], [2, 1, 3, 4]) == pytest.approx(1 - 6 * 2 / 60)


def test_spearman_of_equal_values_is_undefined() -> None:
    assert math.isnan(spearman([1, 1, 1], [1, 2, 3]))
    assert math.isnan(spearman([], []))
    with pytest.raises(ValueError, match="against"):
        spearman([1], [1, 2])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_spearman_agrees_with_scipy_also_on_ties(pairs: list[tuple[int, int]]) -> None:
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        assert math.isnan(spearman(xs, ys))
    else:
        assert spearman(xs, ys) == pytest.approx(float(spearmanr(xs, ys).statistic), abs=1e-12)
