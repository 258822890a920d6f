"""The near client does what the far one does, by the same methods, in a home without a server."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rookery.bus import Outgoing
from rookery.bus.sqlite import SqliteBus
from rookery.client import Client, RemoteRun, open_client
from rookery.client.local import LocalClient, LocalRun
from rookery.control.home import Home
from rookery.errors import InputError, Rejected, RookeryError, TimedOut, UnknownName
from rookery.messages import METRICS_TRAINING, LedgerSummary, RunEnded, TrainingMetrics, encode_json
from tests.conftest import fill, remount, wait_until

CONFIG = {"environment": {"id": "CartPole-v1"}, "stop": {"steps": 1000}}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LocalClient]:
    with LocalClient(Home(tmp_path)) as made:
        yield made


@pytest.fixture
def run(client: LocalClient) -> LocalRun:
    return client.submit(CONFIG, reason="a try")


# --- one interface -------------------------------------------------------------------------------


def public(kind: type[Any]) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("near", "far"), [(LocalClient, Client), (LocalRun, RemoteRun)])
def test_near_and_far_have_the_same_methods(near: type[Any], far: type[Any]) -> None:
    here, there = public(near), public(far)
    assert here.keys() == there.keys()
    for name, method in here.items():
        assert isinstance(method, property) == isinstance(there[name], property), name
        if not isinstance(method, property):
            assert parameters(method) == parameters(there[name]), name


def parameters(method: Any) -> list[tuple[str, Any, Any, Any]]:
    found = inspect.signature(method).parameters.values()
    return [(p.name, p.kind, p.default, p.annotation) for p in found]


def test_a_name_of_a_server_chooses_the_far_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOKERY_HOME", str(tmp_path))
    near, far = open_client(), open_client("http://127.0.0.1:1/#token=rk_x")
    assert isinstance(near, LocalClient) and near.home.path == tmp_path
    assert isinstance(far, Client) and far.url == "http://127.0.0.1:1"


# --- runs ----------------------------------------------------------------------------------------


def test_a_run_is_submitted_once_for_one_key(client: LocalClient) -> None:
    first = client.submit(CONFIG, start=False, idempotency_key="k")
    assert client.submit(CONFIG, start=False, idempotency_key="k").id == first.id
    assert first.answer is not None and first.answer.outcome == "accepted"
    would = client.submit(CONFIG, dry_run=True)
    assert would.outcome == "would_accept" and len(client.runs()) == 1
    with pytest.raises(InputError, match="CartPole-v1"):
        client.submit({"environment": {"id": "CartPoel-v1"}})


def test_runs_are_listed_newest_first_and_chosen(client: LocalClient, run: LocalRun) -> None:
    second = client.submit(CONFIG, start=False)
    assert [row.run for row in client.runs()] == [second.id, run.id]
    assert [row.run for row in client.runs(status="queued")] == [run.id]
    assert client.runs(environment="LunarLander-v3") == []
    assert client.run("last").id == second.id
    with pytest.raises(UnknownName):
        client.run("nope")


def test_changes_are_answered_here_and_stand_in_the_audit(
    client: LocalClient, run: LocalRun
) -> None:
    assert run.set(learning_rate=1e-4, reason="too wild").outcome == "accepted"
    assert run.scale(actors=2, learner=1).effect.count(";") == 1
    assert run.stop().outcome == "accepted"
    detail = run.detail()
    assert (detail.status, detail.actors_wanted, detail.owner) == ("stopped", 2, "")
    assert detail.hyperparameters["algorithm.learning_rate"] == 1e-4
    assert run.config()["actors"]["count"] == 2
    entries = client.audit(run.id)
    assert [e.kind for e in entries[:3]] == ["create_run", "start_run", "set_hyperparameters"]
    assert {e.outcome for e in entries} == {"accepted"} and entries[2].reason == "too wild"
    assert entries == client.audit() == run.audit()
    answered = [e for e in run.events_page().entries if e.kind == "command_accepted"]
    assert len(answered) == len(entries)


def test_a_run_is_labelled_and_shows_it(client: LocalClient, run: LocalRun) -> None:
    assert run.label(name="a try", tags=["nightly"], notes="so far").outcome == "accepted"
    run.label(tags=["nightly", "good"], reason="it learns")
    detail = run.detail()
    assert (detail.name, detail.tags, detail.notes) == ("a try", ["nightly", "good"], "so far")
    assert client.runs()[0].tags == ["nightly", "good"]
    assert client.audit(run.id)[-1].data["tags"] == ["nightly", "good"]
    with pytest.raises(InputError, match="out of range"):
        run.label(tags=["two words"])


def test_a_run_is_labelled_when_it_is_created_and_found_by_that(client: LocalClient) -> None:
    made = client.submit(CONFIG, start=False, name="a try", tags=["nightly"], notes="so far")
    client.submit(CONFIG, start=False)
    detail = client.run("a try").detail()
    assert (detail.run, detail.name, detail.tags) == (made.id, "a try", ["nightly"])
    assert detail.notes == "so far"
    assert [row.run for row in client.runs(search="far", columns=["seed"])] == [made.id]
    assert [row.run for row in client.runs(tag="nightly", limit=1)] == [made.id]
    with pytest.raises(InputError, match=r"write tags=\['nightly'\]"):
        client.submit(CONFIG, tags="nightly")


def test_what_its_owner_rejects_is_raised(run: LocalRun) -> None:
    run.stop()
    with pytest.raises(Rejected, match="start it first"):
        run.pause()
    assert run.pause(dry_run=True).outcome == "would_reject"
    with pytest.raises(InputError, match="out of range"):
        run.scale(actors=-1)


def test_a_run_that_was_left_behind_is_deleted(client: LocalClient, run: LocalRun) -> None:
    with pytest.raises(InputError, match="confirm"):
        run.delete("yes")
    assert run.delete(run.id, dry_run=True).outcome == "would_reject"  # it waits for an owner
    assert run.delete(run.id).outcome == "accepted"
    assert client.runs() == [] and not Path(run.directory).exists()
    with pytest.raises(UnknownName):
        run.detail()


def test_nobody_carries_it_until_somebody_does(client: LocalClient, run: LocalRun) -> None:
    assert not client.carries and not run.is_carried()
    lease = client.home.take_lease(run.id)
    assert lease is not None
    with lease:
        assert run.is_carried() and run.detail().owner == "terminal"


def test_tokens_and_environments_are_those_of_the_home(client: LocalClient) -> None:
    made = client.create_token("read", label="bob")
    assert [token.id for token in client.tokens()] == [made.id]
    client.revoke_token(made.id)
    with pytest.raises(UnknownName, match="tokens list"):
        client.revoke_token(made.id)
    assert any(e.id == "CartPole-v1" for e in client.environments("cartpole"))


# --- what happens --------------------------------------------------------------------------------


def training(run: str, steps: int) -> TrainingMetrics:
    return TrainingMetrics(
        run=run,
        policy="main",
        generation=1,
        updates=1,
        env_steps=steps,
        train_s=1.0,
        steps_per_s=640.0,
        recent_steps_per_s=640.0,
        episodes=7,
        mean_return_100=21.5,
        mean_length_100=21.5,
        lag_mean=0.0,
        lag_max=0,
        ledger=LedgerSummary(trained=steps, dropped={}, pending=0, position=(), seen={}),
        values={},
    )


def test_metrics_and_the_diagnosis_come_from_the_bus(client: LocalClient, run: LocalRun) -> None:
    assert run.metrics().points == 0
    Path(run.directory).mkdir(exist_ok=True)
    with contextlib.closing(SqliteBus(client.home.bus_path(run.id))) as bus:
        bus.publish([Outgoing(METRICS_TRAINING, encode_json(training(run.id, 640)), key=run.id)])
    assert run.metrics(["env_steps"]).series[0].value == [640]
    assert client.runs()[0].env_steps == 640
    assert run.detail().env_steps == run.detail().balance.trained == 640
    assert run.why().summary.startswith(f"{run.id} waits for a server: rookery serve")


def test_what_happens_is_followed_from_now_on(client: LocalClient, run: LocalRun) -> None:
    with client.follow(kinds=("events", "commands")) as stream:
        assert stream.poll(0.0) == []
        run.set(learning_rate=1e-4)
        found = stream.poll(5.0)
        assert {(e.channel, e.kind) for e in found} == {
            ("commands", "set_hyperparameters"),
            ("events", "command_accepted"),
        }
        assert stream.poll(0.0) == [] and stream.trouble is None
    with run.follow(("commands",), after=-1) as stream:
        assert [e.kind for e in stream.poll(0.0)][:2] == ["create_run", "start_run"]


def test_events_come_as_they_happen(client: LocalClient, run: LocalRun) -> None:
    async def first() -> str:
        async for event in run.events(("events",), after=-1):
            return event.kind
        raise AssertionError("it ended")

    assert asyncio.run(asyncio.wait_for(first(), 20)) == "command_accepted"


def test_waiting_ends_with_the_run_or_in_time(client: LocalClient, run: LocalRun) -> None:
    with pytest.raises(TimedOut, match="queued"):
        run.wait(timeout_s=0.2)
    client.home.record(RunEnded(run=run.id, status="finished", reason="enough"))
    assert run.wait(timeout_s=20).reason == "enough"


# --- disks that are full, and homes that may only be read ----------------------------------------


@pytest.mark.parametrize("watched", [False, True])  # by a process that has the log open
def test_a_run_can_be_deleted_where_there_is_no_room_for_the_command(
    small_disk: Path, watched: bool
) -> None:
    home = small_disk / "home"
    with LocalClient(Home(home)) as client:
        run = client.submit(CONFIG).id
        (home / run).mkdir(exist_ok=True)
        (home / run / "weights").write_bytes(bytes(4 << 20))
    other = Home(home)
    with contextlib.closing(other):
        if not watched:  # what lies beside the file goes with the last who closes it, which may be
            # a thread that has sent a command and is just ending
            beside = other.path / "control.sqlite-shm"
            wait_until(lambda: not beside.exists(), "everybody to have closed the log", 20)
        _ = other.control if watched else None
        fill(small_disk)
        with LocalClient(Home(home)) as client:
            assert [row.run for row in client.runs()] == [run]
            with pytest.raises(RookeryError, match="disk is full"):
                client.run(run).pause("to see")
            assert client.run(run).delete(run, "no room").outcome == "accepted"
            assert client.runs() == [] and not (home / run).exists()


def test_a_home_that_may_not_be_written_says_so_only_to_who_writes(small_disk: Path) -> None:
    with LocalClient(Home(small_disk / "home")) as client:
        run = client.submit(CONFIG).id
    remount(small_disk, "ro")
    with LocalClient(Home(small_disk / "home")) as client:
        assert [row.run for row in client.runs()] == [run]
        assert client.run("last").detail().status == "queued"
        assert [entry.kind for entry in client.audit(run)] == ["create_run", "start_run"]
        with pytest.raises(InputError, match="may not be written; set ROOKERY_HOME"):
            client.run(run).pause("to see")
        with pytest.raises(InputError, match="may not be written; set ROOKERY_HOME"):
            client.submit(CONFIG)
    remount(small_disk, "rw")
