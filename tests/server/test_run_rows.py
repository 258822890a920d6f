"""A row is made anew when something that it shows has changed, and only then."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from rookery.config.reading import build
from rookery.control.queries import STALE_S
from rookery.control.run_state import RunState, WorkerState
from rookery.messages import LedgerSummary, TrainingMetrics
from rookery.server.run_rows import Rows

CONFIG = build({"environment": {"id": "CartPole-v1"}}).model_dump(mode="json")
STATE = RunState(
    "a-run",
    {"config": CONFIG, "spec": {}},
    1.0,
    desired="running",
    status="running",
    workers={
        "actor-0": WorkerState("actor", 0, 1, running=True),
        "actor-1": WorkerState("actor", 1, 1, running=False),
        "learner-0": WorkerState("learner", 0, 1, running=True),
    },
)


def training(**changes: Any) -> TrainingMetrics:
    ledger = LedgerSummary(trained=10, dropped={}, pending=0, position=(), seen={})
    values: dict[str, Any] = {
        "run": "a-run",
        "policy": "main",
        "generation": 1,
        "updates": 3,
        "env_steps": 1000,
        "train_s": 1.0,
        "steps_per_s": 400.0,
        "recent_steps_per_s": 500.0,
        "episodes": 7,
        "mean_return_100": 21.5,
        "mean_length_100": 21.5,
        "lag_mean": 0.5,
        "lag_max": 1,
        "ledger": ledger,
        "values": {},
    }
    return TrainingMetrics(**(values | changes))


class FakeFollower:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.who, self.said, self.frozen = "server", training(), False

    def owner(self, run: str) -> str:
        return self.who

    def owner_frozen(self, run: str) -> bool:
        return self.frozen

    def training(self, run: str) -> TrainingMetrics:
        return self.said


def made() -> tuple[FakeFollower, Rows]:
    follower = FakeFollower()
    return follower, Rows(follower)  # type: ignore[arg-type]


def test_a_row_shows_the_newest_metrics() -> None:
    _, rows = made()
    row = rows.of(STATE)
    assert (row.status, row.env_steps, row.mean_return_100) == ("running", 1000, 21.5)
    assert (row.steps_per_s, row.actors, row.actors_wanted) == (500.0, 1, 1)
    assert type(row).model_validate(row.model_dump()) == row


def test_a_row_stands_while_nothing_changes() -> None:
    _, rows = made()
    assert rows.of(STATE) is rows.of(STATE)


def test_a_row_follows_what_changes() -> None:
    follower, rows = made()
    rows.of(STATE)
    follower.said = training(env_steps=2000)
    assert rows.of(STATE).env_steps == 2000
    follower.who = ""
    row = rows.of(STATE)
    assert (row.status, row.owner, row.actors, row.steps_per_s) == ("interrupted", "", 0, None)
    ended = msgspec.structs.replace(STATE, status="solved", desired="stopped", reason="enough")
    assert rows.of(ended).status == "solved"


def test_a_speed_of_long_ago_is_not_shown() -> None:
    follower, rows = made()
    follower.said = training(time_s=time.time() - STALE_S + 0.05)
    assert rows.of(STATE).steps_per_s == 500.0
    deadline = time.monotonic() + 10
    while rows.of(STATE).steps_per_s is not None:
        assert time.monotonic() < deadline
    follower.said = training(time_s=time.time() - STALE_S - 1)
    assert rows.of(STATE).steps_per_s is None


def test_a_run_that_nobody_checked_yet_has_a_row_too() -> None:
    _, rows = made()
    assert rows.of(RunState("odd", {"config": 3}, 1.0)).environment == ""
    assert rows.of(RunState("odder", {}, 1.0)).algorithm == ""


def test_rows_of_runs_that_are_gone_are_forgotten() -> None:
    _, rows = made()
    states = [msgspec.structs.replace(STATE, id=f"run-{i}") for i in range(200)]
    for state in states:
        rows.of(state)
    rows.keep(states[:3])
    assert len(rows._made) == 3
