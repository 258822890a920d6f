"""States that were saved and read on from there are those of the whole log, whoever saved when."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.bus import EARLIEST, Bus, Outgoing, Record
from rookery.bus.kafka.settings import KafkaSettings
from rookery.bus.memory import MemoryBus
from rookery.config.reading import build
from rookery.control import run_log, saved_states
from rookery.control.home import Home, content
from rookery.control.queries import read_runs
from rookery.control.run_log import UNSIGNED, RunLog
from rookery.control.run_state import RunState, why_not
from rookery.control.saved_states import Positions, SavedConfig, load
from rookery.control.signing import KEY_VARIABLE, SIGNATURE, Key
from rookery.envs.registry import describe
from rookery.messages import (
    COMMANDS,
    EVENTS,
    METRICS_TRAINING,
    STATES,
    CheckpointSaved,
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    Event,
    LedgerSummary,
    MatchPlayed,
    PauseRun,
    RunEnded,
    RunOwned,
    SetHyperparameters,
    StartRun,
    StopRun,
    TrainingMetrics,
    WorkerExited,
    WorkerStarted,
    decode_json,
    encode_json,
)
from tools.kafka.mock import MockCluster

CONTENT = content(build({"environment": {"id": "CartPole-v1"}}), describe("CartPole-v1"))
RATE = "algorithm.learning_rate"
RUNS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def no_shared_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


class MemoryHome:
    """A home whose log lies in memory; `key` is the reader's own."""

    def __init__(self, bus: Bus, key: Key | None) -> None:
        self.control, self.key = bus, key

    def record(self, *events: Event) -> None:
        self.control.publish([Outgoing(EVENTS, encode_json(e), key=e.run) for e in events])

    def send(self, command: Command) -> None:
        payload = encode_json(command)
        assert self.key is not None
        headers = {SIGNATURE: self.key.sign(COMMANDS, command.run, payload)}
        self.control.publish([Outgoing(COMMANDS, payload, command.run, headers)])

    def trusts(self, topic: str, run: str, payload: bytes, headers: Mapping[str, str]) -> bool:
        signature = headers.get(SIGNATURE, "")
        return self.key is not None and self.key.signed(signature, topic, run, payload)


def whole(home: MemoryHome | Home, run: str | None = None) -> dict[str, RunState]:
    """The fold of the log from its beginning, as one who trusts no saved state has it."""
    blind = MemoryHome(home.control, None)
    blind.trusts = home.trusts  # type: ignore[method-assign]
    log = RunLog(blind, run)
    log.read()
    return log.states


# --- any log, saved anywhere ---------------------------------------------------------------------

numbers = itertools.count()
commands = st.one_of(
    *(st.just(kind) for kind in (StartRun, StopRun, PauseRun, DeleteRun)),
    st.sampled_from([1e-4, 1e-3, 7.0]).map(lambda rate: (SetHyperparameters, {RATE: rate})),
)
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(RUNS), commands),
    st.tuples(st.just("create"), st.sampled_from(RUNS), st.booleans()),
    st.tuples(st.just("answer"), st.sampled_from(RUNS), st.booleans()),
    st.tuples(st.just("happens"), st.sampled_from(RUNS), st.integers(0, 5)),
    st.tuples(st.just("forge"), st.sampled_from(RUNS), st.none()),
    st.tuples(st.just("save"), st.integers(0, 2), st.none()),
    st.tuples(st.just("read"), st.integers(0, 2), st.none()),
    st.tuples(st.just("new"), st.integers(0, 2), st.none()),
)


class World:
    """A log that people and owners write to, and three readers who save when they like."""

    def __init__(self) -> None:
        self.home = MemoryHome(MemoryBus(), Key(b"k" * 32))
        self.readers = [RunLog(self.home) for _ in range(3)]

    def do(self, what: str, who: Any, how: Any) -> None:
        run: Any = {"run": who}
        match what:
            case "send" if isinstance(how, tuple):
                self.home.send(how[0](**run, values=how[1]))
            case "send":
                self.home.send(how(**run))
            case "create":
                self.home.send(CreateRun(**run, config=CONTENT if how else {}))
            case "answer":  # as an owner does who reads that run alone, or everything
                log = RunLog(self.home, who if how else None)
                log.read()
                log.answer(who)
            case "forge":
                forged = encode_json(StopRun(**run))
                self.home.control.publish([Outgoing(COMMANDS, forged, who)])
            case "happens":
                self.home.record(self._event(who, how))
            case "read":
                self.readers[who].read()
            case "save":
                self.readers[who].read()
                self.readers[who].save()
            case "new":
                self.readers[who] = RunLog(self.home)

    def _event(self, run: str, number: int) -> Event:
        life: Any = {"run": run, "kind": "actor", "index": 0, "incarnation": 1}
        n = next(numbers)
        events: list[Event] = [
            CheckpointSaved(run=run, name=f"1.{n}", env_steps=n),
            WorkerStarted(**life, pid=n),
            WorkerExited(**life, code=1),
            RunOwned(run=run, pid=n),
            RunEnded(run=run, status="finished", reason="done", updates=n, mean_return_100=0.1 * n),
            MatchPlayed(run=run, players=("a", "b"), wins=n, draws=0, losses=1),
        ]
        return events[number]


@settings(max_examples=200, deadline=None)
@given(st.lists(steps, max_size=40), st.sampled_from([0, 3, 10_000]))
def test_a_state_that_was_saved_goes_on_like_the_whole_log(
    done: list[tuple[str, Any, Any]], kept_whole: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_states, "KEPT_WHOLE", kept_whole)
        world = World()
        for step in done:
            world.do(*step)
        expected = whole(world.home)
        for reader in [*world.readers, RunLog(world.home)]:
            reader.read()
            assert reader.states == expected
        for run in RUNS:
            one = RunLog(world.home, run)
            one.read()
            assert one.states == {r: s for r, s in expected.items() if r == run}


@settings(max_examples=100, deadline=None)
@given(st.lists(steps, max_size=40), st.data())
def test_a_save_of_long_ago_does_no_harm(done: list[tuple[str, Any, Any]], data: Any) -> None:
    """One who read a while ago saves after others who know more."""
    world = World()
    for place, step in enumerate(done):
        world.do(*step)
        if place == len(done) // 2:
            world.readers[0].read()
    world.readers[1].read()
    world.readers[1].save()
    world.readers[0].save()
    fresh = RunLog(world.home)
    fresh.read()
    assert fresh.states == whole(world.home)


def test_a_command_and_its_answer_may_lie_on_two_sides_of_a_save() -> None:
    home = MemoryHome(MemoryBus(), Key(b"k" * 32))
    saver = RunLog(home)
    home.send(CreateRun(run="a", id="create", config=CONTENT))
    home.send(StartRun(run="a", id="start"))
    saver.read()
    saver.save()
    home.record(*(CommandAccepted(run="a", command=id) for id in ("create", "start")))
    for only in ("a", None):
        log = RunLog(home, only)
        assert log.states["a"].commands.keys() == {"create", "start"}
        assert len(log.read()) == 2, "only what came since is read"
        assert log.states["a"].desired == "running" and log.states == whole(home)


# --- a home of files -----------------------------------------------------------------------------


@pytest.fixture
def open_home(tmp_path: Path) -> Iterator[Callable[..., Home]]:
    opened: list[Home] = []

    def open_(name: str = "home") -> Home:
        opened.append(Home(tmp_path / name))
        return opened[-1]

    yield open_
    for home in opened:
        home.close()


def create(home: Home, *runs: str) -> None:
    for run in runs:
        made = CreateRun(run=run, config=CONTENT)
        home.send(made)
        home.record(CommandAccepted(run=run, command=made.id))


def checkpoints(run: str, count: int, generation: int = 1) -> list[CheckpointSaved]:
    steps = range(count)
    return [CheckpointSaved(run=run, name=f"{generation}.{n}", env_steps=n) for n in steps]


def read_all(home: Home, topic: str) -> list[Record]:
    found, reader = list[Record](), home.control.subscribe(topic, EARLIEST)
    while records := reader.poll(0.0):
        found += records
    return found


def saved(home: Home) -> RunLog:
    """Everything that there is, saved."""
    log = RunLog(home)
    log.read()
    log.save()
    return log


class Counted:
    """How many messages readers decode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counting(payload: bytes, kind: Any) -> Any:
            self.count += 1
            return decode_json(payload, kind)

        monkeypatch.setattr(run_log, "decode_json", counting)


def test_a_home_of_before_is_folded_once(
    open_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home()
    create(home, *RUNS)
    home.record(*checkpoints("a", 1500))
    expected, counted = whole(home), Counted(monkeypatch)
    assert open_home().state("b") == expected["b"]
    assert counted.count >= 1500, "who comes first reads all of it"
    counted.count = 0
    assert open_home().state("b") == expected["b"]
    assert open_home().states() == expected
    assert open_home().find("c") == "c" and counted.count == 0


def test_a_home_follows_its_log(
    open_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, other = open_home(), open_home()
    create(home, *RUNS)
    home.states()
    counted = Counted(monkeypatch)
    other.send(StartRun(run="b", id="start"))
    assert home.state("b").commands.keys() == {"start"} and counted.count == 1
    assert home.find("b") == "b" and home.states().keys() == set(RUNS) and counted.count == 1


def test_old_checkpoints_leave_the_log_and_nothing_else_does(
    open_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_states, "KEPT_WHOLE", 50)
    home = open_home()
    create(home, *RUNS)
    home.record(*checkpoints("c", 1))
    for generation in range(20):
        home.record(*checkpoints("a", 40, generation), *checkpoints("b", 40, generation))
        home.record(MatchPlayed(run="a", players=("a", "b"), wins=generation, draws=0, losses=0))
    before = whole(home)
    log = saved(home)
    kept = [decode_json(record.payload, Event) for record in read_all(home, EVENTS)]
    assert len(kept) <= 50 + 20 + 2 * len(RUNS), "the newest, the matches, answers, c's only one"
    assert sum(isinstance(event, MatchPlayed) for event in kept) == 20
    assert sum(isinstance(event, CommandAccepted) for event in kept) == 3
    assert any(event.run == "c" for event in kept if isinstance(event, CheckpointSaved))
    assert log.states == before == whole(home)
    assert [match.wins for match in before["a"].matches] == list(range(20))


def test_who_reads_one_run_lets_the_log_be_shortened(
    open_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "SAVE_AFTER", 20)
    home = open_home()
    create(home, "a", "b")
    log = RunLog(home, "a")
    log.read()
    home.record(*checkpoints("b", 30))
    log.read()
    found = load(home, None)
    assert found.start == Positions(home.control.end(COMMANDS), home.control.end(EVENTS))
    assert found.states == whole(home)


def test_only_each_runs_newest_state_is_kept(open_home: Callable[..., Home]) -> None:
    home = open_home()
    create(home, *RUNS)
    for number in range(5):
        home.record(CheckpointSaved(run="a", name=f"1.{number}", env_steps=number))
        saved(open_home())
    assert len(read_all(home, STATES)) == len(RUNS) + 1


# --- what is not to be trusted -------------------------------------------------------------------


def forge(home: Home, change: Callable[[bytes], bytes], resign: bool) -> None:
    """Another state of run `a`, under the same key on the bus."""
    assert home.key is not None
    newest = home.control.newest(STATES, f"{home.key.name}/a")
    assert newest is not None
    payload = change(newest.payload)
    headers = {SIGNATURE: home.key.sign(STATES, "a", payload)} if resign else newest.headers
    home.control.publish([Outgoing(STATES, payload, newest.key, headers)])


FORGERIES: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "not signed": (lambda payload: payload.replace(b'"stopped"', b'"running"'), False),
    "damaged": (lambda payload: payload[:-20], True),
    "another schema": (lambda payload: payload.replace(b'"schema":1', b'"schema":2', 1), True),
    "another run's": (lambda payload: payload.replace(b'"run":"a"', b'"run":"b"', 1), True),
}


@pytest.mark.parametrize("forgery", FORGERIES)
@pytest.mark.parametrize("only", ["a", None])
def test_a_state_that_cannot_be_trusted_is_folded_again(
    open_home: Callable[..., Home], forgery: str, only: str | None
) -> None:
    home = open_home()
    create(home, *RUNS)
    saved(home)
    forge(home, *FORGERIES[forgery])
    home.record(CheckpointSaved(run="b", name="1.1", env_steps=5))
    expected = whole(home)
    assert expected["a"].desired == "stopped"
    log = RunLog(open_home(), only)
    log.read()
    assert log.states == ({"a": expected["a"]} if only else expected)
    saved(open_home())
    assert load(home, None).start is not None, "whoever saves next makes it good"


def test_another_key_has_states_of_its_own(
    open_home: Callable[..., Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home()
    create(home, *RUNS)
    saved(home)
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "other.key"))
    stranger = open_home()
    stranger.signing_key()
    log = saved(stranger)
    assert log.states == {} and log.strangers == set(RUNS)
    assert RunLog(open_home()).strangers == set(RUNS), "saved too"
    monkeypatch.delenv(KEY_VARIABLE)
    found = load(open_home(), None)
    assert found.start is not None and found.states.keys() == set(RUNS)


def test_who_has_no_key_saves_nothing(open_home: Callable[..., Home]) -> None:
    home = open_home()
    events = [Outgoing(EVENTS, encode_json(event), "a") for event in checkpoints("a", 1500)]
    home.control.publish(events)
    saved(home)
    assert read_all(home, STATES) == [] and home.key is None


def test_an_unsigned_command_is_rejected_once_however_often_states_are_saved(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    create(home, "a")
    for run in ("a", "ghost"):
        forged = encode_json(StopRun(run=run, id=f"forged-{run}"))
        home.control.publish([Outgoing(COMMANDS, forged, run)])
    saved(open_home())
    for _ in range(3):
        log = RunLog(open_home())
        log.read()
        log.refuse_unsigned(lambda command: True)
        saved(open_home())
    events = [decode_json(record.payload, Event) for record in read_all(home, EVENTS)]
    rejected = [event for event in events if isinstance(event, CommandRejected)]
    assert {event.command for event in rejected} == {"forged-a", "forged-ghost"}
    assert len(rejected) == 2 and all(event.why == UNSIGNED for event in rejected)


def test_a_replayed_command_of_long_ago_acts_once(open_home: Callable[..., Home]) -> None:
    home = open_home()
    create(home, "a")
    home.send(StartRun(run="a", id="start"))
    home.record(CommandAccepted(run="a", command="start"))
    home.record(RunEnded(run="a", status="finished", reason="done"))
    started = read_all(home, COMMANDS)[-1]
    saved(home)
    home.control.publish([Outgoing(COMMANDS, started.payload, "a", started.headers)])
    log = RunLog(open_home(), "a")
    log.read()
    assert not log.states["a"].commands and log.states["a"].desired == "stopped"


# --- configs, lists, clusters --------------------------------------------------------------------


def test_a_saved_config_is_a_config(open_home: Callable[..., Home]) -> None:
    home = open_home()
    create(home, "a")
    saved(home)
    state = open_home().state("a")
    assert isinstance(state.config, SavedConfig) and state.config == CONTENT
    assert {**state.config} == CONTENT and len(state.config) == len(CONTENT)
    assert home.config(state) == build({"environment": {"id": "CartPole-v1"}})
    assert home.spec(state) == describe("CartPole-v1")
    assert why_not(state, SetHyperparameters(run="a", values={RATE: 0.1})) is None
    assert why_not(state, SetHyperparameters(run="a", values={"nothing": 0.1})) is not None


def trained(home: Home, run: str, updates: int) -> None:
    metrics = TrainingMetrics(
        run=run,
        policy="main",
        generation=1,
        updates=updates,
        env_steps=100 * updates,
        train_s=1.0,
        steps_per_s=1.0,
        recent_steps_per_s=1.0,
        episodes=1,
        mean_return_100=float(updates),
        mean_length_100=None,
        lag_mean=0.0,
        lag_max=0,
        ledger=LedgerSummary(trained=0, dropped={}, pending=0, position=(0,), seen={}),
        values={},
    )
    bus = home.open_run_bus(run, home.config(home.state(run)))
    bus.publish([Outgoing(METRICS_TRAINING, encode_json(metrics), key=run)])
    bus.close()


def start(home: Home, run: str) -> None:
    command = StartRun(run=run)
    home.send(command)
    home.record(CommandAccepted(run=run, command=command.id), RunOwned(run=run, pid=1))


def test_a_list_opens_the_bus_of_an_old_run_once(
    open_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, opened = open_home(), list[str]()
    create(home, "new", "told", "untold", "active", "never")
    for run in ("told", "untold", "active", "never"):
        start(home, run)
    for run, updates in (("told", 1), ("untold", 2), ("active", 3)):
        trained(home, run, updates)
    far = {"env_steps": 7, "updates": 7, "mean_return_100": 7.0}
    home.record(RunEnded(run="told", status="finished", reason="done", **far))  # type: ignore[arg-type]
    home.record(RunEnded(run="untold", status="failed", reason="died"))
    home.record(RunEnded(run="never", status="failed", reason="died"))
    plain = Home.read_run_bus

    def reading(self: Home, state: RunState) -> Bus | None:
        opened.append(state.id)
        return plain(self, state)

    monkeypatch.setattr(Home, "read_run_bus", reading)
    for expected in (["untold", "active", "never"], ["active"]):
        rows = {known.row.run: known.row for known in read_runs(open_home())}
        shown = {run: (row.env_steps, row.mean_return_100) for run, row in rows.items()}
        assert shown == {
            "new": (0, None),
            "told": (7, 7.0),
            "untold": (200, 2.0),
            "active": (300, 3.0),
            "never": (0, None),
        }
        assert sorted(opened) == sorted(expected)
        opened.clear()
    assert rows["active"].status == "interrupted" and rows["untold"].status == "failed"


def test_on_a_cluster_states_are_saved_and_read_on(tmp_path: Path) -> None:
    with MockCluster(brokers=1) as mock:
        for topic in (COMMANDS, EVENTS, STATES, "newest"):
            mock.create_topic(topic)
        homes = [Home(tmp_path / "runs", KafkaSettings(mock.servers)) for _ in range(3)]
        try:
            create(homes[0], *RUNS)
            saved(homes[0])
            homes[0].record(CheckpointSaved(run="a", name="1.1", env_steps=5))
            found = load(homes[1], None)
            assert found.start is not None and found.states.keys() == set(RUNS)
            assert homes[1].states() == whole(homes[2])
            log = RunLog(homes[2], "a")
            assert [type(message) for message in log.read()] == [CheckpointSaved]
            assert log.states == {"a": homes[1].state("a")}
        finally:
            for home in homes:
                home.close()


def test_many_commands_are_folded_in_proportion() -> None:
    """10,000 commands of one run: a copy of all ids for each would take many seconds."""
    home = MemoryHome(MemoryBus(), Key(b"k" * 32))
    home.send(CreateRun(run="a", id="create", config=CONTENT))
    for number in range(10_000):
        home.record(CommandRejected(run="a", command=str(number), why="no"))
    log = RunLog(home)
    log.read()
    before = log.states["a"].answered._places
    home.record(CommandRejected(run="a", command="last", why="no"))
    log.read()
    assert len(log.states["a"].answered) == 10_001
    assert log.states["a"].answered._places is before, "it has grown, and was not copied"
    again = RunLog(home)
    again.read()
    assert again.states == log.states == whole(home)
