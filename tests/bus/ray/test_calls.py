"""What crosses between a worker and a bus's host is the same on both sides, in whatever parts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.bus.ray.calls import (
    LARGE_ANSWER_PARTS,
    MOST_WITH_CALL,
    SMALL_FOR_RAY,
    answer_parts,
    joined,
    parted,
    parts_for,
)

sizes = st.integers(0, 2 * MOST_WITH_CALL) | st.sampled_from(
    [0, SMALL_FOR_RAY, SMALL_FOR_RAY + 1, LARGE_ANSWER_PARTS * SMALL_FOR_RAY, MOST_WITH_CALL]
)


@given(size=sizes, count=st.integers(1, 8))
def test_an_answer_is_whole_in_as_many_parts_as_were_asked_for(size: int, count: int) -> None:
    content = bytes(size)
    parts = answer_parts(content, count)
    if isinstance(parts, bytes):
        assert count == 1
        assert parts == content
    else:
        assert len(parts) == count
        assert joined(parts) == content


@given(size=sizes)
def test_a_call_is_whole_in_its_parts(size: int) -> None:
    content = bytes(size)
    assert joined(parted(content) or [b""]) == content


@pytest.mark.parametrize("size", [SMALL_FOR_RAY + 1, 330_000])
def test_a_fragment_comes_back_in_parts_that_ray_takes_for_small(size: int) -> None:
    parts = answer_parts(bytes(size), parts_for(size))
    assert not isinstance(parts, bytes)
    assert max(len(part) for part in parts) <= SMALL_FOR_RAY


def test_what_is_small_comes_back_as_one() -> None:
    assert parts_for(36_000) == 1
