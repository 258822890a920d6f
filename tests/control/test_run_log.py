"""Who may steer: only commands with the signature of the home's key count, each of them once."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rookery.bus import Bus, Outgoing, Position, Record, Subscription
from rookery.config.reading import build
from rookery.control.home import Home, content
from rookery.control.log_messages import read_record
from rookery.control.run_log import MAX_ID, UNSIGNED, UNSIGNED_EVENT, RunLog
from rookery.control.run_state import DELETED, RUNNING, STOPPED
from rookery.control.signing import (
    KEY_VARIABLE,
    PLACE,
    SIGNATURE,
    SIGNED_EVENTS,
    Key,
    key_path,
    load_key,
    placed,
)
from rookery.envs.registry import describe
from rookery.errors import InputError
from rookery.messages import (
    COMMANDS,
    EVENTS,
    CheckpointDamaged,
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    Event,
    PauseRun,
    ResumeRun,
    RunEnded,
    RunOwned,
    ScaleActors,
    SetHyperparameters,
    StartRun,
    StopRun,
    WorkerStarting,
    decode_json,
    encode_json,
)

RUN = "r"
CONTENT = content(build({"environment": {"id": "CartPole-v1"}}), describe("CartPole-v1"))
RATE = "algorithm.learning_rate"
MAKERS = 8
RACES = 25
RACE_S = 60.0


@pytest.fixture(autouse=True)
def no_shared_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


@pytest.fixture
def open_home(tmp_path: Path) -> Iterator[Callable[..., Home]]:
    """The same home, as another process has it; or one beside it."""
    opened: list[Home] = []

    def open_(name: str = "home") -> Home:
        opened.append(Home(tmp_path / name))
        return opened[-1]

    yield open_
    for home in opened:
        home.close()


def create(home: Home) -> RunLog:
    """A run whose owner has begun to follow its log."""
    home.send(CreateRun(run=RUN, id="create", config=CONTENT))
    log = RunLog(home, RUN)
    carry(log)
    assert log.states[RUN].answered == {"create"}
    return log


def carry(log: RunLog) -> None:
    """What the owner does on each step."""
    log.read()
    log.answer(RUN)


def publish(
    home: Home, command: Command, headers: Mapping[str, str] | None = None, key: str = RUN
) -> None:
    home.control.publish([Outgoing(COMMANDS, encode_json(command), key, headers or {})])


def signature(home: Home, command: Command, **changes: Any) -> dict[str, str]:
    asked = {"topic": COMMANDS, "run": command.run, "payload": encode_json(command)} | changes
    return {SIGNATURE: home.signing_key().sign(**asked)}


def records(home: Home, topic: str) -> list[Record]:
    found: list[Record] = []
    subscription = home.control.subscribe(topic, "earliest")
    while more := subscription.poll(0.0):
        found += more
    return found


def answers(home: Home) -> list[tuple[str, str]]:
    """Every answer in the log: the command's id, and `accepted` or why not."""
    said = []
    for record in records(home, EVENTS):
        event = decode_json(record.payload, Event)
        if isinstance(event, CommandAccepted | CommandRejected):
            said.append((event.command, getattr(event, "why", "accepted")))
    return said


# --- signed --------------------------------------------------------------------------------------


def test_a_signed_command_counts(open_home: Callable[..., Home]) -> None:
    home = open_home()
    log = create(home)
    open_home().send(StartRun(run=RUN, id="start"))
    carry(log)
    assert log.states[RUN].desired == RUNNING
    assert answers(home) == [("create", "accepted"), ("start", "accepted")]
    assert open_home().state(RUN) == log.states[RUN]


def test_a_command_that_makes_no_sense_is_answered_with_a_reason(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    log = create(home)
    home.send(PauseRun(run=RUN, id="pause"), ScaleActors(run=RUN, id="many", count=1000))
    carry(log)
    assert answers(home)[1:] == [
        ("pause", "run r does not run: start it first"),
        ("many", "1000 actors are above the limit of 16: actors.max_count"),
    ]


def test_a_config_that_is_none_is_rejected_and_the_run_forgotten(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    home.send(CreateRun(run=RUN, id="create", config={"config": {"actors": 3}, "spec": {}}))
    home.send(ScaleActors(run=RUN, id="scale", count=2))
    log = RunLog(home, RUN)
    carry(log)
    assert log.states[RUN].desired == DELETED and open_home().states() == {}
    (_, why), scaled = answers(home)
    assert "environment" in why and scaled == ("scale", "run r was deleted")


def test_a_replayed_command_acts_once(open_home: Callable[..., Home]) -> None:
    home = open_home()
    log = create(home)
    start = StartRun(run=RUN, id="start")
    home.send(start)
    carry(log)
    home.send(StopRun(run=RUN, id="stop"))
    carry(log)
    publish(home, start, signature(home, start))  # as whoever reads the bus can say it again
    publish(home, start)
    carry(log)
    assert log.states[RUN].desired == STOPPED and not log.states[RUN].commands
    assert [id for id, _ in answers(home)] == ["create", "start", "stop"]
    again = RunLog(open_home(), RUN)
    carry(again)
    assert again.states == log.states and len(answers(home)) == 3


def test_a_deleted_run_is_not_created_by_a_replay(open_home: Callable[..., Home]) -> None:
    home = open_home()
    log = create(home)
    (made,) = records(home, COMMANDS)
    home.send(DeleteRun(run=RUN))
    carry(log)
    home.control.publish([Outgoing(COMMANDS, made.payload, made.key, made.headers)])
    carry(log)
    assert log.states[RUN].desired == DELETED and open_home().states() == {}


# --- not signed ----------------------------------------------------------------------------------

FORGERIES: dict[str, Callable[[Home, Home, Command], tuple[Mapping[str, str], str]]] = {
    "no signature": lambda home, other, command: ({}, RUN),
    "an empty signature": lambda home, other, command: ({SIGNATURE: ""}, RUN),
    "not a signature": lambda home, other, command: ({SIGNATURE: "é" * 64}, RUN),
    "another home's key": lambda home, other, command: (signature(other, command), RUN),
    "of another payload": lambda home, other, command: (
        signature(home, command, payload=encode_json(StopRun(run=RUN, id=command.id))),
        RUN,
    ),
    "of another run": lambda home, other, command: (signature(home, command, run="q"), RUN),
    "of another topic": lambda home, other, command: (signature(home, command, topic="t"), RUN),
    "under another run's key": lambda home, other, command: (signature(home, command), "q"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_command_that_is_not_signed_changes_nothing_and_is_rejected(
    open_home: Callable[..., Home], forgery: str
) -> None:
    home, told = open_home(), list[str]()
    create(home)
    command = StartRun(run=RUN, id="forged")
    headers, key = FORGERIES[forgery](home, open_home("other"), command)
    publish(home, command, headers, key)
    log = RunLog(home, skipped=told.append)
    carry(log)
    state = log.states[RUN]
    assert (state.desired, state.status, state.commands) == (STOPPED, "created", {})
    assert answers(home) == [("create", "accepted"), ("forged", UNSIGNED)]
    assert told == [f"{COMMANDS} offset 1: skipped: {UNSIGNED}"]


def test_an_unsigned_command_is_rejected_once(open_home: Callable[..., Home]) -> None:
    home = open_home()
    log = create(home)
    for _ in range(2):
        publish(home, StartRun(run=RUN, id="forged"))
        publish(home, StartRun(run=RUN, id="forged"))
        carry(log)
        carry(log)
    restarted = RunLog(open_home(), RUN)
    carry(restarted)
    publish(home, StopRun(run=RUN, id="forged"))
    carry(restarted)
    carry(log)
    assert answers(home) == [("create", "accepted"), ("forged", UNSIGNED)]
    assert restarted.states == log.states and not log.unsigned


def test_an_unsigned_creation_makes_no_run(open_home: Callable[..., Home]) -> None:
    home = open_home()
    publish(home, CreateRun(run=RUN, id="forged", config=CONTENT))
    home.control.publish([Outgoing(COMMANDS, b"not a command", RUN)])
    for _ in range(2):
        log = RunLog(open_home())
        log.read()
        assert log.states == {} and open_home().states() == {}
    assert not key_path(home.path).exists(), "reading makes no key"
    for _ in range(2):
        log = RunLog(open_home())
        log.read()
        log.refuse_unsigned(lambda command: True)
    assert answers(home) == [("forged", UNSIGNED)]


def test_an_unsigned_command_for_an_unknown_run_is_rejected(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    create(home)
    publish(home, StartRun(run="ghost", id="forged"), key="ghost")
    publish(home, StartRun(run=RUN, id="later"))
    log = RunLog(home)
    log.read()
    log.refuse_unsigned(lambda command: command.run not in log.states)
    assert [command.id for command in log.unsigned] == ["later"], "for the owner of its run"
    log.read()
    assert log.states.keys() == {RUN}
    assert answers(home)[1:] == [("forged", UNSIGNED)]


def test_an_owner_leaves_the_unsigned_commands_of_other_runs_alone(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    create(home)
    publish(home, StartRun(run="other", id="forged"), key="other")
    log = RunLog(home)
    carry(log)
    assert answers(home) == [("create", "accepted")]


def test_an_unsigned_copy_of_a_command_that_waits_does_not_reject_it(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    log = create(home)
    home.send(StartRun(run=RUN, id="start"))
    publish(home, StopRun(run=RUN, id="start"))
    carry(log)
    assert log.states[RUN].desired == RUNNING
    assert answers(home)[1:] == [("start", "accepted")]


def test_an_endless_id_gets_no_answer(open_home: Callable[..., Home]) -> None:
    home = open_home()
    log = create(home)
    publish(home, StartRun(run=RUN, id="x" * (MAX_ID + 1)))
    publish(home, StartRun(run=RUN, id="y" * MAX_ID))
    carry(log)
    assert [id for id, _ in answers(home)] == ["create", "y" * MAX_ID]


# --- a bus that is trusted -----------------------------------------------------------------------


@pytest.mark.parametrize("trusted", [True, False])
def test_the_owner_may_trust_the_bus(open_home: Callable[..., Home], trusted: bool) -> None:
    home = open_home()
    home.path.mkdir()
    (home.path / "rookery.yaml").write_text(f"trust_bus: {str(trusted).lower()}\n")
    publish(home, CreateRun(run=RUN, id="create", config=CONTENT))
    publish(home, StartRun(run=RUN, id="start"), signature(open_home("other"), StopRun(run=RUN)))
    publish(home, StopRun(run=RUN, id="astray"), key="q")
    log = RunLog(home)
    carry(log)
    assert dict(answers(home)) == {
        "create": "accepted" if trusted else UNSIGNED,
        "start": "accepted" if trusted else UNSIGNED,
        "astray": UNSIGNED,  # nobody knows which run is meant
    }
    assert {run: state.desired for run, state in log.states.items()} == (
        {RUN: RUNNING} if trusted else {}
    )


def test_a_setting_that_cannot_be_read_is_no_trust(open_home: Callable[..., Home]) -> None:
    home = open_home()
    home.path.mkdir()
    (home.path / "rookery.yaml").write_text("trust_buss: true\n")
    publish(home, CreateRun(run=RUN, config=CONTENT))
    with pytest.raises(InputError, match="did you mean trust_bus"):
        RunLog(home).read()


# --- events --------------------------------------------------------------------------------------

ENDED = RunEnded(run=RUN, status="failed", reason="forged")


def running(home: Home) -> RunLog:
    log = create(home)
    home.send(StartRun(run=RUN, id="start"))
    carry(log)
    assert log.states[RUN].status == "queued"
    return log


def event_headers(home: Home, place: str) -> dict[str, str]:
    signed = home.signing_key().sign(EVENTS, RUN, placed(place, encode_json(ENDED)))
    return {SIGNATURE: signed, PLACE: place}


EVENT_FORGERIES: dict[str, Callable[[Home, Home], dict[str, str]]] = {
    "no signature": lambda home, other: {},
    "another key": lambda home, other: event_headers(other, "me:1"),
    "another place": lambda home, other: {**event_headers(home, "me:1"), PLACE: "me:2"},
    "a command's signature": lambda home, other: signature(home, ENDED),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("forgery", EVENT_FORGERIES)
def test_an_event_that_is_not_signed_ends_no_run(
    open_home: Callable[..., Home], forgery: str
) -> None:
    home, told = open_home(), list[str]()
    running(home)
    headers = EVENT_FORGERIES[forgery](home, open_home("other"))
    home.control.publish([Outgoing(EVENTS, encode_json(ENDED), RUN, headers)])
    log = RunLog(home, skipped=told.append)
    assert ENDED not in log.read()
    assert log.states[RUN].status == "queued"
    assert told == [f"{EVENTS} offset 2: skipped: {UNSIGNED_EVENT}"]
    for record in records(home, EVENTS)[-1:]:
        assert read_record(home, "events", record, log.states) is None


def test_a_copy_of_an_event_is_nothing_new(open_home: Callable[..., Home]) -> None:
    """Also for a reader that begins with a state that was saved."""
    home = open_home()
    log = running(home)
    home.record(ENDED)
    copied = records(home, EVENTS)[-1]
    home.send(ResumeRun(run=RUN, id="again"))
    carry(log)
    assert log.states[RUN].status == "queued"
    RunLog(home).save()
    home.control.publish([Outgoing(EVENTS, copied.payload, RUN, copied.headers)])
    for reader in (log, RunLog(open_home()), RunLog(open_home(), RUN)):
        reader.read()
        assert reader.states[RUN].status == "queued"
    home.record(ENDED)
    carry(log)
    assert log.states[RUN].status == "failed"


def test_the_events_of_a_run_that_an_older_version_made_count_unsigned(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    made = CreateRun(run=RUN, id="create", config=CONTENT)
    publish(home, made, signature(home, made))
    started = StartRun(run=RUN, id="start")
    publish(home, started, signature(home, started))
    said = (CommandAccepted(run=RUN, command=c) for c in ("create", "start"))
    older = [*said, RunOwned(run=RUN, pid=1)]
    home.control.publish([Outgoing(EVENTS, encode_json(event), RUN) for event in older])
    log = RunLog(home)
    assert len(log.read()) == 5 and log.states[RUN].status == "queued"
    publish(home, made, {**signature(home, made), **SIGNED_EVENTS})  # a copy seals nothing
    home.record(ENDED)
    assert RunLog(open_home()).read()[-1] == ENDED


def test_threads_and_homes_that_write_events_do_not_take_each_others_places(
    open_home: Callable[..., Home],
) -> None:
    home, other = open_home(), open_home()
    log = running(home)

    def write(where: Home, name: str) -> None:
        for number in range(20):
            where.record(CheckpointDamaged(run=RUN, name=f"{name}-{number}", why="x"))

    whose = ((home, "a"), (home, "b"), (other, "c"))
    threads = [threading.Thread(target=write, args=each) for each in whose]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    log.read()
    assert len(log.states[RUN].damaged) == 60


def test_machines_with_the_same_key_trust_each_other(
    open_home: Callable[..., Home], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "team.key"))
    home, command = open_home(), StartRun(run=RUN, id="start")
    log = create(home)
    assert not (home.path / "command.key").exists()
    publish(home, command, signature(open_home("other"), command))
    carry(log)
    assert log.states[RUN].desired == RUNNING


# --- the order of things -------------------------------------------------------------------------


def test_clocks_that_differ_do_not_undo_what_was_accepted(
    open_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sender's clock is ahead of the owner's: the answer looks older than the command."""
    home = open_home()
    log, now = create(home), time.time()
    for id, rate in (("first", 0.1), ("second", 0.2)):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda: now + 60.0)
            home.send(SetHyperparameters(run=RUN, id=id, values={RATE: rate}))
        carry(log)
    assert log.states[RUN].hyperparameters == {RATE: 0.2}
    assert open_home().state(RUN) == log.states[RUN]


def test_a_clock_that_is_set_back_does_not_turn_events_round(
    open_home: Callable[..., Home], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = open_home()
    log, now = create(home), time.time()
    home.send(StartRun(run=RUN))
    carry(log)
    for incarnation, back_s in ((1, 0.0), (2, 60.0)):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda back_s=back_s: now + 60.0 - back_s)
            home.record(
                WorkerStarting(run=RUN, kind="actor", index=0, incarnation=incarnation),
                CommandRejected(run=RUN, command=f"unknown-{incarnation}", why="no"),
            )
        log.read()
    fresh = RunLog(open_home(), RUN)
    told = [m for m in fresh.read() if isinstance(m, WorkerStarting)]
    assert [event.incarnation for event in told] == [1, 2]
    assert fresh.states == log.states


class Between:
    """A home whose bus does something between a reader's first topic and its second."""

    def __init__(self, home: Home, happens: Callable[[], None]) -> None:
        self._home, self._happens = home, happens
        self._polled: set[str] = set()

    @property
    def control(self) -> Bus:
        return self  # type: ignore[return-value]

    def __getattr__(self, name: str) -> Any:
        """All else is the home's own, or its bus's."""
        return getattr(self._home if hasattr(self._home, name) else self._home.control, name)

    def subscribe(self, topic: str, start: Position | str) -> Subscription:
        inner = self._home.control.subscribe(topic, start)
        plain = inner.poll

        def poll(timeout_s: float, limit: int = 256) -> list[Record]:
            if topic not in self._polled and self._polled:
                self._happens()
            self._polled.add(topic)
            return plain(timeout_s, limit)

        inner.poll = poll  # type: ignore[method-assign]
        return inner


def test_a_reader_that_sees_an_answer_has_seen_its_command(
    open_home: Callable[..., Home],
) -> None:
    home = open_home()
    owner = create(home)

    def happens() -> None:
        home.send(StartRun(run=RUN, id="start"))
        carry(owner)

    log = RunLog(Between(open_home(), happens), RUN)
    log.read()
    log.read()
    assert log.states == owner.states and log.states[RUN].desired == RUNNING


# --- the key -------------------------------------------------------------------------------------


def test_the_key_is_made_once_and_for_its_owner_alone(
    open_home: Callable[..., Home],
) -> None:
    old = os.umask(0)
    try:
        first = open_home().signing_key()
    finally:
        os.umask(old)
    path = key_path(open_home().path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    said = path.read_bytes()
    signed = first.sign(COMMANDS, RUN, b"x")
    assert open_home().signing_key().signed(signed, COMMANDS, RUN, b"x")
    assert path.read_bytes() == said and len(said.strip()) == 64
    assert [entry.name for entry in path.parent.iterdir()] == ["command.key"], "nothing is left"
    assert said.decode().strip() not in repr(first)


def test_a_key_is_not_made_for_a_reader(tmp_path: Path) -> None:
    assert load_key(tmp_path / "home", make=False) is None
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 64])
def test_a_file_that_is_no_key_is_said_so(tmp_path: Path, content: bytes) -> None:
    key_path(tmp_path).write_bytes(content)
    with pytest.raises(InputError, match=r"command\.key"):
        load_key(tmp_path, make=True)


def test_what_is_signed_cannot_be_cut_otherwise() -> None:
    key = Key(b"k" * 32)
    assert key.sign("ab", "c", b"d") != key.sign("a", "bc", b"d")
    assert key.sign("a", "bc", b"d") != key.sign("a", "b", b"cd")
    assert not key.signed("", "a", "b", b"c") and not key.signed("\udc80", "a", "b", b"c")


MAKER = """
import sys
from pathlib import Path
from rookery.control.signing import load_key
print("ready", flush=True)
sys.stdin.readline()
print(load_key(Path(sys.argv[1]), make=True).sign("t", "r", b"x"), flush=True)
"""


def test_makers_in_many_processes_agree_on_one_key(tmp_path: Path) -> None:
    home, pipe = tmp_path / "home", subprocess.PIPE
    argv = [sys.executable, "-c", MAKER, str(home)]
    with contextlib.ExitStack() as stack:
        makers = []
        for _ in range(MAKERS):
            maker = stack.enter_context(subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True))
            stack.callback(maker.kill)
            makers.append(maker)
        for maker in makers:
            assert maker.stdout is not None and maker.stdout.readline() == "ready\n"
        for maker in makers:
            assert maker.stdin is not None
            maker.stdin.write("go\n")
            maker.stdin.flush()
        signed = [maker.communicate(timeout=RACE_S)[0].strip() for maker in makers]
    key = load_key(home, make=False)
    assert key is not None and signed == [key.sign("t", "r", b"x")] * MAKERS
    assert os.listdir(home) == ["command.key"]
    assert stat.S_IMODE(key_path(home).stat().st_mode) == 0o600


def test_makers_in_many_threads_agree_on_one_key(tmp_path: Path) -> None:
    for race in range(RACES):
        home, signatures = tmp_path / str(race), list[str]()
        start = threading.Barrier(MAKERS)

        def make(home: Path = home, start: Any = start, found: list[str] = signatures) -> None:
            start.wait(RACE_S)
            key = load_key(home, make=True)
            assert key is not None
            found.append(key.sign(COMMANDS, RUN, b"x"))

        threads = [threading.Thread(target=make) for _ in range(MAKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(RACE_S)
        assert len(signatures) == MAKERS and len(set(signatures)) == 1
        assert os.listdir(home) == ["command.key"]
