"""Messages that are none of ours, put on a cluster by a plain producer while a run trains.

Those without the run's header are not ours to judge; the others are skipped, counted, and named by
their offset, and the run goes on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from confluent_kafka import Producer

from rookery.bus import EARLIEST, Outgoing
from rookery.bus.kafka.bus import KafkaBus
from rookery.bus.kafka.settings import KafkaSettings
from rookery.bus.memory import MemoryBus
from rookery.cli.text import show_text
from rookery.learner.credits import CreditBook
from rookery.learner.generations import Branch
from rookery.learner.inbox import Inbox
from rookery.learner.ledger import Ledger
from rookery.learner.walk_ins import WalkIns
from rookery.messages import COMMANDS, EXPERIENCES, SCHEMA, StopRun, WeightsVersion, encode_json
from rookery.messages.fragment import Fragment, FragmentHeader, encode_fragment
from rookery.messages.steps import Steps

if TYPE_CHECKING:
    from tests.conftest import Cli, Started
    from tools.kafka.broker import Cluster

SMALL = ("--envs-per-actor", 8, "--set", "actors.rollout_steps=32", "--json")
NOISE = bytes(range(256)) * 8
NEWER = SCHEMA + 1
Headers = Mapping[str, bytes | None]


def fragment() -> bytes:
    """A whole and valid one, of an actor that does not exist."""
    steps, lanes = 2, 1
    header = FragmentHeader(
        run="r",
        policy="main",
        actor="9.9",
        sequence=0,
        first_step=0,
        steps=steps,
        version=WeightsVersion(1, 0),
        seats=("player_0",),
        players=("policy",),
    )
    flags = np.zeros((steps, lanes), bool)
    numbers = np.zeros((steps, lanes), np.float32)
    zeros = np.zeros((steps, lanes), np.uint8)
    made = Steps(
        {"": np.zeros((steps + 1, lanes, 4), np.float32)},
        np.zeros((steps, lanes), np.int32),
        numbers,
        flags,
        flags,
        ~flags,
        numbers,
        zeros,
        zeros,
        zeros,
    )
    return encode_fragment(Fragment(header, made))


def newer(kind: str) -> bytes:
    return json.dumps({"type": kind, "schema": NEWER, "novelty": 1}).encode()


class Foreign(NamedTuple):
    payload: bytes
    headers: Headers = MappingProxyType({})
    says: str = "skipped"


WHOLE = fragment()
OURS: Headers = {"kind": b"fragment", "steps": b"2", "steps_total": b"2"}
# what the learner finds out
UNREADABLE = {
    "random bytes": Foreign(NOISE),
    "nothing": Foreign(b""),
    "JSON": Foreign(b'{"hello": "world"}'),
    "random bytes as a fragment": Foreign(NOISE, OURS),
    "half of a fragment": Foreign(WHOLE[: len(WHOLE) // 2], OURS),
    "a fragment with a changed byte": Foreign(WHOLE[:-1] + b"\x07", OURS, "checksum"),
    "a fragment of a newer schema": Foreign(
        WHOLE[:4] + bytes([NEWER]) + WHOLE[5:], OURS, f"schema version {NEWER}"
    ),
    "nobody who joined": Foreign(b"{}", {"kind": b"joined"}),
    "random bytes that left": Foreign(NOISE, {"kind": b"left"}),
    "somebody who left by a newer schema": Foreign(
        newer("left"), {"kind": b"left"}, f"schema version {NEWER}"
    ),
}
CLAIMS = {
    "a claim without a number": Foreign(b"{}", {"kind": b"claimed"}),
    "a claim with a word for a number": Foreign(b"{}", {"kind": b"claimed", "generation": b"x"}),
}
# what the bus finds out, and does not hand on
UNDECODABLE = {
    "a header that is no text": Foreign(WHOLE, {"kind": b"\xff\xfe"}),
    "a chunk of no message": Foreign(WHOLE, {**OURS, "chunk": b"whole"}),
    "a chunk past its count": Foreign(WHOLE, {**OURS, "chunk": b"a:3:2:0"}),
    "a chunk with a wrong checksum": Foreign(WHOLE, {**OURS, "chunk": b"a:0:1:0"}, "checksum"),
}
# what a run never hears of
OF_OTHERS = {
    "random bytes of nobody": Foreign(NOISE),
    "JSON of nobody": Foreign(b'{"hello": "world"}'),
    "half of a fragment of nobody": Foreign(WHOLE[: len(WHOLE) // 2], OURS),
    "a fragment of another run": Foreign(WHOLE, {**OURS, "run": b"another"}),
}


def sender(cluster: Cluster, topic: str) -> Callable[..., int]:
    """Publishes with a plain client, and returns the offset."""
    producer = Producer(cluster.client_settings())

    def send(payload: bytes, headers: Headers, key: bytes = b"stranger") -> int:
        offsets: list[int] = []
        producer.produce(
            topic,
            value=payload,
            key=key,
            headers=list(headers.items()),
            partition=0,
            on_delivery=lambda error, message: offsets.append(message.offset()),
        )
        assert producer.flush(10.0) == 0
        return offsets[0]

    return send


def sender_to(cli: Cli, cluster: Cluster, topic: str) -> Callable[..., int]:
    assert cli.home.cluster is not None
    return sender(cluster, cli.home.cluster.prefix + topic)


# --- without a run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "each",
    [pytest.param(each, id=name) for name, each in {**UNREADABLE, **CLAIMS}.items()],
)
def test_the_learner_skips_and_counts(each: Foreign, caplog: pytest.LogCaptureFixture) -> None:
    bus, ledger = MemoryBus(), Ledger()
    inbox = Inbox(bus, CreditBook(1, 1), ledger, Branch({1: 0}), EARLIEST, [], 0.0, WalkIns())
    headers = {name: (value or b"").decode() for name, value in each.headers.items()}
    (offset,) = bus.publish([Outgoing(EXPERIENCES, each.payload, "stranger", headers)])
    inbox.receive(0)
    assert ledger.damaged == 1 and inbox.received == []
    assert f"offset {offset}: skipped" in caplog.text and each.says in caplog.text


def test_the_bus_skips_what_cannot_be_a_record(
    kafka: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    bus = KafkaBus(KafkaSettings(kafka.servers, "undecodable."), run="ours")
    subscription = bus.subscribe(EXPERIENCES, EARLIEST)
    send = sender(kafka, "undecodable." + EXPERIENCES)
    sent = [send(e.payload, {"run": b"ours", **e.headers}) for e in UNDECODABLE.values()]
    sent.append(send(b"x", {"run": b"ours"}, key=b"\xff"))
    send(b"y", {"run": b"ours", "kind": None})
    (record,) = subscription.poll(10.0)
    assert (record.payload, record.headers) == (b"y", {"kind": ""})
    assert all(f"offset {offset} " in caplog.text for offset in sent)
    assert subscription.skipped == len(sent)
    bus.close()


# --- while a run trains --------------------------------------------------------------------------


@pytest.fixture
def running(kafka_cli: Cli) -> Started:
    started = kafka_cli.start("train", "CartPole-v1", *SMALL, "--steps", 100_000_000)
    started.wait_until(lambda: started.env_steps > 1000, "training")
    return started


def train_on(running: Started, steps: int) -> None:
    seen = running.env_steps
    running.wait_until(lambda: running.env_steps > seen + steps, "more training")


def test_a_run_goes_on_beside_foreign_messages(running: Started, kafka: Cluster) -> None:
    send = sender_to(running.cli, kafka, EXPERIENCES)
    for each in OF_OTHERS.values():
        send(each.payload, each.headers)
    own = {"run": running.run.encode()}
    sent = {
        send(each.payload, {**own, **each.headers}): each.says
        for each in (UNREADABLE | UNDECODABLE).values()
    }
    train_on(running, 10_000)
    log = running.cli.home.run_dir(running.run) / "logs" / "learner-0.1.log"
    found = {int(at): line for line, at in re.findall(r"(.*offset (\d+).*)", log.read_text())}
    assert found.keys() == sent.keys()
    for offset, says in sent.items():
        assert "skipped" in found[offset] and says in found[offset]
    assert f"{len(UNREADABLE)} messages" in running.cli("why", running.run).stdout
    assert running.interrupt().code == 130
    shown = running.show()
    assert shown["damaged"] == len(UNREADABLE) and shown["balance"]["exact"]
    assert f"{len(UNREADABLE)} messages" in show_text(shown)
    assert [worker["restarts"] for worker in shown["workers"]] == [0, 0]


@pytest.mark.soak
def test_a_message_that_nobody_finishes_does_not_spoil_the_balance(
    running: Started, kafka: Cluster
) -> None:
    """As left by a publisher that died between two chunks; positions wait for the rest a while."""
    send = sender_to(running.cli, kafka, EXPERIENCES)
    headers = {"run": running.run.encode(), **OURS, "chunk": b"abc:0:2:00000000"}
    send(WHOLE, headers, key=f"{running.run}/9.9".encode())
    train_on(running, 20_000)
    assert running.interrupt().code == 130
    assert running.show()["balance"]["exact"]


@pytest.mark.soak
def test_an_inline_run_skips_them_when_it_resumes(kafka_cli: Cli, kafka: Cluster) -> None:
    inline = ("train", "CartPole-v1", *SMALL, "--launcher", "inline")
    run = kafka_cli(*inline, "--until-return", 500, "--steps", 2_000, expect=3).json["run"]
    send = sender_to(kafka_cli, kafka, EXPERIENCES)
    for each in (UNREADABLE["random bytes"], UNREADABLE["random bytes as a fragment"]):
        send(each.payload, {"run": run.encode(), **each.headers})
    again = kafka_cli("resume", run, "--steps", 4_000, "--json", expect=3).json
    assert again["status"] == "limited"


# --- in the control log --------------------------------------------------------------------------

OF_STRANGERS = {
    "random bytes": NOISE,
    "JSON": b'{"hello": "world"}',
    "no JSON": b"stop",
    "half of a command": encode_json(StopRun(run="r"))[:20],
    "a command of a newer schema": newer("stop_run"),
    "a command that is none yet": newer("pause_run"),
}


@pytest.mark.soak
def test_commands_are_heard_past_foreign_ones(running: Started, kafka: Cluster) -> None:
    send = sender_to(running.cli, kafka, COMMANDS)
    sent = [
        send(payload, {}, key=key)
        for payload in OF_STRANGERS.values()
        for key in (running.run.encode(), b"nobody")
    ]
    rows = running.cli("runs", "list", "--json").json["runs"]
    assert [row["status"] for row in rows] == ["running"]
    tail = running.cli("bus", "tail", "commands.control", "-n", 100, "--json").json["messages"]
    unreadable = {row["offset"]: row["unreadable"] for row in tail if "unreadable" in row}
    assert list(unreadable) == sent
    assert sum(f"schema version {NEWER}" in why for why in unreadable.values()) == 4
    done = running.interrupt()
    assert done.code == 130 and done.json["status"] == "stopped"


@pytest.mark.soak
def test_a_foreign_command_is_no_news_to_every_verb(kafka_cli: Cli, kafka: Cluster) -> None:
    """It stays in the log for ever: who looks for it finds it, nobody else is told each time."""
    kafka_cli.home.states()  # makes the topics
    sender_to(kafka_cli, kafka, COMMANDS)(NOISE, {})
    assert kafka_cli("runs", "list").stderr == ""
    assert "rookery runs list" in kafka_cli.refused("runs", "show", "nope")
