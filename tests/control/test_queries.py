"""What a person is told of a run: `why` names what is stuck, and what to do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rookery.control.diagnosis import why
from rookery.control.run_state import RUNNING, RunState, WorkerState
from rookery.messages import JOINED_FROM

STATE = RunState(
    "r",
    {"config": {"actors": {"count": 2}}},
    created_s=1.0,
    desired=RUNNING,
    status="running",
)


class FakeHome:
    """One run that somebody owns, and no bus: nobody has reported anything."""

    def is_owned(self, run: str) -> bool:
        return True

    def read_run_bus(self, state: RunState) -> None:
        return None


def worker(kind: str, index: int, *, running: bool) -> dict[str, WorkerState]:
    return {f"{kind}-{index}": WorkerState(kind, index, 1, pid=1, running=running)}


LEARNER = worker("learner", 0, running=True)


def told(workers: dict[str, WorkerState], **changes: Any) -> tuple[str | None, str]:
    state = msgspec.structs.replace(STATE, workers=workers, **changes)
    found = why(FakeHome(), state)  # type: ignore[arg-type]
    return found.component, found.summary


def test_a_worker_that_is_down_is_named() -> None:
    workers = LEARNER | worker("actor", 0, running=True) | worker("actor", 1, running=False)
    component, summary = told(workers)
    assert component == "actor-1"
    assert summary.startswith("actor-1 is down and will be started again")


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_run_that_was_scaled_to_0_actors_says_so_and_what_to_do(left: int) -> None:
    workers = dict(LEARNER)
    for index in range(left):
        workers |= worker("actor", index, running=False)
    component, summary = told(workers, actors=0)
    assert component == "actors"
    assert "nobody plays: r was scaled to 0 actors" in summary
    assert "rookery scale r --actors 1" in summary


def test_a_learner_that_is_down_comes_before_actors_that_nobody_wants() -> None:
    component, _ = told(worker("learner", 0, running=False), actors=0)
    assert component == "learner-0"


def test_a_run_without_its_learner_says_so_and_what_to_do() -> None:
    workers = worker("learner", 0, running=False) | worker("actor", 0, running=True)
    component, summary = told(workers, learners=0)
    assert component == "learner"
    assert "rookery scale r --learner 1" in summary


def test_an_actor_that_was_scaled_away_is_neither_down_nor_silent() -> None:
    workers = LEARNER | worker("actor", 0, running=True) | worker("actor", 1, running=False)
    component, summary = told(workers, actors=1)
    assert component == "actor-0" and "silent" in summary  # it has not reported, and is wanted


def test_who_joined_on_its_own_plays_for_a_run_of_0_actors() -> None:
    component, summary = told(LEARNER | worker("actor", JOINED_FROM, running=True), actors=0)
    assert component == f"actor-{JOINED_FROM}" and "silent" in summary

    component, summary = told(LEARNER | worker("actor", JOINED_FROM, running=False), actors=0)
    assert component == "actors" and "scaled to 0 actors" in summary
