"""A set of ids that grows: the same as a frozenset of them, without its price."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from rookery.control.answered import Answered

ids = st.sampled_from("abcdefgh")


@given(st.lists(st.tuples(st.integers(0, 30), ids)))
def test_any_of_them_may_grow_and_none_changes(steps: list[tuple[int, str]]) -> None:
    grown: list[tuple[Answered, frozenset[str]]] = [(Answered(), frozenset())]
    for place, id in steps:
        found, plain = grown[place % len(grown)]
        grown.append((found.plus(id), plain | {id}))
    for found, plain in grown:
        assert found == plain and plain == found and len(found) == len(plain)
        assert {id for id in "abcdefgh" if id in found} == set(found) == plain


def test_it_is_made_of_any_ids() -> None:
    assert Answered(["b", "a", "b"]) == {"a", "b"} and list(Answered(["b", "a", "b"])) == ["b", "a"]
    assert Answered(["a"]) | {"b"} == {"a", "b"} and Answered() != {"a"} and 5 not in Answered("a")


def test_growing_copies_nothing() -> None:
    found = Answered()
    for number in range(20_000):  # copied each time they would be 200 million ids
        found = found.plus(str(number))
    assert len(found) == 20_000 and "19999" in found and "20000" not in found
    assert sys.getsizeof(found) < 100
