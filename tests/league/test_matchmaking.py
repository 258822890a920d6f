"""Weights over a pool are probabilities, and lean as they should."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.league.matchmaking import PFSP_FLOOR, WEIGHINGS, How, pfsp, recency, uniform

HOWS = list(WEIGHINGS)
pools = st.lists(st.integers(0, 10_000).map("main@{}".format), unique=True, max_size=80)


@pytest.mark.parametrize("how", HOWS)
@given(pool=pools, data=st.data())
def test_weights_are_positive_and_add_up_to_one(
    how: How, pool: list[str], data: st.DataObject
) -> None:
    some = st.sampled_from(pool) if pool else st.nothing()
    win_rates = data.draw(st.dictionaries(some, st.floats(0, 1)))
    weights = WEIGHINGS[how](pool, win_rates)
    assert set(weights) == set(pool)
    assert all(weight > 0 for weight in weights.values())
    if pool:
        assert math.fsum(weights.values()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("how", HOWS)
def test_an_empty_pool_has_no_weights(how: How) -> None:
    assert WEIGHINGS[how]([], {}) == {}


def test_uniform_is_alike() -> None:
    assert uniform(["a", "b", "c", "d"], {"a": 1.0}) == dict.fromkeys("abcd", 0.25)


def test_recency_halves_with_a_quarter_of_the_pool() -> None:
    pool = [f"main@{i}" for i in range(8)]
    weights = recency(pool, {})
    assert weights["main@5"] == pytest.approx(weights["main@7"] / 2)
    assert weights["main@1"] == pytest.approx(weights["main@7"] / 8)
    assert max(weights, key=weights.__getitem__) == "main@7"


def test_recency_of_a_small_pool_halves_with_each() -> None:
    assert recency(["a", "b"], {}) == pytest.approx({"a": 1 / 3, "b": 2 / 3})


def test_pfsp_prefers_the_hard_ones() -> None:
    weights = pfsp(["easy", "even", "hard", "unseen"], {"easy": 1.0, "even": 0.5, "hard": 0.0})
    total = 4 * PFSP_FLOOR + 0.25 + 1 + 0.25
    assert weights["easy"] == pytest.approx(PFSP_FLOOR / total)
    assert weights["hard"] == pytest.approx((1 + PFSP_FLOOR) / total)
    assert weights["unseen"] == weights["even"] == pytest.approx((0.25 + PFSP_FLOOR) / total)
