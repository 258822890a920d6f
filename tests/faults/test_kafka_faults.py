"""A real broker, killed; workers that come, go and die on their own: each step is counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rookery.control.signing import KEY_VARIABLE, key_path
from rookery.messages import EXPERIENCES
from tests.faults.test_faults import tells_of
from tools.kafka.broker import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rookery.bus import Bus
    from tests.conftest import Cli, Started

SMALL = ("CartPole-v1", "--envs-per-actor", 16, "--set", "actors.rollout_steps=32")
OFTEN = ("--set", "checkpoint.interval_s=1", "--set", "restarts.backoff_s=0.05")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A broker that this test may kill."""
    with Cluster(directory=tmp_path / "kafka") as made:
        yield made


@pytest.fixture
def cluster_cli(cluster: Cluster, home: Path, kafka_cli_on: Callable[..., Cli]) -> Cli:
    return kafka_cli_on(home, cluster)


def check_accounts(shown: dict[str, Any]) -> None:
    balance = shown["balance"]
    dropped = sum(balance["dropped"].values())
    assert balance["produced"] == balance["trained"] + dropped + balance["in_flight"], balance
    assert balance["trained"] == shown["env_steps"]
    assert (shown["duplicates"], shown["gaps"], shown["damaged"]) == (0, 0, 0)


def lose_the_broker(cli: Cli, cluster: Cluster, away_s: float, eventually: Any) -> str:
    """A run whose broker is killed and comes back; returns what its progress said."""
    running = cli.start("train", *SMALL, *OFTEN, "--actors", 2, "--steps", 60_000)
    running.wait_until(lambda: running.env_steps > 10_000, "training")
    cluster.kill(0)
    out = running.output
    eventually(lambda: "waiting: no broker" in out.read_text(), "word of the loss", 30)
    running.named("bus", "no Kafka broker answers")
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(away_s)
    cluster.start(0)
    done = running.finish(timeout=120, expect=0)
    shown = cli("runs", "show", running.run, "--json").json
    assert shown["status"] == "finished" and shown["env_steps"] >= 60_000
    check_accounts(shown)
    assert all(worker["restarts"] == 0 for worker in shown["workers"])
    return done.stdout


def test_a_run_waits_for_a_broker_that_was_killed(
    cluster_cli: Cli, cluster: Cluster, eventually: Any
) -> None:
    lose_the_broker(cluster_cli, cluster, 0.5, eventually)


@pytest.mark.soak
def test_a_run_waits_for_a_broker_that_is_away_for_long(
    cluster_cli: Cli, cluster: Cluster, eventually: Any
) -> None:
    lose_the_broker(cluster_cli, cluster, 20.0, eventually)


@pytest.mark.soak
def test_a_worker_that_starts_while_the_broker_is_frozen_waits_for_it(
    cluster_cli: Cli, cluster: Cluster
) -> None:
    """For longer than three of its lives would take, if each ended with the first silence."""
    cli = cluster_cli
    running = cli.start("train", *SMALL, *OFTEN, "--actors", 2, "--steps", 10**9, "--json")
    running.wait_until(lambda: running.env_steps > 5_000, "training")
    actor = running.wait_until(lambda: running.worker("actor", 1), "an actor")
    os.kill(cluster.pid(0), signal.SIGSTOP)
    try:
        actor.kill()
        ended = time.monotonic() + 40.0
        running.wait_until(lambda: time.monotonic() > ended, "a long silence")
        running.named("bus", "no Kafka broker answers")
    finally:
        os.kill(cluster.pid(0), signal.SIGCONT)
    steps = running.env_steps
    running.wait_until(lambda: running.env_steps > steps, "training to go on", 60)
    running.interrupt()
    deaths = cli.home.state(running.run).workers["actor-1"].deaths
    assert deaths == 1, deaths
    check_accounts(cli("runs", "show", running.run, "--json").json)


@pytest.mark.soak
def test_a_run_waits_for_a_broker_that_is_frozen(
    cluster_cli: Cli, cluster: Cluster, eventually: Any
) -> None:
    cli = cluster_cli
    running = cli.start("train", *SMALL, *OFTEN, "--actors", 2, "--steps", 60_000)
    running.wait_until(lambda: running.env_steps > 10_000, "training")
    os.kill(cluster.pid(0), signal.SIGSTOP)
    try:
        out = running.output
        eventually(lambda: "waiting: no broker" in out.read_text(), "word of the silence", 90)
        running.named("bus", "no Kafka broker answers", 40)
    finally:
        os.kill(cluster.pid(0), signal.SIGCONT)
    running.finish(timeout=120, expect=0)
    shown = cli("runs", "show", running.run, "--json").json
    assert shown["status"] == "finished"
    check_accounts(shown)


def joined(cli: Cli, kind: str, run: str, where: Path) -> subprocess.Popen[bytes]:
    """A worker that joins a run from a machine that has none of its files, but for checkpoints."""
    where.mkdir(exist_ok=True)
    key = str(key_path(cli.home.path))
    environment = {**cli.environment, "ROOKERY_HOME": str(where), KEY_VARIABLE: key}
    argv = [sys.executable, "-m", "rookery", kind, run]
    with open(where / "log", "wb") as log:
        return subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd=where)


def actors_of(running: Started) -> dict[str, str]:
    return {
        name: worker.kind
        for name, worker in running.cli.home.state(running.run).workers.items()
        if worker.kind == "actor" and worker.running
    }


def produced_by(running: Started, actor: str) -> int:
    """Steps of an actor that the learner has seen."""
    from rookery.control.queries import newest_training

    bus = running.cli.home.read_run_bus(running.cli.home.state(running.run))
    assert bus is not None
    metrics = newest_training(bus, running.run)
    bus.close()
    return (
        sum(n for a, n in metrics.ledger.seen.items() if a.startswith(f"{actor}."))
        if metrics
        else 0
    )


@pytest.mark.soak
def test_actors_join_leave_and_die_and_another_learner_takes_over(
    kafka_cli: Cli, tmp_path: Path, eventually: Any
) -> None:
    checkpoints = ("--set", f"checkpoint.uri=file:{tmp_path / 'store'}")
    running = kafka_cli.start(
        *("train", *SMALL, *OFTEN, *checkpoints, "--steps", 100_000_000, "--json"),
        *("--set", "actors.heartbeat_s=0.5"),
    )
    leaver = joined(kafka_cli, "actor", running.run, tmp_path / "second")
    victim = joined(kafka_cli, "actor", running.run, tmp_path / "third")
    try:
        names = running.wait_until(
            lambda: (
                [n for n in actors_of(running) if n != "actor-0"][:2]
                if len(actors_of(running)) == 3
                else None
            ),
            "two more actors",
        )
        for name in names:
            index = name.partition("-")[2]
            running.wait_until(lambda i=index: produced_by(running, i) > 0, f"steps of {name}")
        leaver.send_signal(signal.SIGTERM)
        assert leaver.wait(30) == 0
        victim.kill()
        victim.wait(30)
        gone = "its machine or its network is gone, or it was killed"
        (dead,) = actors_of(running).keys() - {"actor-0"}
        running.named(dead, gone)
        before = running.env_steps
        running.wait_until(
            lambda: running.env_steps > before + 20_000, "training without the dead actor"
        )
        taker = joined(kafka_cli, "learner", running.run, tmp_path / "fourth")
        running.wait_until(
            lambda: (running.show()["weights_version"] or "").startswith("2."), "the new learner"
        )
        running.process.send_signal(signal.SIGINT)
        done = running.finish(timeout=60)
        assert done.code == 130
        assert taker.wait(60) == 0
    finally:
        for process in (leaver, victim):
            process.kill()
    shown = kafka_cli("runs", "show", running.run, "--json").json
    check_accounts(shown)
    assert shown["weights_version"].startswith("2.")


def kill_worker(running: Started, name: str) -> None:
    """kill -9, and wait until another has taken its context."""
    kind, _, index = name.partition("-")
    victim = running.wait_until(lambda: running.worker(kind, int(index)), f"a living {name}")
    killed = running.cli.home.state(running.run).workers[name].incarnation
    victim.kill()

    def replaced() -> bool:
        worker = running.cli.home.state(running.run).workers[name]
        return worker.incarnation > killed and worker.running

    running.wait_until(lambda: tells_of(running, name, "ended by SIGKILL"), "why to tell of it", 20)
    running.wait_until(replaced, f"a new {name}")


@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(("learner-0", "actor-1"), marks=pytest.mark.soak, id="both"),
        pytest.param(("learner-0",), marks=pytest.mark.soak, id="learner"),
        pytest.param(("actor-0",) * 3, marks=pytest.mark.soak, id="an actor, thrice"),
        pytest.param(("actor-0", "learner-0") * 3, marks=pytest.mark.soak, id="both, thrice"),
    ],
)
def test_workers_that_are_killed_are_replaced_and_nothing_is_trained_twice(
    kafka_cli: Cli, victims: tuple[str, ...]
) -> None:
    steps = 40_000 * (len(victims) + 1)
    running = kafka_cli.start("train", *SMALL, *OFTEN, "--actors", 2, "--steps", steps, "--json")
    for number, name in enumerate(victims):
        running.wait_until(lambda n=number: running.env_steps > 40_000 * (n + 0.3), "training")
        kill_worker(running, name)
    assert running.finish(timeout=200, expect=0).json["env_steps"] >= steps
    shown = kafka_cli("runs", "show", running.run, "--json").json
    check_accounts(shown)
    assert sum(worker["restarts"] for worker in shown["workers"]) == len(victims)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_three_brokers_lose_the_leader_of_experiences_twice(
    tmp_path: Path, home: Path, kafka_cli_on: Callable[..., Cli]
) -> None:
    with Cluster(directory=tmp_path / "kafka", brokers=3) as cluster:
        cli = kafka_cli_on(home, cluster)
        options = ("--actors", 2, "--steps", 400_000, "--set", "bus.replication=3")
        running = cli.start("train", *SMALL, *OFTEN, *options, "--json")
        pauses = []
        for number in range(2):
            running.wait_until(
                lambda n=number: running.env_steps > 60_000 + 100_000 * n, "training"
            )
            leader = cluster.leader_of("experiences")
            before, since = running.env_steps, time.monotonic()
            cluster.kill(leader)
            running.wait_until(lambda b=before: running.env_steps > b + 5_000, "training on")
            pauses.append(time.monotonic() - since)
            running.named(None, "nothing is stuck")
            cluster.start(leader)
        running.finish(timeout=300, expect=0)
        shown = cli("runs", "show", running.run, "--json").json
        print("pauses", [round(pause, 1) for pause in pauses])
        check_accounts(shown)
        assert max(pauses) < 15.0


@pytest.mark.soak
def test_experience_that_retention_took_before_it_was_read_is_counted_as_lost(
    kafka_cli: Cli,
) -> None:
    """The learner is frozen while another hand cuts the log."""
    running = kafka_cli.start(
        *("train", *SMALL, *OFTEN, "--steps", 100_000_000, "--json"),
        *("--set", "bus.topics=per-run", "--set", "learner.max_policy_lag_versions=4"),
    )
    running.wait_until(lambda: running.env_steps > 5_000, "training")
    learner = running.wait_until(lambda: running.worker("learner"), "the learner")
    home, run = kafka_cli.home, running.run
    bus = home.open_run_bus(run, home.config(home.state(run)))

    def cut_unread() -> bool:
        """All but what its client may have fetched ahead: the first records after it froze."""
        learner.suspend()
        try:
            before, end = bus.end(EXPERIENCES), settled_end(bus)
            bus.retain(EXPERIENCES, end)
            return sum(end) >= sum(before) + 3
        finally:
            learner.resume()

    running.wait_until(cut_unread, "something unread to cut")
    running.wait_until(lambda: running.show()["balance"]["dropped"].get("lost", 0) > 0, "the loss")
    running.named(None, "nothing is stuck")
    running.interrupt()
    bus.close()
    shown = kafka_cli("runs", "show", run, "--json").json
    balance = shown["balance"]
    assert balance["exact"] and shown["gaps"] > 0, shown
    assert "lost" in kafka_cli("runs", "show", run).stdout


def settled_end(bus: Bus) -> tuple[int, ...]:
    """The end of `experiences` once the actor has used up what it was granted."""
    end, since = bus.end(EXPERIENCES), time.monotonic()
    while time.monotonic() < since + 1.0:
        if (now := bus.end(EXPERIENCES)) != end:
            end, since = now, time.monotonic()
    return end
