"""`rookery bus` says the same of every bus: one small run on SQLite and one on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from rookery.bus import Outgoing
from rookery.bus.memory import MemoryBus
from rookery.control.bus_topics import TOPICS, Tail
from rookery.messages import EVENTS, MatchPlayed

if TYPE_CHECKING:
    from tests.conftest import Cli

TRAIN = (
    *("train", "CartPole-v1", "--actors", 2, "--envs-per-actor", 8, "--steps", 8_000, "--json"),
    *("--set", "actors.rollout_steps=32"),
)
OF_ALL_RUNS = ["commands.control", "events"]
OF_A_RUN = ["experiences", "model_updates", "metrics.training", "metrics.actors"]
FOLLOW_S = 60.0


class Ran(NamedTuple):
    cli: Cli
    run: str
    bus: str

    @property
    def partitions(self) -> int:
        """Of `experiences`."""
        return 2 if self.bus == "kafka" else 1

    def tail(self, topic: str, *options: object) -> list[dict[str, Any]]:
        done = self.cli("bus", "tail", topic, *options, "--json").json
        assert done["topic"] == topic
        return list(done["messages"])


@pytest.fixture(scope="module", params=["sqlite", pytest.param("kafka", marks=pytest.mark.soak)])
def ran(request: pytest.FixtureRequest) -> Ran:
    """A run that has ended, for tests that only look."""
    kafka = request.param == "kafka"
    cli: Cli = request.getfixturevalue("shared_kafka_cli" if kafka else "shared_cli")
    done = cli(*TRAIN, *(("--set", "bus.partitions=2") if kafka else ()))
    return Ran(cli, done.json["run"], request.param)


# --- topics --------------------------------------------------------------------------------------


def test_topics_tell_what_is_kept_and_who_uses_it(ran: Ran) -> None:
    found = ran.cli("bus", "topics", "--json").json
    assert (found["run"], found["bus"]) == (ran.run, ran.bus)
    topics = {row["topic"]: row for row in found["topics"]}
    assert list(topics)[:6] == OF_ALL_RUNS + OF_A_RUN
    assert ("newest" in topics) == (ran.bus == "kafka")
    for row in topics.values():
        few = row["topic"] == "metrics.actors"  # one a second, and the run was short
        assert (few or row["kept"] > 0) and sum(row["end"]) >= row["kept"]
        assert (row["bytes"] is None) == (ran.bus == "kafka")
        assert len(row["end"]) == row["partitions"] and row["writers"] and row["readers"]
    assert topics["experiences"]["partitions"] == ran.partitions
    assert topics["experiences"]["readers"] == "learner"


def test_topics_are_a_table_of_the_newest_run(ran: Ran) -> None:
    lines = ran.cli("bus").stdout.splitlines()
    assert lines[0].startswith(f"{ran.run} on ") and lines[1].startswith("TOPIC ")
    assert [line.split()[0] for line in lines[2:8]] == OF_ALL_RUNS + OF_A_RUN
    assert ran.cli("bus", "topics", ran.run).stdout.splitlines() == lines


# --- tail ----------------------------------------------------------------------------------------


def test_tail_prints_readable_messages_one_per_line(ran: Ran) -> None:
    lines = ran.cli("bus", "tail", "metrics.training", "-n", 2).stdout.splitlines()
    first, last = (json.loads(line) for line in lines)
    assert first["type"] == last["type"] == "training" and last["run"] == ran.run
    assert first["updates"] <= last["updates"] and last["env_steps"] >= 8_000


def test_tail_of_the_control_log_is_of_all_runs_or_of_one(ran: Ran) -> None:
    others = MatchPlayed(run="other", players=("a", "b"), wins=1, draws=0, losses=0)
    ran.cli.home.record(*[others] * 20)
    everybody = ran.tail("events", "-n", 1000)
    mine = ran.tail("events", ran.run, "-n", 1000)
    assert {row["message"]["run"] for row in everybody} >= {ran.run, "other"}
    assert {row["message"]["run"] for row in mine} == {ran.run}
    assert "run_ended" in [row["message"]["type"] for row in mine]
    assert ran.tail("events", ran.run, "-n", 2) == mine[-2:]  # however far back they are
    commands = [row["message"]["type"] for row in ran.tail("commands.control", ran.run)]
    assert commands == ["create_run", "start_run"]


def test_tail_of_a_binary_topic_tells_headers_and_size(ran: Ran) -> None:
    rows = ran.tail("experiences", "-n", 1000)
    fragments = [row for row in rows if row["headers"]["kind"] == "fragment"]
    assert fragments and all("message" not in row for row in rows)
    assert all(row["bytes"] > 1000 and int(row["headers"]["steps"]) > 0 for row in fragments)
    assert {row["partition"] for row in rows} <= set(range(ran.partitions))
    lines = ran.cli("bus", "tail", "model_updates", "-n", 1000).stdout.splitlines()
    line = next(line for line in reversed(lines) if "kind=weights" in line)
    assert line.startswith("0:") and line.endswith(" bytes")


def test_tail_gives_the_newest_oldest_first(ran: Ran) -> None:
    rows = ran.tail("model_updates", "-n", 1000)
    assert [row["offset"] for row in rows] == sorted(row["offset"] for row in rows)
    assert ran.tail("model_updates", "-n", 3) == rows[-3:]


@pytest.mark.parametrize("where", ["cli", "kafka_cli"])
def test_tail_shows_where_a_message_is_that_cannot_be_read(
    request: pytest.FixtureRequest, where: str
) -> None:
    cli: Cli = request.getfixturevalue(where)
    good = MatchPlayed(run="one", players=("a", "b"), wins=1, draws=0, losses=0)
    cli.home.record(good)
    (offset,) = cli.home.control.publish([Outgoing(EVENTS, b"\xffno", key="noise")])
    first, second = cli("bus", "tail", "events", "--json").json["messages"]
    assert first["message"]["wins"] == 1 and "unreadable" not in first
    assert (second["offset"], second["bytes"]) == (offset, 3) and "message" not in second
    line = json.loads(cli("bus", "tail", "events", "-n", 1).stdout)
    assert line["offset"] == offset and line["unreadable"].startswith("not a valid message")


@pytest.fixture
def following(ran: Ran) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "rookery", "bus", "tail", "events", "-n", "1", "--follow"]
    process = subprocess.Popen(
        argv, env=ran.cli.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(FOLLOW_S, process.kill)  # a line that never comes ends the read
    watchdog.start()
    yield process
    watchdog.cancel()
    process.kill()
    process.communicate()


def test_tail_follows_until_it_is_interrupted(ran: Ran, following: subprocess.Popen[str]) -> None:
    assert following.stdout is not None
    assert following.stdout.readline() != ""  # the newest: from here on it follows
    ran.cli.home.record(MatchPlayed(run="late", players=("a", "b"), wins=3, draws=0, losses=0))
    found = json.loads(following.stdout.readline())
    assert (found["run"], found["wins"]) == ("late", 3)
    following.send_signal(signal.SIGINT)
    assert following.wait(FOLLOW_S) == 130
    assert following.stderr is not None and "Traceback" not in following.stderr.read()


@pytest.mark.timeout(30)
def test_what_comes_after_the_newest_is_followed_without_a_gap() -> None:
    bus, topic = MemoryBus(), TOPICS[2]
    bus.publish([Outgoing(topic.name, b"", key=str(i)) for i in range(3)])
    tail = Tail(topic, bus, only=None)
    assert [row["key"] for row in tail.newest(2)] == ["1", "2"]
    bus.publish([Outgoing(topic.name, b"", key=str(i)) for i in range(3, 6)])
    assert [row["key"] for row in islice(tail.follow(), 3)] == ["3", "4", "5"]


# --- lag -----------------------------------------------------------------------------------------


def test_lag_is_what_lies_past_the_learners_position(ran: Ran) -> None:
    found = ran.cli("bus", "lag", ran.run, "--json").json
    rows = ran.tail("experiences", "-n", 10_000)
    for each in found["partitions"]:
        mine = [r for r in rows if r["partition"] == each["partition"]]
        unread = [r for r in mine if r["offset"] >= each["position"]]
        assert each["records"] == len(unread) and each["removed"] == 0
        assert each["steps"] == sum(int(r["headers"]["steps"]) for r in unread)
        assert each["end"] >= each["position"]
    assert any(each["position"] > 0 for each in found["partitions"])
    assert len(found["partitions"]) == ran.partitions
    assert found["records"] > 0  # that the actors left, at least, came after the checkpoint
    shown = ran.cli("runs", "show", ran.run, "--json").json
    assert found["weights_version"] == shown["weights_version"]
    assert found["steps"] <= shown["balance"]["in_flight"]
    text = ran.cli("bus", "lag").stdout.splitlines()
    assert f"{found['records']:,} records and {found['steps']:,} steps behind" in text[0]
    assert len(text) == 2 + ran.partitions


# --- bad input -----------------------------------------------------------------------------------

REFUSED = {
    "unknown topic": (("tail", "metric.training"), "metrics.training"),
    "no topic": (("tail",), "TOPIC"),
    "unknown run": (("topics", "nope"), "rookery runs list"),
    "unknown run of a topic": (("tail", "experiences", "nope"), "rookery runs list"),
    "unknown run to measure": (("lag", "nope"), "rookery runs list"),
    "no messages": (("tail", "events", "-n", 0), "-n"),
    "unknown action": (("topcs",), "topics"),
    "unknown option": (("tail", "events", "--folow"), "--follow"),
}


@pytest.mark.parametrize("ran", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED)
def test_is_refused_in_one_line(ran: Ran, arguments: tuple[object, ...], says: str) -> None:
    assert says in ran.cli.refused("bus", *arguments)


def test_the_index_of_a_cluster_is_no_topic_of_a_file(shared_cli: Cli) -> None:
    assert "unknown topic 'newest'" in shared_cli.refused("bus", "tail", "newest")


@pytest.mark.soak
def test_a_run_in_memory_left_no_topics(cli: Cli) -> None:
    done = cli(
        *("train", "CartPole-v1", "--launcher", "inline", "--bus", "memory", "--steps", 64),
        *("--envs-per-actor", 4, "--set", "actors.rollout_steps=8", "--json"),
    )
    topics = cli("bus", "topics", "--json").json["topics"]
    assert [row["topic"] for row in topics] == OF_ALL_RUNS
    for arguments in (("tail", "experiences"), ("lag",)):
        assert f"run {done.json['run']} has no bus" in cli.refused("bus", *arguments)


# --- other tools ---------------------------------------------------------------------------------


def kcat(cli: Cli, topic: str, *options: str) -> list[str]:
    """The lines that `kcat` prints of a topic that it reads to its end."""
    cluster = cli.home.cluster
    assert cluster is not None
    argv = ["kcat", "-C", "-e", "-q", "-b", cluster.servers, "-t", cluster.prefix + topic]
    done = subprocess.run(
        [*argv, *options], capture_output=True, text=True, timeout=60, check=True, errors="replace"
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("ran", ["kafka"], indirect=True)
def test_kcat_reads_metrics_as_json(ran: Ran) -> None:
    lines = [json.loads(line) for line in kcat(ran.cli, "metrics.training")]
    assert [line["run"] for line in lines] == [ran.run] * len(lines)
    assert lines[-1]["env_steps"] >= 8_000


@pytest.mark.parametrize("ran", ["kafka"], indirect=True)
def test_kcat_sees_the_headers_of_the_newest_weights(ran: Ran) -> None:
    lines = kcat(ran.cli, "model_updates", "-f", "%k %h\\n")
    newest = [line for line in lines if "kind=weights" in line][-1]
    version = ran.cli("runs", "show", ran.run, "--json").json["weights_version"]
    assert newest == f"{ran.run}/main run={ran.run},kind=weights,version={version}"
