"""One reader for everybody: nothing is missed, nothing comes twice, and nothing stops it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.bus import Bus, Outgoing
from rookery.bus.kafka.settings import KafkaSettings
from rookery.config.models import RunConfig
from rookery.config.reading import validate
from rookery.control.home import Home
from rookery.control.run_log import RunLog
from rookery.errors import BusError
from rookery.messages import (
    COMMANDS,
    EVENTS,
    METRICS_ACTORS,
    METRICS_TRAINING,
    STATES,
    ActorMetrics,
    CheckpointSaved,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    LedgerSummary,
    RunEnded,
    RunOwned,
    StartRun,
    StopRun,
    TrainingMetrics,
    decode_json,
    encode_json,
)
from rookery.server.feed import control_log as control_feed
from rookery.server.feed import run as run_feed
from rookery.server.feed import runs as feeds
from rookery.server.feed.follower import Follower, Message
from rookery.server.feed.recent_log import Stretch
from tools.kafka.mock import MockCluster

WAIT_S = 10.0
LEDGER = LedgerSummary(trained=0, dropped={}, pending=0, position=(0,), seen={})


def config(**parts: Any) -> RunConfig:
    return validate({"environment": {"id": "CartPole-v1"}, **parts})


def create(home: Home, run: str, *, start: bool = True, **parts: Any) -> None:
    made = CreateRun(run=run, config={"config": config(**parts).model_dump(mode="json")})
    home.send(made)
    home.record(CommandAccepted(run=run, command=made.id))
    if start:
        carry_out(home, StartRun(run=run))


def carry_out(home: Home, command: StartRun | StopRun | DeleteRun) -> None:
    home.send(command)
    home.record(CommandAccepted(run=command.run, command=command.id))


def training(run: str, updates: int) -> Outgoing:
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
        mean_return_100=None,
        mean_length_100=None,
        lag_mean=0.0,
        lag_max=0,
        ledger=LEDGER,
        values={},
    )
    return Outgoing(METRICS_TRAINING, encode_json(metrics), key=run)


def actor(run: str, name: str, fragments: int) -> Outgoing:
    metrics = ActorMetrics(
        run=run,
        actor=name,
        fragments=fragments,
        agent_steps=0,
        steps_per_s=0.0,
        waiting_share=0.0,
        doing="playing",
    )
    return Outgoing(METRICS_ACTORS, encode_json(metrics), key=name)


def until(true: Callable[[], object], what: str) -> None:
    """Wait for what another thread brings about."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        threading.Event().wait(0.01)


class Heard:
    """A listener that keeps what it hears."""

    def __init__(self, follower: Follower) -> None:
        self.messages: list[Message] = []
        self.stop = follower.listen(self.messages.extend)

    def seqs(self, channel: str) -> list[int]:
        return [m.seq for m in self.messages if m.channel == channel]

    def wait(self, channel: str, seq: int) -> None:
        until(lambda: seq in self.seqs(channel), f"{channel} {seq}")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "runs")
    yield home
    home.close()


@pytest.fixture
def follow(home: Home) -> Iterator[Callable[[], Follower]]:
    made: list[Follower] = []

    def start() -> Follower:
        follower = Follower(home, interval_s=0.01)
        made.append(follower)
        follower.start()
        assert follower.ready.wait(WAIT_S)
        return follower

    yield start
    for follower in made:
        follower.close()
        assert not follower._thread.is_alive()


@pytest.fixture
def bus(home: Home) -> Iterator[Callable[[str], Bus]]:
    opened: list[Bus] = []

    def of(run: str) -> Bus:
        opened.append(home.open_run_bus(run, config()))
        return opened[-1]

    yield of
    for each in opened:
        each.close()


def open_files(path: Path) -> int:
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(link) and os.readlink(link) == str(path) for link in links)


def test_it_is_ready_when_all_there_is_was_read(home, follow, bus) -> None:
    create(home, "a")
    create(home, "b", start=False)
    home.record(
        RunOwned(run="a", pid=1, by="server"), CheckpointSaved(run="a", name="c", env_steps=7)
    )
    publisher = bus("a")
    publisher.publish([training("a", n) for n in range(1, 400)])
    publisher.publish([actor("a", "0.1", 1), actor("a", "1.1", 2), actor("a", "0.2", 3)])
    rejected = CommandRejected(run="a", command="x", why="no")
    home.record(rejected)

    follower = follow()

    assert {run: state.desired for run, state in follower.states.items()} == {
        "a": "running",
        "b": "stopped",
    }
    assert follower.states["a"].env_steps == 7
    newest = follower.training("a")
    assert newest is not None and newest.updates == 399
    assert {n: m.fragments for n, m in follower.actor_metrics("a").items()} == {"0.2": 3, "1.1": 2}
    assert follower.training("b") is None and follower.actor_metrics("b") == {}
    assert follower.end("metrics/a") == 398 and follower.end("actors/a") == 2
    assert follower.end("metrics/b") == -1 and follower.end("metrics/unknown") == -1
    assert follower.answer("x") == rejected and follower.answer("y") is None
    assert follower.trouble is None and follower.troubles == {}


def test_what_is_new_is_handed_on_once_and_the_states_are_not_behind_it(home, follow, bus) -> None:
    create(home, "a")
    publisher = bus("a")
    publisher.publish([training("a", 1)])
    follower = follow()
    heard, seen = Heard(follower), list[int]()
    follower.listen(
        lambda messages: seen.extend(
            follower.states["a"].env_steps - decode_json(m.payload, CheckpointSaved).env_steps
            for m in messages
            if m.kind == "checkpoint_saved"
        )
    )
    first = follower.end("events") + 1
    for n in range(50):
        home.record(CheckpointSaved(run="a", name=f"c{n}", env_steps=n))
        publisher.publish([training("a", n + 2), actor("a", "0.1", n)])
    heard.wait("events", first + 49)
    heard.wait("metrics/a", 50)
    heard.wait("actors/a", 49)
    assert heard.seqs("events") == list(range(first, first + 50))
    assert heard.seqs("metrics/a") == list(range(1, 51))
    assert heard.seqs("actors/a") == list(range(50))
    assert len(seen) == 50 and min(seen) >= 0
    message = heard.messages[-1]
    assert (message.run, follower.end(message.channel)) == ("a", message.seq)

    heard.stop()
    known = len(heard.messages)
    other = Heard(follower)
    home.record(CheckpointSaved(run="a", name="last", env_steps=99))
    other.wait("events", first + 50)
    assert len(heard.messages) == known


def test_a_run_that_begins_later_is_heard_from_its_first_message(home, follow, bus) -> None:
    create(home, "waits", start=False)
    follower = follow()
    heard = Heard(follower)
    bus("new").publish([training("new", 1), training("new", 2)])  # before anybody can look
    create(home, "new")
    carry_out(home, StartRun(run="waits"))
    bus("waits").publish([training("waits", 1)])
    heard.wait("metrics/new", 1)
    heard.wait("metrics/waits", 0)
    assert heard.seqs("metrics/new") == [0, 1]


def test_an_old_run_costs_no_file_until_it_starts_again(
    home, follow, bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_feed, "LINGER_S", 0.05)
    create(home, "old")
    carry_out(home, StopRun(run="old"))
    home.record(RunEnded(run="old", status="stopped", reason=""))
    publisher = bus("old")
    publisher.publish([training("old", n) for n in range(40)])
    publisher.close()
    path = home.bus_path("old")
    follower = follow()
    heard = Heard(follower)
    assert open_files(path) == 0
    newest = follower.training("old")
    assert newest is not None and newest.updates == 39

    carry_out(home, StartRun(run="old"))
    until(lambda: open_files(path) > 0, "the bus is opened again")
    publisher = bus("old")
    publisher.publish([training("old", 40)])
    heard.wait("metrics/old", 40)
    carry_out(home, StopRun(run="old"))
    home.record(RunEnded(run="old", status="stopped", reason=""))
    publisher.close()
    until(lambda: open_files(path) == 0, "the bus is closed again")
    assert heard.seqs("metrics/old") == [40]
    assert [m.seq for m in follower.read("metrics/old", 37, 100)] == [38, 39, 40]


def test_old_runs_that_ended_are_looked_at_by_and_by(
    home, follow, bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds, "FIRST", 2)
    monkeypatch.setattr(feeds, "LATER", 0)
    runs = [f"r{n}" for n in range(6)]
    for run in runs:
        create(home, run)
        bus(run).publish([training(run, 3)])
        if run != "r1":
            home.record(RunEnded(run=run, status="finished", reason="done", updates=2))
    follower = follow()
    read = {run for run in runs if follower.training(run) is not None}
    assert read == {"r1", "r4", "r5"}, "the one that goes on and the newest"
    assert follower.end("metrics/r0") == -1 == follower.resting_end("metrics/r1")
    heard = Heard(follower)
    carry_out(home, StartRun(run="r0"))
    until(lambda: follower.training("r0"), "the run is looked at when it starts again")
    bus("r0").publish([training("r0", 4)])
    heard.wait("metrics/r0", 1)
    assert heard.seqs("metrics/r0") == [1], "what was there before is not new"
    monkeypatch.setattr(feeds, "LATER", 1)
    until(lambda: all(follower.training(run) for run in runs), "all were looked at")
    assert follower.resting_end("metrics/r2") == 0 == follower.end("metrics/r2")


def test_following_begins_with_the_newest_of_the_log(
    home, follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_feed, "AT_FIRST", 5)
    create(home, "a")
    for n in range(20):
        home.record(CheckpointSaved(run="a", name=f"c{n}", env_steps=n))
    follower = follow()
    end = follower.end("events")
    assert len(follower._control.recent["events"]) == 5 and follower.states["a"].env_steps == 19
    assert [m.seq for m in follower.log("events", "a", -1, 100)] == list(range(end + 1))
    assert [m.seq for m in follower.log("events", None, end - 3, 100)] == [end - 2, end - 1, end]
    heard = Heard(follower)
    home.record(CheckpointSaved(run="a", name="last", env_steps=99))
    heard.wait("events", end + 1)
    assert heard.seqs("events") == [end + 1]


def test_a_run_that_says_nothing_sleeps_until_it_says_something(
    home, follow, bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_feed, "QUIET_S", 0.05)
    monkeypatch.setattr(run_feed, "LOOK_S", 0.05)
    create(home, "a")
    publisher = bus("a")
    publisher.publish([training("a", 1)])
    follower = follow()
    heard = Heard(follower)
    feed = follower._feeds._feeds["a"]  # SQLite keeps files open for others in the same process
    for n in range(1, 4):
        until(lambda: feed._bus is None, "it sleeps")
        publisher.publish([training("a", n)])
        heard.wait("metrics/a", n)
    assert heard.seqs("metrics/a") == [1, 2, 3]


def test_a_damaged_bus_is_noted_and_the_others_go_on(
    home, follow, bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_feed, "RETRY_S", 0.1)
    create(home, "bad")
    create(home, "good")
    home.run_dir("bad").mkdir(parents=True)
    home.bus_path("bad").write_bytes(b"not a database" * 1000)
    follower = follow()
    heard = Heard(follower)
    bus("good").publish([training("good", 1)])
    heard.wait("metrics/good", 0)
    assert follower.trouble is None
    assert list(follower.troubles) == ["bad"] and "damaged" in follower.troubles["bad"]
    assert sum("damaged" in record.message for record in caplog.records) == 1

    home.bus_path("bad").unlink()
    bus("bad").publish([training("bad", 1)])
    heard.wait("metrics/bad", 0)
    until(lambda: follower.troubles == {}, "all is well again")


def test_a_bus_that_is_exchanged_is_read_from_its_beginning(
    home, follow, bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_feed, "LOOK_S", 0.02)
    create(home, "a")
    first = bus("a")
    first.publish([training("a", n) for n in range(5)])
    follower = follow()
    heard = Heard(follower)
    first.close()
    for path in home.run_dir("a").glob("bus.sqlite*"):
        path.unlink()
    bus("a").publish([training("a", 77)])
    heard.wait("metrics/a", 0)
    newest = follower.training("a")
    assert newest is not None and newest.updates == 77


def test_a_deleted_run_is_forgotten_but_for_its_state(home, follow, bus) -> None:
    create(home, "a")
    publisher = bus("a")
    publisher.publish([training("a", 1)])
    follower = follow()
    assert follower.training("a") is not None
    carry_out(home, StopRun(run="a"))
    home.record(RunEnded(run="a", status="stopped", reason=""))
    carry_out(home, DeleteRun(run="a"))
    publisher.close()
    until(lambda: follower.states["a"].desired == "deleted", "it is deleted")
    until(lambda: follower.training("a") is None, "it is forgotten")
    assert follower.end("metrics/a") == -1 and follower.read("metrics/a", -1, 10) == []
    assert open_files(home.bus_path("a")) == 0


def test_the_log_is_answered_from_memory_and_what_is_older_from_the_bus(
    home, follow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_feed, "RECENT", 40)
    for run in ("a", "b"):
        create(home, run, start=False)
    for n in range(50):
        home.record(CheckpointSaved(run="ab"[n % 2], name=f"c{n}", env_steps=n))
    follower = follow()
    for after in (-1, 5, 30, 45, 51, 99):
        expected = [seq for seq in range(52) if seq > after]
        assert [m.seq for m in follower.log("events", None, after, 1000)] == expected
        assert [m.seq for m in follower.read("events", after, 7)] == expected[:7]
        of_b = [seq for seq in expected if seq == 1 or (seq > 1 and seq % 2 == 1)]
        assert [m.seq for m in follower.log("events", "b", after, 5)] == of_b[:5]
    assert follower._control.recent["events"].since(5, 10) is None  # so the bus was asked
    assert [m.kind for m in follower.log("commands", "a", -1, 10)] == ["create_run"]
    assert follower.log("events", "unknown", -1, 10) == []


def test_commands_that_nobody_vouches_for_are_not_handed_on(home, follow) -> None:
    create(home, "a", start=False)
    follower = follow()
    heard = Heard(follower)
    forged = encode_json(StartRun(run="a", author="the owner"))
    home.control.publish([Outgoing(COMMANDS, forged, key="a"), Outgoing(COMMANDS, b"{]", key="a")])
    home.send(StopRun(run="a"))
    heard.wait("commands", 3)
    assert heard.seqs("commands") == [3]
    assert [m.seq for m in follower.log("commands", None, -1, 10)] == [0, 3]


def test_messages_that_are_none_are_passed_over(home, follow, bus) -> None:
    create(home, "a")
    publisher = bus("a")
    follower = follow()
    heard = Heard(follower)
    good = training("a", 1)
    not_text = good.payload[:-1] + b',"more":"\xff"}'
    publisher.publish([Outgoing(METRICS_TRAINING, b"[1", key="a"), good])
    publisher.publish([Outgoing(METRICS_TRAINING, not_text, key="a"), training("a", 2)])
    (none,) = home.control.publish([Outgoing(EVENTS, b"[]", key="a")])
    home.record(CheckpointSaved(run="a", name="c", env_steps=1))
    heard.wait("metrics/a", 3)
    heard.wait("events", none + 1)
    assert heard.seqs("metrics/a") == [1, 3]
    assert follower.trouble is None


@pytest.mark.parametrize("error", [BusError("the disk is gone"), ZeroDivisionError("a bug")])
def test_it_says_that_it_cannot_read_and_goes_on_without_a_loss(
    home,
    follow,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    create(home, "a", start=False)
    follower = follow()
    heard = Heard(follower)
    real, failing = RunLog.read, threading.Event()
    failing.set()

    def read(log: RunLog) -> Any:
        found = real(log)  # what it has read is lost with the error
        if failing.is_set():
            raise error
        return found

    monkeypatch.setattr(RunLog, "read", read)
    first = follower.end("events") + 1
    home.record(CheckpointSaved(run="a", name="c", env_steps=5))
    until(lambda: str(error) in (follower.trouble or ""), "it says so")
    assert str(error) in caplog.text
    assert heard.messages == [] and follower.states["a"].env_steps == 0
    failing.clear()
    heard.wait("events", first)
    until(lambda: follower.trouble is None, "all is well again")
    assert heard.seqs("events") == [first] and follower.states["a"].env_steps == 5


def test_a_listener_that_fails_harms_nobody_else(
    home, follow, caplog: pytest.LogCaptureFixture
) -> None:
    create(home, "a", start=False)
    follower = follow()

    def fail(messages: list[Message]) -> None:
        raise ValueError("mine")

    follower.listen(fail)
    heard = Heard(follower)
    first = follower.end("events") + 1
    home.record(CheckpointSaved(run="a", name="c", env_steps=5))
    heard.wait("events", first)
    assert follower.trouble is None and "mine" in caplog.text


def test_the_owner_is_who_holds_the_lease(home, follow, monkeypatch: pytest.MonkeyPatch) -> None:
    create(home, "a")
    home.record(RunOwned(run="a", pid=1, by="server"))
    follower = follow()
    looks: list[str] = []
    real = home.is_owned
    monkeypatch.setattr(home, "is_owned", lambda run: looks.append(run) or real(run))
    with home.lease("a") as mine:
        assert mine and follower.owner("a") == "server"
        assert [follower.owner("a") for _ in range(5)] == ["server"] * 5 and looks == ["a"]
    until(lambda: follower.owner("a") == "", "the lease is given back")
    assert follower.owner("unknown") == ""


def test_a_reader_is_told_where_what_is_kept_begins(home, follow, bus) -> None:
    create(home, "a")
    publisher = bus("a")
    publisher.publish([training("a", n) for n in range(600)])
    publisher.retain(METRICS_TRAINING, (100,))
    follower = follow()
    portion = follower.portion("metrics/a", 20, 5)
    assert portion.first == 100 and [m.seq for m in portion.messages] == [100, 101, 102, 103, 104]
    portion = follower.portion("metrics/a", 590, 100)
    assert portion.first == 591 and [m.seq for m in portion.messages] == list(range(591, 600))


class TestOnACluster:
    """Two readers of metrics for all runs that share topics; one more for each that does not."""

    @pytest.fixture
    def home(self, tmp_path: Path) -> Iterator[Home]:
        topics = (COMMANDS, EVENTS, STATES, METRICS_TRAINING, METRICS_ACTORS, "newest")
        with MockCluster(brokers=1) as mock:
            for topic in (*topics, *(f"own.{topic}" for topic in topics)):
                mock.create_topic(topic)
            home = Home(tmp_path / "runs", KafkaSettings(mock.servers))
            yield home
            home.close()

    def test_runs_are_followed_alike(self, home: Home, follow: Callable[[], Follower]) -> None:
        shared = {"bus": {"kind": "kafka"}}
        own = {"bus": {"kind": "kafka", "topics": "per-run"}}
        for run in ("a", "b"):
            create(home, run, **shared)
        create(home, "own", **own)
        buses = {r: home.open_run_bus(r, config(**shared)) for r in ("a", "b", "stranger", "new")}
        buses["own"] = home.open_run_bus("own", config(**own))
        try:
            for run in ("a", "b", "stranger", "own"):
                buses[run].publish([training(run, 1), actor(run, "0.1", 1)])
            follower = follow()
            heard = Heard(follower)
            updates = {run: follower.training(run) for run in ("a", "b", "own", "stranger")}
            assert {r: m and m.updates for r, m in updates.items()} == {
                "a": 1,
                "b": 1,
                "own": 1,
                "stranger": None,
            }
            assert list(follower.actor_metrics("b")) == ["0.1"]
            assert (follower.end("metrics/a"), follower.end("metrics/b")) == (0, 1)

            create(home, "new", **shared)
            until(lambda: "new" in follower.states, "the new run")
            for run in ("b", "a", "stranger", "new", "own"):
                buses[run].publish([training(run, 2), actor(run, "0.2", 2)])
            for channel, seq in (("metrics/b", 3), ("metrics/a", 4), ("metrics/new", 6)):
                heard.wait(channel, seq)
                assert heard.seqs(channel) == [seq]
            heard.wait("metrics/own", 1)
            heard.wait("actors/new", 6)
            assert [m.seq for m in follower.read("metrics/a", -1, 10)] == [0, 4]
            of_b = follower.read("metrics/b", -1, 10)  # older than memory
            assert [(m.run, m.seq) for m in of_b] == [("b", 1), ("b", 3)]
            assert heard.seqs("metrics/stranger") == []
            carry_out(home, StopRun(run="a"))
            home.record(RunEnded(run="a", status="stopped", reason=""))
            until(lambda: follower.states["a"].desired == "stopped", "the run stops")
            until(lambda: not follower._feeds.metrics["a"].recent, "its memory is given back")
            assert [m.seq for m in follower.read("metrics/a", 0, 10)] == [4]
            assert follower.trouble is None and follower.troubles == {}
        finally:
            for each in buses.values():
                each.close()


def test_a_stretch_keeps_within_its_bounds_and_has_no_holes() -> None:
    stretch = Stretch(floor=-1, most=100, most_bytes=5000)
    for seq in range(1000):
        stretch.add([Message("events", seq, "ab"[seq % 2], "k", 0.0, b"x" * (seq % 90))])
        assert len(stretch) <= 100
        kept = stretch.since(seq - 1, 10)
        assert kept is not None and [m.seq for m in kept] == [seq]
    assert stretch.since(-1, 10) is None
    oldest = next(seq for seq in range(-1, 1000) if stretch.since(seq, 1) is not None)
    found = stretch.since(oldest, 10_000)
    assert found is not None and [m.seq for m in found] == list(range(oldest + 1, 1000))
    of_a = stretch.since(oldest, 10_000, "a")
    assert of_a == [m for m in found if m.run == "a"]
    assert stretch.since(oldest, 10, "nobody") == []
