"""How far a run goes: what a new bound replaces, and when one is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rookery.client.local import LocalClient, LocalRun
from rookery.config.reading import build
from rookery.control.bounds import stop_after, stop_now, twice, why_not_further
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.errors import ConfigError, Rejected
from rookery.messages import LearnerOrders, ResumeRun, RunEnded, StartRun, decode_json, encode_json

STOP = {"until_return": 475.0, "steps": 1000, "minutes": 5.0}


def state_of(status: str, env_steps: int = 1000, **changes: Any) -> RunState:
    content = {"config": {"stop": STOP}}
    return RunState("r", content, 0.0, status=status, env_steps=env_steps, **changes)


def refused(state: RunState, **bounds: Any) -> str | None:
    return why_not_further(state, ResumeRun(run="r", **bounds))


@pytest.mark.parametrize(
    ("status", "env_steps", "asked", "expected"),
    [
        ("limited", 1000, {"steps": 2000}, {"until_return": 475.0, "steps": 2000, "minutes": 5.0}),
        ("limited", 900, {"steps": 2000}, {"until_return": 475.0, "steps": 2000}),
        ("limited", 1000, {"minutes": 9.0}, {"until_return": 475.0, "minutes": 9.0}),
        ("solved", 700, {"steps": 2000}, {"steps": 2000, "minutes": 5.0}),
        ("solved", 700, {"until_return": 490.0}, {**STOP, "until_return": 490.0}),
        ("stopped", 700, {"steps": 2000}, {**STOP, "steps": 2000}),
        ("limited", 1000, {}, STOP),
    ],
)
def test_a_new_bound_stands_beside_those_that_have_not_ended_the_run(
    status: str, env_steps: int, asked: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert stop_after(state_of(status, env_steps), asked) == expected


def test_bounds_of_before_are_those_that_were_named_last() -> None:
    state = state_of("limited", 2000, stop={"until_return": 475.0, "steps": 2000})
    assert stop_now(state)["steps"] == 2000
    assert stop_after(state, {"steps": 3000}) == {"until_return": 475.0, "steps": 3000}


@pytest.mark.parametrize("status", ["solved", "finished", "limited"])
def test_a_run_that_reached_its_bound_needs_another(status: str) -> None:
    state = state_of(status, reason="so it was")
    for command in (StartRun(run="r"), ResumeRun(run="r")):
        why = why_not_further(state, command)
        assert why is not None and status in why and "so it was" in why and "steps=2000" in why
    assert refused(state, steps=2000) is None


@pytest.mark.parametrize("status", ["created", "stopped", "failed", "paused", "running"])
def test_any_other_goes_on_as_it_is(status: str) -> None:
    assert refused(state_of(status)) is None


def test_a_bound_that_lies_behind_is_refused() -> None:
    assert "1,000 steps already" in (refused(state_of("stopped"), steps=1000) or "")
    assert "5 minutes already" in (refused(state_of("limited", 900), minutes=4.0) or "")
    solved = state_of("solved", 700, mean_return_100=480.0)
    assert "480.0 already" in (refused(solved, until_return=475.0) or "")
    assert refused(solved, until_return=490.0) is None


@pytest.mark.parametrize("status", ["finished", "limited", "solved", "stopped"])
def test_a_bound_that_lies_behind_is_refused_whatever_ended_the_run(status: str) -> None:
    state = state_of(status, mean_return_100=480.0, train_s=90.0)
    assert "480.0 already" in (refused(state, until_return=475.0) or "")
    assert "1.5 minutes already" in (refused(state, minutes=1.5) or "")
    assert refused(state, until_return=490.0, minutes=6.0) is None


def test_what_a_run_came_to_before_says_nothing_while_it_runs() -> None:
    state = state_of("running", mean_return_100=480.0, train_s=90.0)
    assert refused(state, until_return=475.0) is None and refused(state, minutes=1.0) is None


@pytest.mark.parametrize(("steps", "more"), [(0, 1000), (1000, 2000), (123_456, 250_000)])
def test_what_is_suggested_is_a_round_number_beyond(steps: int, more: int) -> None:
    assert twice(steps) == more


def test_orders_of_before_had_no_bounds() -> None:
    orders = LearnerOrders(revision=1, paused=False, hyperparameters={}, checkpoints=0)
    older = encode_json(orders).replace(b'"stop":null', b'"revision":1')
    assert decode_json(older, LearnerOrders).stop is None


# --- at the doors --------------------------------------------------------------------------------


@pytest.fixture
def limited(tmp_path: Path) -> LocalRun:
    stop = {"until_return": 475, "steps": 1000}
    client = LocalClient(Home(tmp_path))
    run = client.submit({"environment": {"id": "CartPole-v1"}, "stop": stop})
    ended = RunEnded(run=run.id, status="limited", reason="1,000 steps came", env_steps=1000)
    client.home.record(ended)
    return run


def test_a_limited_run_is_resumed_with_more_steps_and_not_without(limited: LocalRun) -> None:
    for act in (limited.resume, limited.start):
        assert "steps=2000" in act(dry_run=True).why
        with pytest.raises(Rejected, match="steps=2000"):
            act()
    assert limited.detail().status == "limited", "nothing of it stands in the log"
    answer = limited.resume(steps=2000, reason="not yet there")
    assert answer.outcome == "accepted" and answer.effect.endswith("up to 2,000 steps")
    assert limited.detail().status == "queued"
    assert limited.config()["stop"] == {"until_return": 475, "steps": 2000, "minutes": None}
    assert limited.audit()[-1].data["steps"] == 2000


def test_bounds_that_the_config_does_not_take_are_refused(tmp_path: Path) -> None:
    config = build(
        {"environment": {"id": "CartPole-v1"}, "stop": {"steps": 1000}},
        {"algorithm": {"schedule": "linear"}},
    )
    with LocalClient(Home(tmp_path)) as client:
        run = client.submit(config)
        client.home.record(RunEnded(run=run.id, status="finished", reason="done", env_steps=1000))
        with pytest.raises(ConfigError, match="linear"):
            run.resume(until_return=475)
        assert run.resume(steps=3000).outcome == "accepted"
