"""How many CPUs a run counts for, in the queue and in a sweep."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.config.reading import build
from rookery.control.queue import cost, cpus_of
from rookery.control.run_state import RunState
from rookery.tuning.carrier import run_cost

PLACED = {"placement": {"learner": {"cpus": 4}, "actor": {"cpus": 0.5}}}


@pytest.mark.parametrize(
    ("asked", "cpus"),
    [
        ({"launcher": "inline"}, 1),
        ({"actors": {"count": 3}}, 4),
        ({"actors": {"count": 3}, **PLACED}, 4),  # placement is for clusters
        ({"actors": {"count": 3}, "launcher": "ray"}, 4),
        ({"actors": {"count": 3}, "launcher": "ray", **PLACED}, 6),
    ],
)
def test_a_run_counts_for_what_its_workers_reserve(asked: dict[str, Any], cpus: int) -> None:
    config = build({"environment": {"id": "CartPole-v1"}}, asked)
    assert run_cost(config) == cpus
    state = RunState(
        id="r", created_s=0.0, config={"config": config.model_dump(mode="json")}, desired="running"
    )
    assert cost(state) == cpus


def test_scaling_counts_at_once() -> None:
    config = build({"environment": {"id": "CartPole-v1"}, "launcher": "ray", **PLACED})
    assert cpus_of(config.model_dump(), learners=1, actors=9) == 9
