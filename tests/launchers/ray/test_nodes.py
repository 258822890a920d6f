"""What a worker waits for without a place, by what Ray says of its nodes; who can be reached."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.launchers.ray.nodes import reaches, wanted
from rookery.launchers.ray.words import Order


def order(**asked: Any) -> Order:
    return Order("actor-0.1", "actor", 0, 1, b"", **asked)


def node(alive: bool = True, labels: dict[str, str] | None = None, **has: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": has, "Labels": labels or {}}


NODES = [
    node(CPU=4.0, GPU=1.0, labels={"zone": "a"}),
    node(CPU=8.0, labels={"zone": "b"}),
    node(CPU=64.0, GPU=8.0, big=1.0, alive=False),
]
ALL_FREE = {"CPU": 12.0, "GPU": 1.0}


@pytest.mark.parametrize(
    ("asked", "free", "said"),
    [
        ({"cpus": 9}, ALL_FREE, "a node with 9 CPUs: the largest of 2 has 8 CPUs in all"),
        ({"gpus": 2}, ALL_FREE, "1 CPU and 2 GPUs: the largest of 2 has 1 GPU in all"),
        ({"resources": {"big": 1.0}}, ALL_FREE, "1 big: the largest of 2 has 0 big in all"),
        ({"labels": {"zone": "c"}}, ALL_FREE, "zone=c: none of 2 nodes has zone=c"),
        ({"cpus": 8, "gpus": 1}, ALL_FREE, "none of 2 nodes has all of that"),
        ({"gpus": 1, "labels": {"zone": "b"}}, ALL_FREE, "none of 2 nodes has all of that"),
        ({"cpus": 1}, {}, "a node with 1 CPU: none is free; the cluster has 12 CPUs on 2 nodes"),
        ({"gpus": 1}, {"CPU": 9.0}, "1 GPU: none is free; the cluster has 1 GPU on 2 nodes"),
        ({"cpus": 2}, {"CPU": 1.5}, "2 CPUs: none is free"),
        ({"cpus": 1}, ALL_FREE, "its process on a node with 1 CPU: where there is room"),
        ({"labels": {"zone": "in(a, c)"}}, ALL_FREE, "zone=in(a, c): where there is room"),
        ({"labels": {"zone": "!b"}}, ALL_FREE, "zone=!b: where there is room"),
    ],
)
def test_what_is_waited_for_is_what_there_is_not(
    asked: dict[str, Any], free: dict[str, float], said: str
) -> None:
    assert said in wanted(order(**asked), NODES, free)


def test_without_a_node_nothing_is_free() -> None:
    assert wanted(order(), [], {}) == "a node with 1 CPU: the largest of 0 has 0 CPUs in all"


counts = st.fixed_dictionaries({name: st.integers(0, 4).map(float) for name in ("CPU", "GPU", "x")})


@given(counts, st.lists(st.tuples(counts, counts), min_size=1, max_size=4))
def test_room_is_promised_only_where_there_may_be_and_denied_only_where_there_is_none(
    asked: dict[str, float], nodes: list[tuple[dict[str, float], dict[str, float]]]
) -> None:
    """Each node has so much, of which so much is taken."""
    found = [node(**has) for has, _ in nodes]
    left = [{n: max(0.0, has[n] - taken[n]) for n in has} for has, taken in nodes]
    free = {n: sum(each[n] for each in left) for n in asked}
    said = wanted(
        order(cpus=asked["CPU"], gpus=asked["GPU"], resources={"x": asked["x"]}),
        found,
        {n: count for n, count in free.items() if count},
    )

    def some(holds: list[dict[str, float]]) -> bool:
        return any(all(has[n] >= asked[n] for n in asked) for has in holds)

    if not some([has for has, _ in nodes]):
        assert "in all" in said or "has all of that" in said
    elif some(left):
        assert "where there is room" in said
    else:
        assert "none is free" in said or "where there is room" in said
    assert ("where there is room" in said) <= all(free[n] >= asked[n] for n in asked)


def test_a_node_is_reached_where_its_raylet_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = {"NodeManagerAddress": "127.0.0.1", "NodeManagerPort": listening.getsockname()[1]}
        monkeypatch.setattr("ray.nodes", lambda: [{"NodeID": "a", **place}])
        assert reaches("a") and not reaches("b")
    assert not reaches("a")
