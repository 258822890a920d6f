"""What a server carries: whom it takes up, whom it leaves alone, and who has to wait."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rookery.bus import Outgoing
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.control.controller import Controller
from rookery.control.details import read_detail
from rookery.control.diagnosis import why
from rookery.control.fleet import Fleet
from rookery.control.home import Home
from rookery.control.lease import SERVER, SERVER_PLACE, take_lock
from rookery.control.queue import cpus_wanted, waits_for
from rookery.control.run_log import RunLog
from rookery.control.run_state import RunState
from rookery.envs.registry import describe
from rookery.launchers import Observed, WorkerSpec
from rookery.messages import (
    EXPERIENCES,
    CheckpointSaved,
    Command,
    CreateRun,
    DeleteRun,
    PauseRun,
    ResumeRun,
    RunEnded,
    RunOwned,
    ScaleActors,
    StartRun,
    StopRun,
    WorkerStarted,
)


class PretendLauncher:
    """Says that workers live as long as they are wanted: a fake for who gets to run, and when."""

    def __init__(self) -> None:
        self.living: dict[str, WorkerSpec] = {}
        self._ended: dict[str, Observed] = {}
        self.closed = False

    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        for name in self.living.keys() - specs.keys():
            self.die(name, 0)
        self.living.update(specs)

    def die(self, name: str, code: int) -> None:
        del self.living[name]
        self._ended[name] = Observed(1, code)

    def observe(self) -> dict[str, Observed]:
        ended, self._ended = self._ended, {}
        return {name: Observed(1, None) for name in self.living} | ended

    def work(self, seconds: float) -> None:
        raise AssertionError("a fleet does not wait for one run")

    def close(self) -> None:
        self.closed = True


class Yard:
    """A home, a fleet and its pretended workers."""

    def __init__(self, path: Path, cpus: int = 2) -> None:
        self.home = Home(path)
        self.cpus = cpus
        self.launchers: dict[str, PretendLauncher] = {}
        self.fleet = self.new_fleet()
        self.log = RunLog(self.home)
        self._spec = describe("CartPole-v1", {})

    def new_fleet(self) -> Fleet:
        """As after a start of the server."""

        def launcher(run: str, config: RunConfig) -> PretendLauncher:
            return self.launchers.setdefault(run, PretendLauncher())

        self.launchers.clear()
        return Fleet(self.home, lambda: self.cpus, launcher)

    def die(self) -> None:
        """As `kill -9` and a restart: the system gives back the locks, nobody says a word."""
        for controller, lease in self.fleet._carried.values():
            lease.close()
            controller.close()
        self.fleet = self.new_fleet()

    def create(self, start: bool = True, **layer: object) -> str:
        config = build({"environment": {"id": "CartPole-v1"}}, layer)
        run = self.home.create(config, self._spec, "ann")
        if start:
            self.send(StartRun(run=run))
        return run

    def send(self, *commands: Command) -> None:
        self.home.send(*commands)

    def step(self, times: int = 3) -> None:
        for _ in range(times):
            self.fleet.step()
        self.log.read()

    def state(self, run: str) -> RunState:
        return self.log.states[run]

    def statuses(self) -> list[str]:
        return [state.status for state in self.log.states.values()]

    def workers(self, run: str) -> list[str]:
        return sorted(self.launchers[run].living) if run in self.launchers else []


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[Yard]:
    made = Yard(tmp_path / "runs")
    yield made
    made.fleet.leave()
    made.home.close()


def test_a_run_that_is_started_gets_its_workers(yard: Yard) -> None:
    run = yard.create()
    yard.step()
    assert yard.state(run).status == "running"
    assert yard.state(run).owned_by == "server"
    assert yard.workers(run) == ["actor-0.1", "learner-0.1"]
    assert yard.home.is_owned(run)


def test_a_run_that_was_only_created_is_answered_and_left_alone(yard: Yard) -> None:
    run = yard.create(start=False)
    yard.step()
    assert yard.state(run).status == "created" and not yard.state(run).commands
    assert not yard.home.is_owned(run)


def test_runs_wait_for_cpus_in_the_order_in_which_they_were_asked_for(yard: Yard) -> None:
    first, second, third = yard.create(), yard.create(), yard.create()
    yard.step()
    assert yard.statuses() == ["running", "queued", "queued"]
    assert yard.fleet.queue == [second, third]
    yard.send(StopRun(run=first))
    yard.step()
    assert yard.statuses() == ["stopped", "running", "queued"]
    assert yard.fleet.queue == [third]


def test_a_run_in_the_queue_says_for_what_it_waits(yard: Yard) -> None:
    first, second = yard.create(), yard.create()
    yard.step()
    state = yard.state(second)
    assert waits_for(yard.home, state).startswith("a server: rookery serve, or here: rookery")
    lock = take_lock(yard.home.path / SERVER)
    assert lock is not None
    with lock:
        (yard.home.path / SERVER_PLACE).write_text('{"cpus": 2}')
        wanted = f"2 CPUs: {first} has 2 of 2"
        assert waits_for(yard.home, state) == wanted == read_detail(yard.home, state).waits_for
        assert why(yard.home, state).summary.startswith(f"{second} waits for {wanted}. Stop one")
        (yard.home.path / SERVER_PLACE).write_text('{"cpus": 4}')
        assert waits_for(yard.home, state) == ""  # there is room: its server is about to start it


def test_of_many_runs_those_that_have_most_are_named() -> None:
    def run(id: str, actors: int) -> RunState:
        return RunState(id, {"config": {"actors": {"count": actors}}}, 1.0, status="running")

    carried = [run("a", 1), run("b", 3), run("c", 1), run("d", 2)]
    found = cpus_wanted(run("e", 2), carried, 11)
    assert found == "3 CPUs: b has 4, d has 3, a has 2, others have 2 of 11"


def test_a_run_larger_than_the_budget_runs_alone(yard: Yard) -> None:
    large = yard.create(actors={"count": 5})
    small = yard.create()
    yard.step()
    assert len(yard.workers(large)) == 6
    assert yard.fleet.queue == [small]


def test_a_paused_run_gives_its_cpus_away_and_goes_on_at_once(yard: Yard) -> None:
    first, second = yard.create(), yard.create()
    yard.step()
    yard.send(PauseRun(run=first))
    yard.step()
    assert yard.statuses() == ["paused", "running"]
    assert yard.workers(first) == ["actor-0.1", "learner-0.1"], "they stay in memory"
    yard.send(ResumeRun(run=first))
    yard.step()
    assert yard.statuses() == ["running", "running"]
    assert second not in yard.fleet.queue


def test_a_queued_run_answers_commands_and_can_be_stopped(yard: Yard) -> None:
    yard.create()
    second = yard.create()
    yard.step()
    yard.send(ScaleActors(run=second, count=3), StopRun(run=second))
    yard.step()
    assert yard.state(second).status == "stopped" and yard.state(second).actors == 3
    assert not yard.home.is_owned(second) and yard.fleet.queue == []


def test_scaling_matches_the_workers(yard: Yard) -> None:
    run = yard.create()
    for count in (4, 0, 2):
        yard.send(ScaleActors(run=run, count=count))
        yard.step(5)
        actors = [name for name in yard.workers(run) if name.startswith("actor")]
        assert len(actors) == count


def test_a_deleted_run_leaves_no_file(yard: Yard) -> None:
    run = yard.create()
    yard.step()
    yard.send(DeleteRun(run=run))
    yard.step()
    assert yard.state(run).status == "running", "a run that runs is not deleted"
    yard.send(StopRun(run=run))
    yard.step()
    yard.send(DeleteRun(run=run))
    yard.step()
    assert yard.state(run).desired == "deleted" and not yard.home.run_dir(run).exists()


def test_what_a_server_carried_when_it_died_the_next_one_takes_up(yard: Yard) -> None:
    run = yard.create()
    queued = yard.create()
    paused = yard.create()
    yard.step()
    yard.send(PauseRun(run=paused))
    yard.step()
    yard.die()
    yard.step()
    assert yard.state(run).status == "running"
    assert yard.workers(run) == ["actor-0.2", "learner-0.2"], "new incarnations, no double"
    assert yard.fleet.queue == [queued]
    assert yard.state(paused).status == "paused" and yard.workers(paused) == []


def test_a_run_of_a_terminal_is_left_to_it(yard: Yard) -> None:
    run = yard.create(start=False)
    yard.step()
    with yard.home.lease(run) as mine:
        assert mine
        log = RunLog(yard.home, run)
        log.read()
        yard.send(StartRun(run=run))
        log.read()
        log.answer(run)
        yard.home.record(RunOwned(run=run, pid=1, by="terminal"))
        yard.send(PauseRun(run=run))
        yard.step()
        assert yard.state(run).commands, "its owner answers, not the server"
    yard.step()  # the terminal died
    assert not yard.state(run).commands, "somebody has to answer"
    assert yard.workers(run) == [], "but nobody asked the server to go on with it"
    yard.send(ResumeRun(run=run))
    yard.step()
    assert yard.workers(run) == ["actor-0.1", "learner-0.1"]


def test_leaving_ends_the_workers_and_keeps_what_is_desired(yard: Yard) -> None:
    run = yard.create()
    yard.step()
    yard.home.record(
        WorkerStarted(run=run, kind="learner", index=0, incarnation=1, pid=1),
        CheckpointSaved(run=run, name="c", env_steps=5),
    )
    launcher = yard.launchers[run]
    yard.fleet.leave()
    yard.log.read()
    assert launcher.living == {} and launcher.closed
    assert yard.state(run).desired == "running" and not yard.home.is_owned(run)


def test_a_run_that_ended_is_let_go(yard: Yard) -> None:
    run = yard.create()
    yard.step()
    yard.home.record(RunEnded(run=run, status="solved", reason="done"))
    yard.step()
    assert yard.workers(run) == [] and not yard.home.is_owned(run)
    assert yard.state(run).status == "solved"


def test_a_worker_that_died_is_started_again(yard: Yard) -> None:
    run = yard.create(restarts={"backoff_s": 0.0})
    yard.step()
    yard.launchers[run].die("actor-0.1", -9)
    yard.step()
    assert yard.workers(run) == ["actor-0.2", "learner-0.1"]


def test_a_config_that_is_none_is_rejected_with_the_reason(yard: Yard) -> None:
    good = yard.create(start=False)
    content = {"config": {"environment": {"id": "CartPole-v1"}, "sede": 1}, "spec": {}}
    bad = CreateRun(run="bad", config=content)
    yard.send(bad)
    yard.step()
    assert yard.log.states["bad"].desired == "deleted"
    assert yard.state(good).status == "created"
    assert time.time() - yard.log.states["bad"].created_s < 60


# --- one run's trouble ---------------------------------------------------------------------------

FOREIGN_KEYS = ["", "stranger", "0", "1.x", "-1.2", "9" * 5000 + ".1"]


@pytest.mark.parametrize("key", FOREIGN_KEYS, ids=lambda key: key[:9])
def test_a_message_with_a_foreign_key_stops_neither_its_run_nor_the_server(
    yard: Yard, key: str
) -> None:
    run = yard.create()
    yard.step()
    bus = yard.home.open_run_bus(run, yard.home.config(yard.state(run)))
    headers = {"kind": "fragment", "actor": key, "steps": "x", "steps_total": "9" * 5000}
    bus.publish([Outgoing(EXPERIENCES, b"\xff", key, headers)])
    bus.close()
    yard.die()
    yard.step()
    yard.launchers[run].die("actor-0.2", -9)
    yard.step()
    assert yard.state(run).status == "running"


def test_a_run_that_meets_a_bug_fails_alone_and_says_so(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, other = yard.create(), yard.create()
    yard.fleet.cpus = 8
    begin = Controller.begin

    def begin_or_raise(self: Controller, by: str = "terminal") -> None:
        if self.run == broken:
            raise KeyError("a bug")
        begin(self, by)

    monkeypatch.setattr(Controller, "begin", begin_or_raise)
    yard.step()
    assert yard.state(broken).status == "failed"
    assert yard.state(broken).reason == "controller: KeyError: 'a bug'"
    assert yard.state(other).status == "running"
    assert not yard.home.is_owned(broken)


def test_a_run_that_cannot_be_taken_up_is_not_tried_at_every_step(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = yard.create()
    tried: list[str] = []

    def no_launcher(run: str, config: RunConfig) -> PretendLauncher:
        tried.append(run)
        raise OSError("no processes left")

    monkeypatch.setattr(yard.fleet, "_make_launcher", no_launcher)
    monkeypatch.setattr("rookery.control.fleet.RETRY_S", 60.0)
    yard.step()
    yard.send(StartRun(run=run))
    yard.step(20)
    assert len(tried) == 1
    assert yard.state(run).status == "failed"


def test_a_run_that_was_asked_to_stop_before_its_terminal_died_gets_its_last_word(
    yard: Yard,
) -> None:
    run = yard.create(start=False)
    start, stop = StartRun(run=run), StopRun(run=run)
    lease = yard.home.take_lease(run)
    assert lease is not None
    yard.send(start)
    log = RunLog(yard.home, run)
    log.read()
    log.answer(run)
    yard.home.record(RunOwned(run=run, pid=1, by="terminal"))
    yard.home.record(WorkerStarted(run=run, kind="learner", index=0, incarnation=1, pid=1))
    yard.send(stop)
    log.read()
    log.answer(run)
    yard.step()
    assert yard.state(run).status == "running", "its terminal may still be at it"
    lease.close()
    yard.step()
    assert yard.state(run).status == "stopped" and not yard.home.is_owned(run)
    assert run not in yard.launchers or not yard.workers(run)


def test_a_fleet_of_some_runs_leaves_all_others_alone(yard: Yard) -> None:
    """As a sweep's: what others have asked for waits for a server."""
    other = yard.create()
    mine = yard.create()
    yard.fleet._mine = lambda state: state.id == mine
    yard.step()
    assert yard.state(mine).status == "running"
    assert yard.state(other).status == "created" and yard.state(other).commands
    assert not yard.home.is_owned(other)
    yard.fleet.close()
    assert not yard.home.is_owned(mine) and yard.launchers[mine].closed
