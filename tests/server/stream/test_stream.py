"""The stream as its clients see it: a real server, real sockets, a home that others write to."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from rookery.bus import Bus, Outgoing
from rookery.config.reading import validate
from rookery.control.home import Home
from rookery.control.settings import ServerSettings, Settings
from rookery.control.tokens import Token
from rookery.messages import (
    METRICS_ACTORS,
    METRICS_TRAINING,
    ActorMetrics,
    CheckpointSaved,
    CommandAccepted,
    CreateRun,
    LedgerSummary,
    StartRun,
    TrainingMetrics,
    encode_json,
)
from rookery.server.feed.follower import Follower, Message
from rookery.server.stream import websocket as conversing
from rookery.server.stream.endpoint import Hub
from rookery.server.stream.outbox import Outbox, StreamBatch

WAIT_S = 15.0
TOKEN = "rk_good"
CONFIG = validate({"environment": {"id": "CartPole-v1"}})
LEDGER = LedgerSummary(trained=0, dropped={}, pending=0, position=(0,), seen={})
ALL = ["events", "commands", "metrics", "actors"]


def create(home: Home, run: str) -> Bus:
    """A run that runs, and its bus."""
    made = CreateRun(run=run, config={"config": CONFIG.model_dump(mode="json")})
    start = StartRun(run=run)
    home.send(made, start)
    home.record(*(CommandAccepted(run=run, command=each.id) for each in (made, start)))
    return home.open_run_bus(run, CONFIG)


def metrics(run: str, updates: int) -> list[Outgoing]:
    training = TrainingMetrics(
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
    actor = ActorMetrics(
        run=run,
        actor="0.1",
        fragments=updates,
        agent_steps=0,
        steps_per_s=0.0,
        waiting_share=0.0,
        doing="playing",
    )
    return [
        Outgoing(METRICS_TRAINING, encode_json(training), key=run),
        Outgoing(METRICS_ACTORS, encode_json(actor), key="0.1"),
    ]


class Server:
    """A follower, a hub and a real server around them."""

    def __init__(self, home: Home, **settings: Any) -> None:
        self.follower = Follower(home, interval_s=0.01)
        self.follower.start()
        self.hub = Hub(self.follower, Settings(server=ServerSettings(**settings)))
        self.known = {TOKEN: Token("1", "read", "")}
        app = Starlette(routes=[WebSocketRoute("/stream", self._stream)])
        options = {"port": 0, "log_level": "error", "lifespan": "off", "ws_max_size": 1 << 20}
        self._server = uvicorn.Server(uvicorn.Config(app, ws_per_message_deflate=False, **options))
        self._server.config.timeout_graceful_shutdown = 5
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started, "the server has started")
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}/stream"

    async def _stream(self, websocket: WebSocket) -> None:
        await self.hub.stream(websocket, self.known.get)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.follower.close()

    @contextmanager
    def client(self, **options: Any) -> Iterator[Client]:
        with connect(self.url, **options) as connection:
            yield Client(connection)


class Client:
    """Says hello, keeps what it gets by channel, and knows from where to resume."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.got: dict[str, list[int]] = defaultdict(list)
        self.left: dict[str, list[int]] = defaultdict(list)  # seqs that it was told it missed
        self.data: list[dict[str, Any]] = []

    def say(self, **message: Any) -> None:
        self.connection.send(json.dumps(message))

    def hear(self) -> dict[str, Any]:
        frame = json.loads(self.connection.recv(timeout=WAIT_S))
        for message in frame.get("messages", []):
            self.got[message["channel"]].append(message["seq"])
            self.data.append(message)
        if frame["type"] == "left_out":
            missed = range(frame["from"], frame["to"] + 1)
            assert frame["count"] == len(missed)  # where no other run is between
            self.left[frame["channel"]] += missed
            self.got[frame["channel"]] += missed
        return frame

    def subscribe(self, *runs: str, kinds: list[str] = ALL, **more: Any) -> dict[str, int]:
        self.say(type="hello", token=TOKEN)
        assert self.hear() == {"type": "ready"}
        self.say(type="subscribe", runs=runs or ["*"], kinds=kinds, **more)
        frame = self.hear()
        assert frame["type"] == "subscribed"
        return frame["at"]

    def hear_until(self, channel: str, seq: int) -> None:
        while not self.got[channel] or self.got[channel][-1] < seq:
            self.hear()

    def closed(self) -> tuple[str, int]:
        """What it was told last, and the code."""
        detail = ""
        try:
            while True:
                frame = self.hear()
                detail = frame.get("detail", "") if frame["type"] == "error" else ""
        except ConnectionClosed as closed:
            assert closed.rcvd is not None
            return detail, closed.rcvd.code


def until(true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        threading.Event().wait(0.01)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "runs")
    yield home
    home.close()


@pytest.fixture
def serve(home: Home) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def start(**settings: Any) -> Server:
        made.append(Server(home, **settings))
        return made[-1]

    yield start
    for server in made:
        server.close()


@pytest.fixture
def buses(home: Home) -> Iterator[dict[str, Bus]]:
    buses = {run: create(home, run) for run in ("a", "b")}
    yield buses
    for bus in buses.values():
        bus.close()


class Publisher:
    """Writes to the home at its own pace until it is told to stop."""

    def __init__(self, home: Home, buses: dict[str, Bus]) -> None:
        self.home, self.buses = home, buses
        self.rounds = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _publish(self) -> None:
        dice = random.Random(7)
        while not self._stop.wait(dice.choice([0.0, 0.001, 0.02])):
            for run, bus in self.buses.items():
                for n in range(dice.randrange(4)):
                    bus.publish(metrics(run, self.rounds + n))
                self.home.record(CheckpointSaved(run=run, name="c", env_steps=self.rounds))
            self.rounds += 1

    def wait(self, rounds: int) -> None:
        goal = self.rounds + rounds
        until(lambda: self.rounds >= goal, f"{rounds} more rounds")


def test_a_client_gets_what_it_asked_for_as_it_lies_on_the_bus(home, buses, serve) -> None:
    buses["a"].publish(metrics("a", 1))
    server = serve()
    with server.client() as all_of_a, server.client() as events:
        at = all_of_a.subscribe("a", kinds=["metrics", "actors", "commands"])
        assert at == {"metrics/a": 0, "actors/a": 0, "commands": 3}
        assert events.subscribe(kinds=["events"]) == {"events": 3}
        until(lambda: len(server.hub._rounds._selections) == 2, "both have joined")
        buses["b"].publish(metrics("b", 5))
        buses["a"].publish(metrics("a", 2))
        home.send(StartRun(run="b"), StartRun(run="a", reason='\u2603 "quoted"'))
        home.record(CheckpointSaved(run="b", name="c", env_steps=9))
        for channel, seq in (("metrics/a", 1), ("actors/a", 1), ("commands", 5)):
            all_of_a.hear_until(channel, seq)
        events.hear_until("events", 4)
    assert all_of_a.got == {"metrics/a": [1], "actors/a": [1], "commands": [5]}
    assert events.got == {"events": [4]}
    by_kind = {message["kind"]: message for message in all_of_a.data}
    assert by_kind["training"]["data"]["updates"] == 2 and by_kind["training"]["run"] == "a"
    assert by_kind["actor"]["data"]["actor"] == "0.1"
    assert by_kind["start_run"]["data"]["reason"] == '\u2603 "quoted"'
    assert abs(by_kind["training"]["time_s"] - time.time()) < 60


def test_a_header_may_say_who_it_is(buses, serve) -> None:
    server = serve()
    with server.client(additional_headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        assert client.hear() == {"type": "ready"}
    with server.client(additional_headers={"Authorization": "Bearer rk_bad"}) as client:
        assert client.closed()[1] == 4401


def test_what_is_asked_for_can_be_changed(home, buses, serve) -> None:
    server = serve()
    with server.client() as client:
        client.subscribe("a", kinds=["metrics"], after={"metrics/a": -1})
        buses["a"].publish(metrics("a", 1))
        client.hear_until("metrics/a", 0)
        client.say(type="subscribe", runs=["b", "later"], kinds=["events", "metrics"])
        frame = client.hear()
        assert frame == {"type": "subscribed", "at": {"events": 3}}
        until(lambda: len(server.hub._rounds._selections) == 1, "it has joined")
        buses["a"].publish(metrics("a", 2))
        with_later = create(home, "later")
        with_later.publish(metrics("later", 1))
        with_later.close()
        client.hear_until("metrics/later", 0)
    assert client.got["metrics/a"] == [0] and {m["run"] for m in client.data} == {"a", "later"}


def test_nothing_is_missed_and_nothing_comes_twice_over_reconnects_and_restarts(
    home, buses, serve
) -> None:
    names = ["events", "metrics/a", "metrics/b", "actors/a", "actors/b"]
    got: dict[str, list[int]] = {name: [] for name in names}
    server = serve()
    with Publisher(home, buses) as publisher:
        for life in range(8):
            publisher.wait(10)  # nobody listens
            if life % 3 == 2:
                server.close()
                server = serve()
            after = {name: seqs[-1] if seqs else -1 for name, seqs in got.items()}
            with server.client() as client:
                at = client.subscribe(after=after, kinds=["events", "metrics", "actors"])
                assert {name: at[name] for name in names} == after
                goal = {name: server.follower.end(name) + 3 for name in names}
                for name in names:
                    client.hear_until(name, goal[name])
                assert client.left == {}
                for name in names:
                    got[name] += client.got[name]
    for name, seqs in got.items():
        assert seqs == list(range(len(seqs))), name
    assert min(map(len, got.values())) > 50


def test_many_who_join_at_any_moment_see_no_gap_and_no_double(home, buses, serve) -> None:
    server = serve()
    failures: list[str] = []

    def follow(dice: random.Random) -> None:
        runs = dice.choice([["*"], ["a"], ["a", "b"]])
        with server.client() as client:
            goal = server.follower.end("metrics/a") + dice.randrange(1, 30)
            begin = dice.choice([{}, {"metrics/a": -1}, {"metrics/a": goal // 2, "events": -1}])
            at = client.subscribe(*runs, kinds=["metrics", "events"], after=begin)
            client.hear_until("metrics/a", goal)
            if "b" in runs or "*" in runs:
                client.hear_until("events", at["events"] + 3)
        for name, seqs in client.got.items():
            wanted = name != "events" or len(runs) == 2 or runs == ["*"]
            if wanted and seqs != list(range(at.get(name, -1) + 1, seqs[-1] + 1)):
                failures.append(f"{runs} {begin} {name}: {at.get(name)} {seqs}")

    with Publisher(home, buses) as publisher:
        publisher.wait(20)
        threads = []
        for n in range(40):
            threads.append(threading.Thread(target=follow, args=(random.Random(n),)))
            threads[-1].start()
            threading.Event().wait(0.01)
        for thread in threads:
            thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_a_client_is_told_what_retention_took(home, buses, serve) -> None:
    for n in range(20):
        buses["a"].publish(metrics("a", n))
    buses["a"].retain(METRICS_TRAINING, (8,))
    server = serve()
    with server.client() as client:
        client.subscribe("a", kinds=["metrics"], after={"metrics/a": 2})
        client.hear_until("metrics/a", 19)
    assert client.left == {"metrics/a": [3, 4, 5, 6, 7]}
    assert client.got["metrics/a"] == list(range(3, 20))


def test_a_slow_client_is_told_exactly_what_was_left_out_and_goes_on(home, buses, serve) -> None:
    server = serve(stream_queue=16)
    slow_socket = socket.socket()
    slow_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    slow_socket.connect(("127.0.0.1", int(server.url.split(":")[2].split("/")[0])))
    with server.client(sock=slow_socket, max_queue=1) as slow, server.client() as quick:
        first = slow.subscribe(kinds=["events"])["events"] + 1
        quick.subscribe(kinds=["events"])
        until(lambda: len(server.hub._rounds._selections) == 2, "both have joined")
        outboxes = list(server.hub._rounds._selections)
        for n in range(300):
            home.record(CheckpointSaved(run="a", name="x" * 50_000, env_steps=n))
            quick.hear_until("events", first + n)  # a slow one holds up nobody
        assert max(outbox.waiting for outbox in outboxes) <= 16
        slow.hear_until("events", first + 299)
        home.record(CheckpointSaved(run="a", name="after all", env_steps=300))
        slow.hear_until("events", first + 300)
        quick.hear_until("events", first + 300)
    assert quick.left == {} and quick.got["events"] == list(range(first, first + 301))
    assert slow.got["events"] == quick.got["events"]  # in order, what was left out in its place
    assert 100 < len(slow.left["events"]) < 300
    assert first + 300 not in slow.left["events"]


BAD = {
    "not JSON": "{]",
    "not text": b"{}",
    "not an object": "[1, 2]",
    "too large": json.dumps({"type": "subscribe", "runs": ["r" * 70_000], "kinds": ["events"]}),
    "too deep": "[" * 5000,
    "no type": "{}",
    "another type": '{"type":"shutdown"}',
    "hello twice": json.dumps({"type": "hello", "token": TOKEN}),
    "no runs": '{"type":"subscribe","runs":[],"kinds":["events"]}',
    "a bad run": '{"type":"subscribe","runs":["../a"],"kinds":["events"]}',
    "a run with a newline": '{"type":"subscribe","runs":["a\\n"],"kinds":["events"]}',
    "a bad kind": '{"type":"subscribe","runs":["a"],"kinds":["secrets"]}',
    "a bad channel": '{"type":"subscribe","runs":["a"],"kinds":["events"],"after":{"x":1}}',
    "a bad seq": '{"type":"subscribe","runs":["a"],"kinds":["events"],"after":{"events":-2}}',
    "half a seq": '{"type":"subscribe","runs":["a"],"kinds":["events"],"after":{"events":1.5}}',
    "an unknown key": '{"type":"subscribe","runs":["a"],"kinds":["events"],"since":1}',
    "one of many bytes": json.dumps({"type": "subscribe", "\u20ac" * 90: 1}, ensure_ascii=False),
}


@pytest.fixture(scope="module")
def patient_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = Home(tmp_path_factory.mktemp("home") / "runs")
    create(home, "a").close()
    server = Server(home)
    yield server
    server.close()
    home.close()


@pytest.mark.parametrize("case", BAD)
def test_a_bad_message_gets_one_error_and_the_end(patient_server: Server, case: str) -> None:
    with patient_server.client() as client:
        client.subscribe("a")
        client.connection.send(BAD[case])
        detail, code = client.closed()
    assert code == 4400 and detail and len(detail) < 500 and "\n" not in detail
    assert TOKEN not in detail


@pytest.mark.parametrize(
    "first",
    ['{"type":"hello","token":"rk_bad"}', '{"type":"hello","token":""}', None],
    ids=["a bad token", "no token", "silence"],
)
def test_nobody_is_served_without_a_token(
    patient_server: Server, first: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversing, "HELLO_S", 0.1)
    with patient_server.client() as client:
        if first is not None:
            client.connection.send(first)
        detail, code = client.closed()
    assert code == 4401 and "token" in detail
    with patient_server.client() as client:
        client.say(type="subscribe", runs=["*"], kinds=["events"])
        assert client.closed()[1] == 4401


def test_a_token_that_is_revoked_ends_the_stream(
    buses, serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversing, "TOKEN_S", 0.05)
    server = serve()
    with server.client() as client:
        client.subscribe()
        server.known.clear()
        assert client.closed()[1] == 4401


def test_the_number_of_clients_is_bounded(buses, serve) -> None:
    server = serve(stream_clients=4)  # of which one token has two
    with server.client() as first, server.client() as second:
        first.subscribe()
        second.subscribe()
        with server.client() as silent, server.client() as third:
            third.say(type="hello", token=TOKEN)
            assert third.closed() == ("this token has 2 of 4 streams: close some", 4429)
            assert server.hub.clients == 2, "one that has not said hello is none"
            silent.connection.close()
    until(lambda: server.hub.clients == 0, "they have left")
    with server.client() as fourth:
        fourth.subscribe()


def test_a_client_that_vanishes_leaves_nothing_behind(home, buses, serve) -> None:
    server = serve()
    with server.client() as stays:
        stays.subscribe(kinds=["events"], after={"events": -1})
        stays.hear_until("events", 3)
        for _ in range(5):
            with server.client() as lost:
                lost.subscribe()
                until(lambda: len(server.hub._rounds._selections) == 2, "it has joined")
                lost.connection.socket.shutdown(socket.SHUT_RDWR)  # without a good-bye
                until(lambda: server.hub.clients == 1, "it is missed")
        home.record(CheckpointSaved(run="a", name="c", env_steps=1))
        stays.hear_until("events", 4)
        assert len(server.hub._rounds._groups) == len(server.hub._rounds._selections) == 1
    until(lambda: server.hub.clients == 0, "the last has left")
    assert server.hub._rounds._groups == {} and server.hub._rounds._selections == {}


@given(st.lists(st.integers(0, 6), max_size=60), st.integers(1, 12))
def test_an_outbox_loses_nothing_without_saying_so(steps: list[int], most: int) -> None:
    outbox, seq, got = Outbox(most, most_bytes=10_000), 0, list[int]()

    def send() -> bool:
        text = outbox.next()
        if text is None:
            return False
        frame = json.loads(text)
        if isinstance(frame, list):
            got.extend(frame)
        else:
            assert frame["count"] == frame["to"] - frame["from"] + 1
            got.extend(range(frame["from"], frame["to"] + 1))
        return True

    for step in steps:
        if step == 0:
            send()
            continue
        seqs = list(range(seq, seq + step))
        seq += step
        outbox.put(
            StreamBatch(json.dumps(seqs), [Message("events", n, "a", "k", 0.0, b"") for n in seqs])
        )
        assert outbox.waiting <= max(most, 6)
    while send():
        pass
    assert got == list(range(seq))
    assert outbox.waiting == 0
