"""One query finds, sorts and groups runs, whichever door it comes by."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.config.reading import build
from rookery.control.known_run import KnownRun
from rookery.control.queries import make_row
from rookery.control.run_query import MOST_WORDS, find_runs, run_query
from rookery.control.run_state import RunState
from rookery.errors import ConfigError, InputError, UnknownName


def a_run(id: str, environment: str = "CartPole-v1", seed: int = 0, **changes: Any) -> KnownRun:
    config = build({"environment": {"id": environment}, "seed": seed}).model_dump(mode="json")
    state = RunState(id, {"config": config}, 0.0, **changes)
    return KnownRun(state, lambda state: make_row(state, "", None, 0.0))


RUNS = [  # oldest first
    a_run("cart-a", seed=3, status="finished", mean_return_100=480.0, updates=1),
    a_run("cart-b", seed=1, name="Baseline lr=3", tags=["nightly", "good"], actors=4),
    a_run("lake-c", "FrozenLake-v1", seed=2, tags=["nightly"], notes="Slippery ice"),
    a_run("cart-d", seed=10, mean_return_100=-5.0, hyperparameters={"algorithm.gamma": 0.5}),
]


def found(**asked: str) -> list[str]:
    query = run_query(**asked)
    return [row.run for row in find_runs(query, RUNS).part(query, 0, None)]


@pytest.mark.parametrize(
    ("search", "runs"),
    [
        ("", ["cart-d", "lake-c", "cart-b", "cart-a"]),
        ("baseline", ["cart-b"]),
        ("NIGHTLY frozen", ["lake-c"]),
        ("ice", ["lake-c"]),  # in the notes
        ("finished", ["cart-a"]),
        ("seed=1", ["cart-b"]),
        ("seed!=1 cart", ["cart-d", "cart-a"]),
        ("seed>=2 seed<10", ["lake-c", "cart-a"]),
        ("return>400", ["cart-a"]),
        ("return<0", ["cart-d"]),  # those without one are neither more nor less
        ("tag=good", ["cart-b"]),
        ("environment.id=frozenlake-v1", ["lake-c"]),
        ("gamma=0.5", ["cart-d"]),  # as it was changed
        ("actors.count=4", ["cart-b"]),
        ("stop.minutes=none seed=3", ["cart-a"]),
        ("lr=3", ["cart-b"]),  # no key, and so a word
        ("seed>word", []),
        ("nobody=1", []),
    ],
)
def test_a_search_is_of_words_and_of_tests(search: str, runs: list[str]) -> None:
    assert found(search=search) == runs


def test_filters_are_exact() -> None:
    assert found(status="finished") == ["cart-a"]
    assert found(environment="FrozenLake-v1") == ["lake-c"]
    assert found(tag="nightly") == ["lake-c", "cart-b"]
    assert found(tag="night") == []


@pytest.mark.parametrize(
    ("sort", "order", "runs"),
    [
        ("created", "asc", ["cart-a", "cart-b", "lake-c", "cart-d"]),
        ("seed", "", ["cart-d", "cart-a", "lake-c", "cart-b"]),
        ("seed", "asc", ["cart-b", "lake-c", "cart-a", "cart-d"]),
        ("return", "", ["cart-a", "cart-d", "lake-c", "cart-b"]),
        ("return", "asc", ["cart-d", "cart-a", "lake-c", "cart-b"]),  # without one: last
        ("environment", "", ["cart-d", "cart-b", "cart-a", "lake-c"]),  # words from a
        ("environment", "desc", ["lake-c", "cart-d", "cart-b", "cart-a"]),
        ("name", "", ["cart-b", "cart-d", "lake-c", "cart-a"]),
        ("stop.minutes", "", ["cart-d", "lake-c", "cart-b", "cart-a"]),  # which nobody has set
    ],
)
def test_any_column_and_config_key_sorts(sort: str, order: str, runs: list[str]) -> None:
    assert found(sort=sort, order=order) == runs


def test_runs_stand_under_each_of_their_tags_and_count_once() -> None:
    query = run_query(group="tag", sort="seed")
    answer = find_runs(query, RUNS)
    rows = [(row.under, row.run) for row in answer.part(query, 0, None)]
    assert rows == [
        ("good", "cart-b"),
        ("nightly", "lake-c"),
        ("nightly", "cart-b"),
        ("none", "cart-d"),
        ("none", "cart-a"),
    ]
    counts = {group.group: group.runs for group in answer.groups}
    assert (answer.total, counts) == (4, {"good": 1, "nightly": 2, "none": 2})


def test_groups_of_a_config_key_are_in_its_order() -> None:
    query = run_query(group="seed", search="cart")
    assert [group.group for group in find_runs(query, RUNS).groups] == ["1", "3", "10"]


def test_columns_are_told_as_they_are_now() -> None:
    query = run_query(columns="seed, algorithm.gamma,stop.minutes,seed", search="cart-d")
    (row,) = find_runs(query, RUNS).part(query, 0, None)
    assert row.config == {"seed": 10, "algorithm.gamma": 0.5, "stop.minutes": None}


@pytest.mark.parametrize("where", ["sort", "group", "columns"])
def test_a_key_that_no_run_has_is_refused_with_the_nearest(where: str) -> None:
    with pytest.raises(UnknownName, match="did you mean return"):
        found(**{where: "retrun"})
    assert find_runs(run_query(**{where: "retrun"}), []).total == 0  # nobody knows yet


def test_a_query_is_bounded() -> None:
    with pytest.raises(ConfigError, match="status: input should be"):
        run_query(status="nope")
    with pytest.raises(InputError, match="leave some out"):
        found(search="a " * (MOST_WORDS + 1))
    with pytest.raises(InputError, match="columns: at most"):
        found(columns=",".join(f"k{n}" for n in range(MOST_WORDS + 1)))
