"""What a person is told of a run: `why` names what is stuck, and what to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.control.diagnosis import Evidence, diagnose, why
from rookery.control.find import AmbiguousRun, find_run
from rookery.control.home import Home
from rookery.control.queries import make_row, read_rows, status_now, train_result
from rookery.control.run_log import RunLog
from rookery.control.run_state import RUNNING, STOPPED, RunState, WorkerState
from rookery.control.supervision import Silence
from rookery.envs.registry import describe
from rookery.errors import UnknownName
from rookery.messages import (
    JOINED_FROM,
    ActorMetrics,
    CommandAccepted,
    CreateRun,
    RunOwned,
    StartRun,
    StopRun,
    TrainingMetrics,
    WorkerStarted,
)
from rookery.worker.progress import Progress
from tests.server.test_run_rows import training

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

    def config(self, state: RunState) -> RunConfig:
        return build({"environment": {"id": "CartPole-v1"}})

    def owner(self, run: str) -> None:
        return None

    def has_server(self) -> bool:
        return False

    def progress_dir(self, run: str) -> Path:
        return Path("/nowhere")


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


# --- a stop whose owner did not live to see it ---------------------------------------------------


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_run_that_was_asked_to_stop_has_stopped_when_its_owner_died(status: str) -> None:
    state = msgspec.structs.replace(STATE, desired=STOPPED, status=status)
    assert status_now(state, owned=True) == status
    assert status_now(state, owned=False) == "stopped"
    assert status_now(msgspec.structs.replace(state, desired=RUNNING), owned=False) == "interrupted"
    for ended in ("created", "solved", "failed"):
        assert status_now(msgspec.structs.replace(state, status=ended), owned=False) == ended


def test_it_is_listed_and_explained_as_stopped(tmp_path: Path) -> None:
    home = Home(tmp_path)
    config = build({"environment": {"id": "CartPole-v1"}})
    run = home.create(config, describe("CartPole-v1"), "ann")
    start, stop = StartRun(run=run), StopRun(run=run)
    home.send(start, stop)
    (created,) = home.state(run).commands.keys() - {start.id, stop.id}
    home.record(
        CommandAccepted(run=run, command=created),
        CommandAccepted(run=run, command=start.id),
        RunOwned(run=run, pid=1, by="terminal"),
        WorkerStarted(run=run, kind="learner", index=0, incarnation=1, pid=1),
        CommandAccepted(run=run, command=stop.id),
    )
    assert home.state(run).status == "running" and home.state(run).desired == STOPPED
    (row,) = read_rows(home)
    assert row.status == "stopped" and row.owner == ""
    assert why(home, home.state(run)).summary == f"{run} does not run: stopped"
    home.close()


# --- names of runs, at every door ----------------------------------------------------------------


def test_a_run_is_found_by_its_id_a_unique_prefix_or_last() -> None:
    runs = ["maze-abc", "maze", "cart-xyz"]
    for name, found in (("maze", "maze"), ("maze-", "maze-abc"), ("c", "cart-xyz")):
        assert find_run(name, runs) == found
    assert find_run("last", runs) == "cart-xyz"
    with pytest.raises(AmbiguousRun, match="could be maze-abc, maze; give more letters"):
        find_run("m", runs)
    with pytest.raises(UnknownName, match="did you mean cart-xyz"):
        find_run("cart-xyy", runs)
    with pytest.raises(UnknownName, match="there is none here yet: run `rookery train`"):
        find_run("last", [])


# --- clocks that jump ----------------------------------------------------------------------------

HOURS_S = 5 * 3600.0


def create_at(home: Home, run: str, time_s: float) -> None:
    content = {"config": {"environment": {"id": "CartPole-v1"}}, "spec": {}}
    home.send(CreateRun(run=run, config=content, time_s=time_s))


@pytest.mark.parametrize("jump_s", [-HOURS_S, HOURS_S])
def test_the_last_run_is_the_one_created_last_whatever_the_clock_said(
    tmp_path: Path, jump_s: float
) -> None:
    home, now_s = Home(tmp_path), time.time()
    for number, time_s in enumerate((now_s, now_s + jump_s, now_s + jump_s / 2, now_s)):
        create_at(home, f"run-{number}", time_s)
        assert home.find("last") == f"run-{number}"
    order = [f"run-{number}" for number in range(4)]
    assert [row.run for row in read_rows(home)] == order
    log = RunLog(home)
    log.read()
    log.save()  # for whoever comes later
    again = Home(tmp_path)
    assert again.find("last") == "run-3" and list(again.states()) == order
    create_at(again, "run-4", now_s - 2 * HOURS_S)
    assert again.find("last") == "run-4"
    home.close()
    again.close()


def test_a_state_that_an_older_rookery_saved_is_older_than_any_that_came_since() -> None:
    older = [RunState(id, {}, created_s) for id, created_s in (("a", 9e9), ("b", 1.0))]
    newer = [RunState(id, {}, 5.0, offset=offset) for id, offset in (("c", 7), ("d", 30))]
    found = sorted([*newer, *older], key=lambda state: state.age)
    assert [state.id for state in found] == ["b", "a", "c", "d"]


@pytest.mark.parametrize("jump_s", [-HOURS_S, HOURS_S])
def test_how_long_it_took_does_not_depend_on_the_clock(
    jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, real = time.monotonic(), time.time
    row = make_row(STATE, "terminal", None, time.time())
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    assert 0 <= train_result(row, 1, None, began)["wall_s"] < 60


@pytest.mark.parametrize("jump_s", [-HOURS_S, HOURS_S])
def test_a_speed_from_before_a_jump_is_not_taken_for_the_present_one(jump_s: float) -> None:
    said = training(time_s=1e9, recent_steps_per_s=100.0)
    assert make_row(STATE, "terminal", said, 1e9 + 1).steps_per_s == 100.0
    assert make_row(STATE, "terminal", said, 1e9 + jump_s).steps_per_s is None


# --- every cause has a name ----------------------------------------------------------------------

WORKERS = LEARNER | worker("actor", 0, running=True) | worker("actor", 1, running=True)
PLAYING = Progress(9, "step", since=0.0, beat=0.0, pid=77)


def evidence(**changes: Any) -> Evidence:
    """A run that trains, and what is different about it."""
    now = time.time()
    found = Evidence(
        state=msgspec.structs.replace(STATE, workers=WORKERS, owned_by="terminal"),
        status="running",
        metrics=training(time_s=now),
        actors={},
        progress={"actor-1": PLAYING},
        silent={},
        owner=None,
        owner_pid=5,
        silent_s=15.0,
        trouble=None,
        has_server=False,
        now=now,
    )
    return found._replace(**changes)


def said_by_actor(doing: str) -> ActorMetrics:
    counts = {"fragments": 1, "agent_steps": 1, "steps_per_s": 0.0, "waiting_share": 1.0}
    return ActorMetrics(run="r", actor="1.1", doing=doing, **counts)  # type: ignore[arg-type]


FROZEN = Silence("frozen", 9.0, False)
IDLE = {"recent_steps_per_s": 0.0}


@pytest.mark.parametrize(
    ("changes", "component", "words"),
    [
        ({}, None, "nothing is stuck: r trains at 500 steps/s"),
        ({"silent": {"actor-1": FROZEN}}, "actor-1", "actor-1 is frozen for 9 s (pid 77): it is"),
        ({"owner": FROZEN}, "owner", "frozen for 9 s (pid 5): workers go on, and are not replaced"),
        ({"owner": FROZEN}, "owner", "kill -CONT 5, or take over with rookery resume r"),
        ({"trouble": "no broker of x answers since 3 s"}, "bus", "waiting for the bus: no broker"),
        ({"status": "queued", "has_server": True}, "cpus", "r waits for CPUs that other runs have"),
        ({"metrics": training(late=("1.1",))}, "actor-1", "actor-1 delivered too late"),
        (
            {"metrics": training(**IDLE), "actors": {"actor-1": said_by_actor("full bus")}},
            "actor-1",
            "actor-1 waits for room: the bus is full",
        ),
        ({"metrics": training(**IDLE)}, "actors", "the learner waits for experience"),
        ({"metrics": None}, "actor-1", "actor-1 is silent: it is inside step of its environment"),
    ],
)
def test_every_cause_is_named(changes: dict[str, Any], component: str | None, words: str) -> None:
    fresh = dict(changes)
    if isinstance(fresh.get("metrics"), TrainingMetrics):
        fresh["metrics"] = msgspec.structs.replace(fresh["metrics"], time_s=time.time())
    found = diagnose(evidence(**fresh))
    assert found.component == component and words in found.summary
