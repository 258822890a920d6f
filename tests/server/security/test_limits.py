"""Limits: a burst at once, no more than the rate in the long run, and no JSON without a floor."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.server.security.limits import MAX_DEPTH, MAX_KEYS, Kind, RateLimits, is_too_deep


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def limits(clock: Clock, **values: float) -> RateLimits:
    given = {"requests_per_s": 10.0, "burst": 5, "changes_per_s": 1.0, "change_burst": 2}
    return RateLimits(**{**given, **values}, clock=clock)  # type: ignore[arg-type]


def test_a_burst_goes_and_the_next_waits_as_long_as_it_is_told() -> None:
    clock = Clock()
    buckets = limits(clock)
    assert [buckets.take("a", "request") for _ in range(5)] == [0.0] * 5
    wait_s = buckets.take("a", "request")
    assert wait_s == pytest.approx(0.1)
    clock.now += wait_s - 0.001
    assert buckets.take("a", "request") == pytest.approx(0.001)
    clock.now += 0.0011
    assert buckets.take("a", "request") == 0.0
    assert buckets.take("a", "request") > 0


def test_asking_too_often_does_not_make_the_wait_longer() -> None:
    clock = Clock()
    buckets = limits(clock)
    waits = [buckets.take("a", "request") for _ in range(100)]
    assert waits[5:] == [pytest.approx(0.1)] * 95


def test_keys_and_kinds_do_not_share() -> None:
    buckets = limits(Clock())
    assert [buckets.take("a", "change") for _ in range(3)] == [0.0, 0.0, pytest.approx(1.0)]
    assert buckets.take("a", "request") == 0.0
    assert buckets.take("b", "change") == 0.0


def test_rest_fills_the_bucket_no_further_than_its_burst() -> None:
    clock = Clock()
    buckets = limits(clock)
    buckets.take("a", "request")
    clock.now += 1e6
    assert [bool(buckets.take("a", "request")) for _ in range(7)] == [False] * 5 + [True] * 2


def test_only_so_many_keys_are_remembered() -> None:
    clock = Clock()
    buckets = limits(clock)
    for i in range(3 * MAX_KEYS):
        buckets.take(str(i), "request")
    assert len(buckets._buckets) <= 2 * MAX_KEYS


@given(
    st.lists(st.floats(0, 2), max_size=60),
    st.floats(0.5, 50),
    st.integers(1, 20),
    st.sampled_from(["request", "change"]),
)
def test_no_more_than_the_burst_and_the_rate_go_through(
    pauses: list[float], per_s: float, burst: int, kind: Kind
) -> None:
    clock = Clock()
    buckets = RateLimits(per_s, burst, per_s, burst, clock)
    went = 0
    for pause_s in pauses:
        clock.now += pause_s
        went += buckets.take("a", kind) == 0.0
    assert went <= burst + per_s * clock.now + 1e-6


# --- depth ---------------------------------------------------------------------------------------


def nested(depth: int, inner: Any = 1) -> bytes:
    for i in range(depth):
        inner = [inner] if i % 2 else {"a": inner}
    return json.dumps(inner).encode()


def test_the_deepest_that_passes_and_the_first_that_does_not() -> None:
    assert not is_too_deep(nested(MAX_DEPTH))
    assert is_too_deep(nested(MAX_DEPTH + 1))
    assert is_too_deep(b"[" * 100_000)


def test_width_is_not_depth() -> None:
    assert not is_too_deep(json.dumps([[] for _ in range(10_000)]).encode())
    assert not is_too_deep(json.dumps([{"a": [i]} for i in range(10_000)]).encode())


def test_brackets_in_strings_are_not_depth() -> None:
    assert not is_too_deep(json.dumps(["[" * 1000, '\\"[{' * 1000, "\\" * 99 + "["]).encode())


def test_a_string_does_not_hide_what_follows_it() -> None:
    for text in ('"', "\\", '\\"', '\\\\"', "\\\\", '"[', "\u2200"):
        assert is_too_deep(json.dumps([text, json.loads(nested(70))]).encode())


values = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=40,
)


def depth(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(depth, inner), default=0)


@given(values, st.booleans(), st.integers(0, 6))
def test_it_counts_as_a_parser_does(value: Any, escaped: bool, limit: int) -> None:
    body = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    assert is_too_deep(body, limit) is (depth(value) > limit)


@given(st.text(alphabet='[]{}"\\,: a', max_size=200))
def test_what_a_parser_gets_through_is_counted(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        return
    assert is_too_deep(text.encode(), 2) is (depth(value) > 2)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 65 + b'"\\' * 500_000,
        b"[" * 65 + b'\\"' * 500_000,
        b"[" * 65 + b'"' * 1_000_001,
        b"[]" * 500_000,
        (b"[" * 64 + b"]" * 64) * 8000,
    ],
    ids=["escapes", "escaped quotes", "quotes", "wide", "combs"],
)
def test_a_megabyte_of_anything_is_counted_in_one_pass(body: bytes) -> None:
    """Ten times as much takes some ten times as long; trying again and again would take 100."""

    def cost_s(text: bytes) -> float:
        began = time.process_time()
        is_too_deep(text)
        return time.process_time() - began

    small = min(cost_s(body[: len(body) // 10]) for _ in range(3))
    assert cost_s(body) < 40 * small + 0.05
