"""What a person is told of runs, in a line each."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from rookery.config.reading import build
from rookery.control.diagnosis import why
from rookery.control.find import AmbiguousRun, find_run
from rookery.control.home import Home
from rookery.control.queries import make_row, read_runs, status_now, train_result
from rookery.control.run_log import RunLog
from rookery.control.run_state import RUNNING, STOPPED, RunState, apply
from rookery.envs.registry import describe
from rookery.errors import UnknownName
from rookery.messages import (
    CheckpointSaved,
    CommandAccepted,
    CreateRun,
    RunOwned,
    StartRun,
    StopRun,
    WorkerStarted,
)
from tests.server.test_run_rows import training

STATE = RunState(
    "r",
    {"config": {"actors": {"count": 2}}},
    created_s=1.0,
    desired=RUNNING,
    status="running",
)


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
    (row,) = (known.row for known in read_runs(home))
    assert row.status == "stopped" and row.owner == ""
    assert why(home, home.state(run)).summary == f"{run} does not run: stopped"
    home.close()


# --- names of runs, at every door ----------------------------------------------------------------


def test_a_run_is_found_by_its_id_a_unique_prefix_or_last() -> None:
    runs = {"maze-abc": "", "maze": "", "cart-xyz": ""}
    for name, found in (("maze", "maze"), ("maze-", "maze-abc"), ("c", "cart-xyz")):
        assert find_run(name, runs) == found
    assert find_run("last", runs) == "cart-xyz"
    with pytest.raises(AmbiguousRun, match="could be maze-abc, maze; give more letters"):
        find_run("m", runs)
    with pytest.raises(UnknownName, match="did you mean cart-xyz"):
        find_run("cart-xyy", runs)
    with pytest.raises(UnknownName, match="there is none here yet: run `rookery train`"):
        find_run("last", {})


def test_a_run_is_found_by_a_name_that_it_alone_has() -> None:
    runs = {"cart-a": "baseline", "cart-b": "try", "cart-c": "try", "maze": "cart-a", "base-d": ""}
    assert find_run("baseline", runs) == "cart-a"
    assert find_run("cart-a", runs) == "cart-a"  # an id comes first
    with pytest.raises(AmbiguousRun, match="could be cart-b, cart-c"):
        find_run("try", runs)
    assert find_run("base", {**runs, "cart-a": "base"}) == "cart-a"  # and before prefixes


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
    assert [known.row.run for known in read_runs(home)] == order
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


# --- an owner that died --------------------------------------------------------------------------


def test_what_was_trained_since_the_last_checkpoint_does_not_count_when_nobody_trains_on() -> None:
    saved = CheckpointSaved(run="r", name="1.2", env_steps=600, updates=2, mean_return_100=9.0)
    state = apply(STATE, saved)
    assert state is not None
    figures = {
        owner: (row.env_steps, row.updates, row.mean_return_100)
        for owner in ("terminal", "")
        for row in [make_row(state, owner, training(), time.time())]
    }
    assert figures == {"terminal": (1000, 3, 21.5), "": (600, 2, 9.0)}
