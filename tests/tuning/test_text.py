"""The one way in which a search space is written: text, types and text again."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.tuning.space import Choice, Condition, Dimension, Range, Search, same
from rookery.tuning.text import (
    read_dimension,
    read_lines,
    read_mapping,
    read_value,
    write_line,
    write_mapping,
    write_value,
)

FEW = settings(max_examples=40)
KEYS = st.from_regex(r"[a-z_]{1,8}(\.[a-z_0-9]{1,8}){0,2}", fullmatch=True).filter(
    lambda key: key.strip(".")
)
NUMBERS = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@st.composite
def choices(draw: Any) -> Choice:
    found: list[Any] = []
    for value in draw(st.lists(VALUES, min_size=2, max_size=5)):
        if not any(same(value, other) for other in found):
            found.append(value)
    if len(found) < 2:
        found = ["a", "b"]
    return Choice(tuple(found))


@st.composite
def ranges(draw: Any) -> Range:
    integer, log = draw(st.booleans()), draw(st.booleans())
    numbers = st.integers(1, 10**9) if integer else st.floats(1e-300, 1e300)
    if not log:
        numbers = numbers | (
            st.integers(-(10**9), 0) if integer else st.floats(-1e300, 0, allow_subnormal=False)
        )
    low, high = sorted((draw(numbers), draw(numbers)))
    if low == high:
        low, high = (1, 2) if integer else (1.0, 2.0)
    return Range(low, high, log, integer)


@st.composite
def searches(draw: Any) -> Search:
    keys = draw(st.lists(KEYS, min_size=1, max_size=4, unique=True))
    parent = draw(choices())
    dimensions = [Dimension(keys[0], parent)]
    for key in keys[1:]:
        condition = None
        if draw(st.booleans()):
            condition = Condition(keys[0], tuple(parent.options[: draw(st.integers(1, 2))]))
        dimensions.append(Dimension(key, draw(choices() | ranges()), condition))
    return Search(tuple(dimensions))


@FEW
@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: Any) -> None:
    assert same(read_value(write_value(value)), value)


@FEW
@given(searches())
def test_lines_are_read_as_they_were_written(search: Search) -> None:
    assert read_lines([write_line(d) for d in search.dimensions]) == search


@FEW
@given(searches())
def test_pairs_are_read_as_they_were_written_also_through_yaml_and_json(search: Search) -> None:
    pairs = write_mapping(search)
    assert read_mapping(pairs) == search
    assert read_mapping(yaml.safe_load(yaml.safe_dump(pairs, sort_keys=False))) == search
    assert read_mapping(json.loads(json.dumps(pairs))) == search


@FEW
@given(searches(), st.randoms(use_true_random=False))
def test_a_sample_has_what_applies_and_nothing_else(search: Search, random: Any) -> None:
    def ask(dimension: Dimension) -> Any:
        domain = dimension.domain
        return random.choice(domain.options) if isinstance(domain, Choice) else domain.within

    values = search.sample(ask)
    for dimension in search.dimensions:
        assert (dimension.key in values) == dimension.applies(values)
    assert same(search.sample(lambda d: values[d.key]), values)  # as it is read back


@pytest.mark.parametrize(
    ("line", "domain"),
    [
        ("a=relu|tanh", Choice(("relu", "tanh"))),
        ("a=[64,64]|[256, 256]", Choice(([64, 64], [256, 256]))),
        ("a=1|2.5|true|null", Choice((1, 2.5, True, None))),
        ("a=1_000|1e-4", Choice((1000, 1e-4))),
        ('a="x|y"|z', Choice(("x|y", "z"))),
        ("a=0.9..0.999", Range(0.9, 0.999)),
        ("a=-1..1", Range(-1.0, 1.0)),
        ("a=log:1e-5..1e-2", Range(1e-5, 1e-2, log=True)),
        ("a=int:1..8", Range(1, 8, integer=True)),
        ("a=logint:8..512", Range(8, 512, log=True, integer=True)),
        ("a=int:1e3..2e3", Range(1000, 2000, integer=True)),
    ],
)
def test_a_line_means(line: str, domain: Any) -> None:
    assert read_dimension(line).domain == domain


def test_a_condition_stands_behind_its_line_or_its_key() -> None:
    expected = Dimension("b", Range(0.0, 1.0), Condition("a", ("x", "y")))
    assert read_dimension("b=0..1 if a=x|y") == expected
    assert read_mapping({"b if a=x|y": "0..1", "a": ["x", "y", "z"]}).dimensions[1] == expected


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["a"], "KEY=VALUES"),
        (["=1..2"], "KEY=VALUES"),
        (["a=1"], "leaves nothing to search"),
        (["a="], "leaves nothing to search"),
        (["a=x|x"], "twice"),
        (["a=2..1"], "upside down"),
        (["a=1..1"], "upside down or empty"),
        (["a=log:0..1"], "above 0"),
        (["a=int:1..2.5"], "whole number"),
        (["a=x..y"], "no number"),
        (["a=1..nan"], "not a number"),
        (["a=1|inf"], "not a number"),
        (["a=1..2", "a=3..4"], "twice"),
        (["b=1..2 if a=x"], "not searched"),
        (["a=1..2", "b=1..2 if a=1"], "no choice"),
        (["a=x|y", "b=1..2 if a=z"], "which it is never"),
        (["a=x|y if b=x", "b=x|y if a=x"], "circle"),
        (["a=1..2 if b"], "KEY=OPTION"),
        ([], "nothing to search"),
    ],
)
def test_what_cannot_be_searched_is_one_line(lines: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_lines(lines)
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [5, None, {"low": 1}, True])
def test_a_pair_that_is_no_text_or_list_leaves_nothing_to_search(value: Any) -> None:
    with pytest.raises(ConfigError, match="leaves nothing to search"):
        read_mapping({"a": value})
