"""A real Kafka on loopback: it starts, keeps what it was given, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import BusError, InputError, UnknownName
from tools.kafka import jars as kafka_jars
from tools.kafka.broker import Cluster, Security, find_java, jars
from tools.kafka.java import spawn
from tools.kafka.ports import listens, reserve
from tools.kafka.storage import new_cluster_id

PATIENCE_S = 20.0
Eventually = Callable[..., Any]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_java()
    with Cluster(directory=tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster
    assert cluster.running == []


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """One node that runs, whatever the test before has done to it."""
    shared.start()
    return shared


def needs_java() -> None:
    try:
        find_java()
    except InputError as error:
        pytest.skip(str(error))


def make_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient(cluster.client_settings())
    admin.create_topics([NewTopic(name)])[name].result(PATIENCE_S)


def produce(settings: dict[str, str], topic: str, value: bytes) -> str:
    """The broker's answer, empty when it has taken the message."""
    answers: list[str] = []
    producer = Producer({**settings, "acks": "all"})
    producer.produce(topic, value, on_delivery=lambda error, _: answers.append(error))
    producer.flush(PATIENCE_S)
    (answer,) = answers
    return str(answer or "")


def consume(cluster: Cluster, topic: str) -> bytes:
    """The first message of a topic."""
    consumer = Consumer({**cluster.client_settings(), "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    message = consumer.poll(PATIENCE_S)
    consumer.close()
    assert message is not None and message.error() is None
    return bytes(message.value())


def topics(settings: dict[str, str], timeout_s: float = PATIENCE_S) -> set[str]:
    return set(AdminClient({**settings, "log_level": "0"}).list_topics(timeout=timeout_s).topics)


def lives(pid: int) -> bool:
    """A process that nobody has waited for is as dead as one that is gone."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


# --- one node ------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_message_outlives_kill_9_of_its_node(cluster: Cluster) -> None:
    make_topic(cluster, "moves")
    produce(cluster.client_settings(), "moves", b"e2e4")
    assert consume(cluster, "moves") == b"e2e4"
    servers, pid = cluster.servers, cluster.pid(0)

    cluster.kill(0)
    assert not psutil.pid_exists(pid)
    assert not listens(servers)
    cluster.start(0)

    assert cluster.servers == servers
    assert cluster.pid(0) != pid
    assert cluster.leader_of("moves") == 0
    assert consume(cluster, "moves") == b"e2e4"


@pytest.mark.soak
def test_a_node_that_was_asked_to_stop_is_gone_until_it_is_started_again(cluster: Cluster) -> None:
    make_topic(cluster, "stopping")
    pid = cluster.pid(0)

    cluster.stop()
    assert "[BrokerServer id=0] shut down completed" in cluster.log(0).read_text()
    assert cluster.running == []
    assert not psutil.pid_exists(pid)
    cluster.start()

    assert "stopping" in topics(cluster.client_settings())


def test_a_node_that_runs_is_not_started_twice(cluster: Cluster) -> None:
    pid = cluster.pid(0)
    cluster.start()
    assert cluster.running == [0]
    assert cluster.pid(0) == pid


def test_a_topic_without_a_leader_is_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.kafka.broker.LEADER_S", 0.1)
    with pytest.raises(BusError, match="'never-made' has no leader, or does not exist"):
        cluster.leader_of("never-made")


@pytest.mark.soak
def test_a_node_that_fails_to_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    needs_java()
    broken = Cluster(directory=tmp_path, settings={"num.io.threads": "some"})
    with pytest.raises(BusError, match=r"(?s)node-0/server\.log:.*num\.io\.threads"), broken:
        raise AssertionError("it started")


# --- what clients must prove ---------------------------------------------------------------------


@pytest.mark.soak
def test_users_encryption_and_permissions(tmp_path: Path) -> None:
    needs_java()
    users = {"rook": "castle", "pawn": "promote"}
    security = Security(users=users, tls=True, admins=("rook",))
    with Cluster(directory=tmp_path, listener_security=security, also_on="127.0.0.2") as cluster:
        rook, pawn = cluster.client_settings("rook"), cluster.client_settings("pawn", "PLAIN")
        make_topic(cluster, "secrets")
        assert topics(rook) == {"secrets"}
        assert topics({**rook, "bootstrap.servers": cluster.also_servers}) == {"secrets"}
        assert produce(rook, "secrets", b"x") == ""

        assert topics(pawn) == set()
        assert "authorization failed" in produce(pawn, "secrets", b"x")
        with pytest.raises(KafkaException):
            topics({**rook, "sasl.password": "wrong"}, timeout_s=1.0)


def test_an_admin_needs_a_password() -> None:
    with pytest.raises(InputError, match="admins without a password in users: king"):
        Security(users={"rook": "castle"}, admins=("king",))


# --- three nodes ---------------------------------------------------------------------------------


@pytest.mark.soak
def test_another_node_takes_over_from_a_killed_leader(
    tmp_path: Path, eventually: Eventually
) -> None:
    needs_java()
    with Cluster(directory=tmp_path, brokers=3) as cluster:
        make_topic(cluster, "moves")
        produce(cluster.client_settings(), "moves", b"e2e4")
        for _ in range(3):
            leader = cluster.leader_of("moves")
            cluster.kill(leader)
            eventually(lambda old=leader: cluster.leader_of("moves") != old, "a new leader", 30.0)
            assert consume(cluster, "moves") == b"e2e4"
            assert produce(cluster.client_settings(), "moves", b"e7e5") == ""
            cluster.start(leader)
            eventually(lambda: in_sync(cluster, "moves") == 3, "all replicas in sync", 30.0)


def in_sync(cluster: Cluster, topic: str) -> int:
    seen = AdminClient(cluster.client_settings()).list_topics(topic, timeout=PATIENCE_S)
    return len(seen.topics[topic].partitions[0].isrs)


# --- processes -----------------------------------------------------------------------------------

ORPHAN = """
import sys, time
from pathlib import Path
from tools.kafka.java import spawn
print(spawn(["/bin/sleep", "60"], {}, Path(sys.argv[1])).pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child")
def test_a_node_ends_with_a_parent_that_was_killed(tmp_path: Path, eventually: Eventually) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        eventually(lambda: psutil.Process(pid).name() == "sleep", "its start", 10.0)
        parent.kill()
    eventually(lambda: not lives(pid), "its end", 10.0)


@pytest.mark.soak
def test_a_node_outlives_the_thread_that_started_it(tmp_path: Path, eventually: Eventually) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(spawn(["/bin/sleep", "60"], {}, tmp_path / "log"))
        eventually(lambda: psutil.Process(started[0].pid).name() == "sleep", "its start", 10.0)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    with started[0] as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()


def test_a_port_is_held_for_a_node_that_is_down() -> None:
    with reserve("127.0.0.1") as held:
        host, port = held.getsockname()
        assert not listens(f"{host}:{port}")
        with reserve("127.0.0.1") as other:
            assert other.getsockname() != (host, port)
        held.listen()
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1 is taken"):
            reserve(host, port)


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.soak
def test_a_broker_that_stays_until_it_is_stopped(tmp_path: Path) -> None:
    needs_java()
    with reserve("127.0.0.1") as free:
        port = free.getsockname()[1]

    try:
        started = command("start", port, tmp_path / "a")
        assert f"rookery train CartPole-v1 --bus kafka://127.0.0.1:{port} " in started
        assert str(tmp_path / "a" / "node-0" / "server.log") in started
        pid = int((tmp_path / "a" / "pid").read_text())
        assert psutil.Process(pid).name() == "java"

        assert f"runs already, pid {pid}" in command("start", port, tmp_path / "a")
        taken = command("start", port, tmp_path / "b", expect=2)
        assert f"port {port} of 127.0.0.1 is taken" in taken
    finally:
        stopped = command("stop", port, tmp_path / "a")
    assert stopped == f"Kafka, pid {pid}, has stopped"
    assert not listens(f"127.0.0.1:{port}")


def test_stopping_leaves_a_process_alone_that_was_given_the_same_pid(tmp_path: Path) -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        (tmp_path / "pid").write_text(str(stranger.pid))
        assert command("stop", 9092, tmp_path) == f"no Kafka runs in {tmp_path}"
        assert stranger.poll() is None
        stranger.kill()


def command(verb: str, port: int, directory: Path, expect: int = 0) -> str:
    """What it said, which must be one line."""
    argv = [sys.executable, "-m", "tools.kafka.broker", verb]
    argv += ["--port", str(port), "--directory", str(directory)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == expect, done
    (line,) = (done.stderr if expect else done.stdout).splitlines()
    return line


# --- Java and jars -------------------------------------------------------------------------------


def test_missing_java_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(InputError, match="Kafka needs Java 17 or newer, and there is none: apt"):
        find_java()


def test_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_java(tmp_path / "old" / "bin", "11.0.1")
    new = fake_java(tmp_path / "new", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", os.pathsep.join([str(new.parent), os.environ["PATH"]]))
    assert find_java() == new
    monkeypatch.setenv("PATH", os.pathsep.join([str(old.parent), os.environ["PATH"]]))
    with pytest.raises(InputError, match=f"{old} is Java 11.0.1"):
        find_java()


def fake_java(directory: Path, version: str) -> Path:
    directory.mkdir(parents=True)
    program = directory / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the one jar of Kafka 9.9, and an empty cache."""
    jar = tmp_path / "maven" / "org" / "rook" / "nest" / "1.0" / "nest-1.0.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"twigs")
    table = tmp_path / "table.txt"
    table.write_text(f"# a comment\n9.9 org.rook:nest:1.0 {sha256(b'twigs').hexdigest()}\n")
    monkeypatch.setattr(kafka_jars, "TABLE", table)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ROOKERY_MAVEN", (tmp_path / "maven").as_uri())
    return jar


def test_jars_are_downloaded_once(maven: Path, tmp_path: Path) -> None:
    place = jars("9.9")
    assert place == tmp_path / "cache" / "rookery" / "kafka" / "9.9"
    assert [(path.name, path.read_bytes()) for path in place.iterdir()] == [
        ("nest-1.0.jar", b"twigs")
    ]
    maven.unlink()
    assert jars("9.9") == place


def test_a_wrong_checksum_is_refused(maven: Path, tmp_path: Path) -> None:
    maven.write_bytes(b"cuckoo")
    with pytest.raises(InputError, match=r"wrong checksum: file:.*nest-1\.0\.jar has SHA-256"):
        jars("9.9")
    assert list(tmp_path.rglob("cache/**/*.jar")) == []


def test_a_missing_jar_is_one_line(maven: Path) -> None:
    maven.unlink()
    with pytest.raises(
        InputError, match=r"^cannot download file:.*nest-1\.0\.jar: .*ROOKERY_MAVEN"
    ):
        jars("9.9")


def test_an_unknown_version_of_kafka_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match=r"version of Kafka '4\.3\.2'; did you mean 4\.3\.1\?"):
        jars("4.3.2")


def test_a_cluster_id_never_looks_like_an_option() -> None:
    found = [new_cluster_id() for _ in range(2000)]
    assert not any(each.startswith("-") for each in found)
    assert len(set(found)) == 2000 and {len(each) for each in found} == {22}
