"""Which runs end early."""

from __future__ import annotations

import pytest

from rookery.tuning.pruning import is_beaten, rungs_of


def test_rungs_rise_to_before_the_end() -> None:
    assert rungs_of("asha", 27_000) == (1000, 3000, 9000)
    assert rungs_of("median", 1000) == (200, 400, 600, 800)
    assert rungs_of("none", 1000) == ()


@pytest.mark.parametrize(
    ("value", "others", "beaten"),
    [
        (1.0, [], False),  # the first at a rung
        (1.0, [2.0], False),  # of two nobody knows
        (3.0, [1.0, 2.0], False),
        (2.0, [1.0, 3.0], True),
        (1.0, [2.0, 3.0], True),
        (5.0, [1.0, 2.0, 3.0, 4.0, 6.0], False),  # two of six go on
        (4.0, [1.0, 2.0, 3.0, 5.0, 6.0], True),
        (3.0, [3.0, 3.0, 3.0], False),  # as good as all
    ],
)
def test_a_third_goes_on_from_a_rung(value: float, others: list[float], beaten: bool) -> None:
    assert is_beaten("asha", value, others) is beaten


def test_the_median_needs_a_few_others_and_ends_what_is_below() -> None:
    assert not is_beaten("median", 0.0, [1.0, 2.0, 3.0])
    assert is_beaten("median", 2.4, [1.0, 2.0, 3.0, 4.0])
    assert not is_beaten("median", 2.5, [1.0, 2.0, 3.0, 4.0])
