"""Faults injected into a cluster while messages flow: in order, none lost, none twice.

The cluster is librdkafka's own, which fails when it is told to. It does not check the sequence
numbers of a producer, so messages are published one by one, and brokers go down between two: what
a broker puts right when several are on their way is for tests with a real one.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError

from rookery.bus import EARLIEST, LATEST, Outgoing, Record
from rookery.bus.kafka import client as kafka_client
from rookery.bus.kafka import subscription as kafka_subscription
from rookery.bus.kafka.bus import KafkaBus
from rookery.bus.kafka.settings import KafkaSettings
from rookery.bus.kafka.topics import NEWEST
from rookery.messages import (
    COMMANDS,
    EVENTS,
    EXPERIENCES,
    METRICS_ACTORS,
    METRICS_TRAINING,
    MODEL_UPDATES,
    STATES,
)
from rookery.testing.bus_suite import drain
from tools.kafka.mock import FETCH, LIST_OFFSETS, PRODUCE, MockCluster

if TYPE_CHECKING:
    from tests.conftest import Cli

PATIENCE_S = 30.0  # nothing here takes this long unless it hangs
TOPIC = "numbers"
COMPACTED = MODEL_UPDATES  # the one kind of message that is a single request
KEYS = ("0.0", "0.1", "1.0")
OUTAGE_S = 3

ANYWHERE = [
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
]
PASSING = {
    PRODUCE: [
        *ANYWHERE,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
    FETCH: [*ANYWHERE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE],
    LIST_OFFSETS: [*ANYWHERE, KafkaError.FENCED_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE],
}

Faults = Mapping[int, Callable[[], object]]
_NONE: Faults = {}


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    """One for all, since a client whose cluster is gone takes a second to end."""
    with MockCluster(brokers=2) as made:
        yield made


@pytest.fixture
def prefix() -> str:
    return f"{uuid4().hex}."


@pytest.fixture
def mock(cluster: MockCluster, prefix: str) -> Iterator[MockCluster]:
    """The cluster with topics of the test's own, and without the faults of the one before."""
    for topic in (TOPIC, COMPACTED, NEWEST):
        cluster.create_topic(prefix + topic)
    yield cluster
    cluster.up()
    cluster.round_trip(0)
    for api_key in PASSING:
        cluster.stop_failing(api_key)


@pytest.fixture
def start() -> Iterator[Callable[..., Future[Any]]]:
    """Run a function in another thread; its result is asked for with a time-out."""
    pool = ThreadPoolExecutor(4)
    yield pool.submit
    pool.shutdown(wait=True, cancel_futures=True)


@pytest.fixture
def writer(mock: MockCluster, prefix: str, start: object) -> Iterator[KafkaBus]:
    """Closed before the threads that use it are waited for."""
    bus = KafkaBus(KafkaSettings(mock.servers, prefix))
    yield bus
    bus.close()


@pytest.fixture
def reader(mock: MockCluster, prefix: str, start: object) -> Iterator[KafkaBus]:
    bus = KafkaBus(KafkaSettings(mock.servers, prefix))
    yield bus
    bus.close()


@pytest.fixture
def traffic(
    writer: KafkaBus, reader: KafkaBus, start: Callable[..., Future[Any]]
) -> Iterator[Traffic]:
    traffic = Traffic(writer, reader, start)
    yield traffic
    traffic.stop.set()


class Traffic:
    """Numbered messages of a few keys, from one bus to another."""

    def __init__(
        self, writer: KafkaBus, reader: KafkaBus, start: Callable[..., Future[Any]]
    ) -> None:
        self.writer, self.reader = writer, reader
        self.published = 0  # rounds
        self.stop = threading.Event()
        self._start = start
        self._received: list[Record] = []

    def begin(
        self,
        rounds: int,
        faults: Faults = _NONE,
        faults_of_reader: Faults = _NONE,
        topic: str = TOPIC,
    ) -> None:
        """Faults come before the round of their number: when all before it is acknowledged, or
        when the reader has got it."""
        self._rounds, self._topic = rounds, topic
        self._subscription = self.reader.subscribe(topic, EARLIEST)
        self._reading = self._start(self._read, dict(faults_of_reader))
        self._writing = self._start(self._write, faults)

    def _write(self, faults: Faults) -> None:
        for number in range(self._rounds):
            if number in faults:
                faults[number]()
            for key in KEYS:
                self.writer.publish([Outgoing(self._topic, b"%d" % number, key)])
            self.published = number + 1

    def _read(self, faults: dict[int, Callable[[], object]]) -> None:
        while len(self._received) < self._rounds * len(KEYS) and not self.stop.is_set():
            for number in [n for n in faults if n * len(KEYS) <= len(self._received)]:
                faults.pop(number)()
            self._received += self._subscription.poll(0.5, limit=len(KEYS))
        assert not faults

    def check(self, timeout_s: float = PATIENCE_S) -> None:
        """Wait for the end: each key's messages came in order, none was lost, none came twice."""
        self._writing.result(timeout_s)
        self._reading.result(timeout_s)
        self._received += self._subscription.poll(0.0)  # what nobody waits for
        for key in KEYS:
            came = [int(record.payload) for record in self._received if record.key == key]
            assert came == list(range(self._rounds)), f"key {key}"
        assert [record.offset for record in self._received] == list(range(len(self._received)))

    def run(self, rounds: int, **options: Any) -> None:
        self.begin(rounds, **options)
        self.check()


# --- requests that fail --------------------------------------------------------------------------


def errors_of(mock: MockCluster, api_key: int, every: int) -> dict[int, Any]:
    """Each passing error in turn."""
    return {
        (context + 1) * every: lambda code=code: mock.fail_requests(api_key, [code])
        for context, code in enumerate(PASSING[api_key])
    }


def test_publishes_that_fail_are_tried_again(mock: MockCluster, traffic: Traffic) -> None:
    traffic.run(500, faults=errors_of(mock, PRODUCE, every=40))
    assert traffic.writer.trouble is None


def test_reads_that_fail_are_tried_again(mock: MockCluster, traffic: Traffic) -> None:
    traffic.run(500, faults_of_reader=errors_of(mock, FETCH, every=40))
    assert traffic.reader.trouble is None


def test_broken_connections_are_made_again(mock: MockCluster, traffic: Traffic) -> None:
    breaks = {
        number: lambda api_key=api_key: mock.fail_requests(api_key, [KafkaError._TRANSPORT])
        for number, api_key in zip(range(50, 500, 60), itertools.cycle(PASSING), strict=False)
    }
    traffic.run(500, faults=breaks, topic=COMPACTED)


def test_questions_that_fail_are_asked_again(mock: MockCluster, writer: KafkaBus) -> None:
    writer.publish([Outgoing(TOPIC, b"")])
    for code in (*PASSING[LIST_OFFSETS], KafkaError._TRANSPORT):
        mock.fail_requests(LIST_OFFSETS, [code] * 2)
        assert writer.end(TOPIC) == (1,), KafkaError(code).name()


def test_a_reader_that_is_sent_back_knows_where_it_stands(
    mock: MockCluster, writer: KafkaBus, reader: KafkaBus
) -> None:
    """As by an election that lost records: it begins anew, for there is no telling what is left."""
    subscription = reader.subscribe(TOPIC, EARLIEST)
    for number in range(5):
        writer.publish([Outgoing(TOPIC, b"%d" % number)])
    assert [record.offset for record in drain(subscription, 5)] == [0, 1, 2, 3, 4]
    mock.fail_requests(FETCH, [KafkaError.OFFSET_OUT_OF_RANGE] * 3)
    writer.publish([Outgoing(TOPIC, b"5")])
    while drain(subscription, 1)[0].offset > 0:
        assert subscription.position() == (6,)
    assert (subscription.position(), subscription.lag()) == ((1,), 5)


# --- leaders that move ---------------------------------------------------------------------------


def moves_of(mock: MockCluster, topic: str, rounds: int, every: int) -> dict[int, Any]:
    return {
        number: lambda leader=leader: mock.move_leader(topic, 0, leader)
        for number, leader in zip(
            range(every, rounds, every), itertools.cycle(mock.brokers), strict=False
        )
    }


def test_leaders_may_move(mock: MockCluster, prefix: str, traffic: Traffic) -> None:
    traffic.run(500, faults=moves_of(mock, prefix + TOPIC, rounds=500, every=50))


def test_a_reader_that_its_client_brings_nothing_gets_another(
    writer: KafkaBus, reader: KafkaBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that stays with a broker which leads no more fetches nothing, and says nothing."""
    subscription = reader.subscribe(TOPIC, EARLIEST)
    writer.publish([Outgoing(TOPIC, b"0")])
    assert [record.payload for record in drain(subscription, 1)] == [b"0"]
    stuck = subscription._consumer

    def nothing(wait_s: float) -> None:
        threading.Event().wait(wait_s)

    monkeypatch.setattr(kafka_subscription, "STUCK_S", 0.2)
    subscription._consumer = SimpleNamespace(poll=nothing, close=stuck.close)
    writer.publish([Outgoing(TOPIC, b"1")])
    assert [record.payload for record in drain(subscription, 1)] == [b"1"]


# --- a slow network ------------------------------------------------------------------------------


@pytest.mark.soak
def test_long_round_trips_only_cost_time(mock: MockCluster, traffic: Traffic) -> None:
    slow = {100: lambda: mock.round_trip(300), 101: lambda: mock.round_trip(0)}
    traffic.run(200, faults=slow)


# --- a cluster that is away ----------------------------------------------------------------------


@pytest.mark.soak
def test_a_question_in_an_outage_waits_for_its_answer(
    mock: MockCluster, prefix: str, start: Callable[..., Future[Any]]
) -> None:
    for _ in range(4):  # with a new client each, which then most often fails in the oddest way
        bus = KafkaBus(KafkaSettings(mock.servers, prefix))
        assert bus.end(TOPIC) == (0,)
        mock.down()
        asked = start(bus.end, TOPIC)
        with pytest.raises(TimeoutError):
            asked.result(0.1)
        mock.up()
        assert asked.result(PATIENCE_S) == (0,)
        bus.close()


def seconds_away(bus: KafkaBus) -> int:
    """As the bus tells it."""
    said = f"no broker of {bus.settings.servers} answers since "
    trouble = bus.trouble
    assert trouble is not None and trouble.startswith(said)
    return int(trouble.removeprefix(said).removesuffix(" s"))


@pytest.mark.soak
def test_a_leader_that_is_away_is_waited_for(
    mock: MockCluster, prefix: str, traffic: Traffic, start: Callable[..., Future[Any]]
) -> None:
    def leader(broker: int) -> None:
        for topic in (TOPIC, COMPACTED, NEWEST):
            mock.move_leader(prefix + topic, 0, broker)

    leader(1)
    idle = traffic.reader.subscribe(COMPACTED, LATEST)
    assert idle.poll(0.0) == []
    down = threading.Event()
    traffic.begin(400, faults={200: lambda: (mock.down(1), down.set())})
    assert down.wait(PATIENCE_S)
    caught_up, asked = start(idle.poll, 0.0), start(traffic.reader.end, TOPIC)
    with pytest.raises(TimeoutError):
        caught_up.result(1.5)
    assert traffic.published == 200 and not asked.done()
    leader(2)
    assert caught_up.result(PATIENCE_S) == []
    assert asked.result(PATIENCE_S)[0] >= 200 * len(KEYS)
    traffic.check()


@pytest.mark.soak
def test_an_outage_is_told_and_waited_for(
    mock: MockCluster,
    prefix: str,
    traffic: Traffic,
    start: Callable[..., Future[Any]],
    eventually: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    buses = (traffic.writer, traffic.reader)

    def lose_one_by_one() -> None:
        mock.down(1)
        for bus in buses:  # hears that the leader is gone, and will hear no more
            assert bus.clients.answers(bus._reader)
        mock.down(2)

    mock.move_leader(prefix + TOPIC, 0, 1)
    traffic.begin(400, faults={200: lose_one_by_one})
    for bus in buses:
        eventually(lambda bus=bus: bus.trouble, "trouble", PATIENCE_S)
    monkeypatch.setattr(kafka_client, "REACH_S", 0.3)  # the patience for elections is over
    asked = start(traffic.reader.end, TOPIC)
    for bus in buses:
        eventually(lambda bus=bus: seconds_away(bus) >= OUTAGE_S, "a longer outage", PATIENCE_S)
    assert traffic.published == 200 and not asked.done()
    monkeypatch.undo()
    mock.up()
    for bus in buses:
        eventually(lambda bus=bus: bus.trouble is None, "the end of trouble", PATIENCE_S)
    assert asked.result(PATIENCE_S)[0] >= 200 * len(KEYS)
    traffic.check()


# --- messages in chunks --------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [TOPIC, COMPACTED])
def test_a_message_in_chunks_arrives_whole(
    mock: MockCluster, prefix: str, reader: KafkaBus, topic: str
) -> None:
    one_by_one = {"max.in.flight": "1"}  # or this cluster would accept the chunk after a lost one
    writer = KafkaBus(KafkaSettings(mock.servers, prefix, client=one_by_one))
    payload = random.Random(0).randbytes(2_000_000)
    subscription = reader.subscribe(topic, EARLIEST)
    mock.fail_requests(PRODUCE, [KafkaError.REQUEST_TIMED_OUT, 0, KafkaError._TRANSPORT])
    mock.fail_requests(FETCH, [KafkaError.NOT_LEADER_FOR_PARTITION, 0, KafkaError._TRANSPORT])
    writer.publish([Outgoing(topic, payload, "k", {"version": "1"})])
    (record,) = drain(subscription, 1)
    assert (record.key, record.headers) == ("k", {"version": "1"})
    assert record.payload == payload
    assert subscription.poll(0.0) == []
    found = reader.newest(topic, "k")
    assert found is not None and found.payload == payload
    writer.close()


# --- all of it -----------------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(4))
def test_many_faults_lose_nothing(
    mock: MockCluster, prefix: str, traffic: Traffic, seed: int
) -> None:
    rng = random.Random(seed)
    rounds, kinds = 5000, list(PASSING)

    def outage() -> None:
        mock.down()
        threading.Timer(rng.uniform(0.1, 3.0), mock.up).start()

    def fault() -> Callable[[], object]:
        drawn = rng.random()
        if drawn < 0.7:
            kind = rng.choice(kinds)
            errors = rng.choices(PASSING[kind], k=rng.randint(1, 4))
            return lambda: mock.fail_requests(kind, errors)
        if drawn < 0.95:
            leader = rng.choice(mock.brokers)
            return lambda: mock.move_leader(prefix + TOPIC, 0, leader)
        return outage

    faults = {number: fault() for number in range(50, rounds, 50)}
    traffic.begin(rounds, faults)
    traffic.check(timeout_s=600)
    print(f"seed {seed}: {len(faults)} faults, {rounds * len(KEYS):,} messages")


# --- a whole run ---------------------------------------------------------------------------------

SMALL = ("CartPole-v1", "--envs-per-actor", 16, "--set", "actors.rollout_steps=32", "--actors", 2)
RUN_TOPICS = (
    *(COMMANDS, EVENTS, EXPERIENCES, MODEL_UPDATES, METRICS_TRAINING, METRICS_ACTORS),
    *(STATES, NEWEST),
)


@pytest.fixture
def run_cluster() -> Iterator[MockCluster]:
    with MockCluster(brokers=2) as made:
        for topic in RUN_TOPICS:
            made.create_topic(topic)
        yield made


@pytest.fixture
def run_cli(run_cluster: MockCluster, home: Path, kafka_cli_on: Callable[..., Cli]) -> Cli:
    return kafka_cli_on(home, run_cluster)


def run_with_faults(cli: Cli, cluster: MockCluster, steps: int, outages: int) -> dict[str, Any]:
    """A run whose leaders move and whose brokers go down, each in its own part of the steps."""
    running = cli.start("train", *SMALL, "--steps", steps)

    def move_leaders(broker: int) -> None:
        for topic in RUN_TOPICS:
            cluster.move_leader(topic, 0, broker)

    for outage in range(outages):
        part = steps * (outage + 1) // (outages + 2)
        running.wait_until(lambda p=part: running.env_steps > p, f"{part} steps")
        move_leaders(1 + outage % 2)
        told = running.output.read_text().count("waiting: no broker")
        cluster.down()
        running.wait_until(
            lambda n=told: running.output.read_text().count("waiting: no broker") > n,
            "word of the outage",
        )
        running.named("bus", "no Kafka broker answers")
        cluster.up()
    done = running.finish(timeout=120, expect=0)
    assert "Traceback" not in done.stderr
    return dict(running.show())


def check_accounts(shown: dict[str, Any], steps: int) -> None:
    """What was on its way when the brokers went down may have come twice, but counts once."""
    balance = shown["balance"]
    dropped = sum(balance["dropped"].values())
    assert balance["produced"] == balance["trained"] + dropped + balance["in_flight"], balance
    assert balance["trained"] == shown["env_steps"] >= steps
    assert (shown["status"], shown["gaps"], shown["damaged"]) == ("finished", 0, 0)
    assert all(worker["restarts"] == 0 for worker in shown["workers"])


@pytest.mark.soak
def test_a_run_outlives_the_faults_of_its_cluster(run_cli: Cli, run_cluster: MockCluster) -> None:
    check_accounts(run_with_faults(run_cli, run_cluster, 20_000, outages=1), 20_000)


@pytest.mark.soak
def test_a_run_outlives_many_faults_of_its_cluster(run_cli: Cli, run_cluster: MockCluster) -> None:
    check_accounts(run_with_faults(run_cli, run_cluster, 100_000, outages=5), 100_000)
