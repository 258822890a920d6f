"""Several runs as one: figures that are known, and what holds of any."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.control.aggregate import aggregate, band

scores = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12)


def named(values: list[float]) -> dict[str, float]:
    return {f"run-{i}": value for i, value in enumerate(values)}


def test_the_middle_half_of_eight_runs() -> None:
    found = aggregate(named([0.0, 1.0, 10.0, 11.0, 12.0, 13.0, 99.0, 1000.0]))
    assert found is not None
    assert found.iqm == pytest.approx((10 + 11 + 12 + 13) / 4)
    assert found.mean == pytest.approx(143.25)
    assert (found.best, found.worst) == ("run-7", "run-0")


@given(scores)
def test_the_interval_lies_within_the_runs_and_holds_nothing_of_chance(values: list[float]) -> None:
    found = aggregate(named(values))
    assert found is not None and found == aggregate(named(values))
    slack = 1e-6 * (1 + max(map(abs, values)))
    assert min(values) - slack <= found.low <= found.high <= max(values) + slack
    assert min(values) - slack <= found.iqm <= max(values) + slack


def test_of_one_run_the_band_is_the_run() -> None:
    found = aggregate({"a": 7.0})
    assert found is not None
    assert (found.mean, found.iqm, found.low, found.high) == (7.0, 7.0, 7.0, 7.0)


def test_runs_without_a_figure_do_not_count() -> None:
    found = aggregate({"a": 7.0, "b": float("nan")})
    assert found is not None and found.runs == 1
    assert aggregate({"b": float("nan")}) is None
    assert aggregate({}) is None


def test_the_interval_covers_what_it_should() -> None:
    """The true interquartile mean of a bell is 0: of 300 groups of 10 runs, about 95 % hold it."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        found = aggregate(named(list(rng.normal(size=10))))
        assert found is not None
        held += found.low <= 0.0 <= found.high
    assert 0.85 <= held / 300 <= 0.99


def test_curves_meet_on_one_axis() -> None:
    found = band([([0, 100], [0.0, 10.0]), ([0, 50, 100, 200], [0.0, 0.0, 0.0, 4.0])], points=5)
    assert found.steps == [0.0, 50.0, 100.0, 150.0, 200.0]
    assert found.runs == [2, 2, 2, 1, 1]
    assert found.mean == pytest.approx([0.0, 2.5, 5.0, 2.0, 4.0])


def test_a_band_ends_where_fewer_than_half_of_the_runs_came() -> None:
    """Else its last points would be those of whoever came furthest."""
    short = ([0, 100], [1.0, 1.0])
    found = band([short, short, ([0, 200], [5.0, 5.0])], points=3)
    assert found.steps == [0.0, 100.0]
    assert found.runs == [3, 3]


def test_no_curve_is_an_empty_band() -> None:
    assert band([]).steps == []
    assert band([([], [])]).steps == []
