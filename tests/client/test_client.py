"""The Python client: what it sends and keeps without a server, and real runs on a real one."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rookery.client import Client, RemoteRun
from rookery.client.address import find_address
from rookery.client.subscription import LEFT_OUT, Event, StreamSubscription
from rookery.config.reading import build, load_yaml
from rookery.errors import (
    Forbidden,
    InputError,
    Rejected,
    RookeryError,
    ServerFailed,
    TimedOut,
    Unauthorized,
    UnknownName,
    Unreachable,
)

if TYPE_CHECKING:
    from tests.conftest import Cli, Served

SMALL = {"actors": {"envs_per_actor": 8, "rollout_steps": 32}}
ENDLESS = {**SMALL, "environment": {"id": "CartPole-v1"}, "stop": {"steps": 10**9}}


# --- subscriptions -------------------------------------------------------------------------------


def began(subscription: StreamSubscription, **at: int) -> list[Event]:
    return subscription.take(json.dumps({"type": "subscribed", "at": at}))


def batch(*pairs: tuple[str, int]) -> str:
    messages = [
        {"channel": c, "seq": s, "run": "r", "kind": "k", "time_s": 0.0, "data": {}}
        for c, s in pairs
    ]
    return json.dumps({"type": "batch", "messages": messages})


def left_out(channel: str, first: int, last: int) -> str:
    gap = {"channel": channel, "from": first, "to": last, "count": last - first + 1}
    return json.dumps({"type": "left_out", **gap})


def seqs(events: list[Event]) -> list[tuple[str, int]]:
    return [(event.channel, event.seq) for event in events]


def test_a_subscription_goes_on_after_the_last_message_of_each_channel() -> None:
    wanted = StreamSubscription(["r"], ["events", "metrics"])
    assert json.loads(wanted.request())["after"] == {}
    assert not wanted.is_begun
    assert began(wanted, events=7) == [] and wanted.is_begun
    assert seqs(wanted.take(batch(("events", 9), ("metrics/r", 0)))) == [
        ("events", 9),
        ("metrics/r", 0),
    ]
    again = json.loads(wanted.request())
    assert again["after"] == {"events": 9, "metrics/r": 0}
    assert began(wanted, events=9, **{"metrics/r": 0}) == []
    assert seqs(wanted.take(batch(("events", 9), ("events", 10)))) == [("events", 10)]


def test_a_run_that_says_its_first_word_while_we_are_away_is_heard_from_the_beginning() -> None:
    wanted = StreamSubscription(["r"], ["events", "metrics"])
    wanted.request()
    began(wanted, events=7)
    assert json.loads(wanted.request())["after"] == {"events": 7, "metrics/r": -1}


def test_a_run_that_came_up_while_we_were_away_is_asked_for_once_more() -> None:
    wanted = StreamSubscription(["*"], ["events", "metrics"])
    wanted.request()
    began(wanted, events=7, **{"metrics/old": 50})
    assert not wanted.again
    wanted.request()  # the connection was lost
    began(wanted, events=8, **{"metrics/old": 50, "metrics/new": 3})
    assert wanted.again
    assert wanted.take(batch(("metrics/new", 4))) == []  # it will come with what is before it
    assert json.loads(wanted.request())["after"] == {
        "events": 7,
        "metrics/old": 50,
        "metrics/new": -1,
    }
    began(wanted, events=7, **{"metrics/old": 50, "metrics/new": -1})
    assert not wanted.again
    assert len(wanted.take(batch(("metrics/new", 0), ("metrics/new", 4)))) == 2


def test_from_the_beginning_is_from_the_beginning_of_every_channel() -> None:
    wanted = StreamSubscription(["*"], ["events", "actors"], after=-1)
    wanted.request()
    began(wanted, events=7, **{"actors/r": 4})
    assert wanted.again
    assert json.loads(wanted.request())["after"] == {"events": -1, "actors/r": -1}


def test_what_a_slow_client_missed_is_asked_for_again() -> None:
    wanted = StreamSubscription(["r"], ["events"])
    wanted.request()
    began(wanted, events=0)
    wanted.take(batch(("events", 1)))
    assert wanted.take(left_out("events", 2, 5)) == [] and wanted.again
    assert wanted.take(batch(("events", 6))) == []  # on its way before the answer
    assert json.loads(wanted.request())["after"] == {"events": 1}
    began(wanted, events=1)
    found = wanted.take(batch(*(("events", seq) for seq in range(2, 7))))
    assert [event.seq for event in found] == [2, 3, 4, 5, 6]


def test_what_is_gone_for_good_is_told_once() -> None:
    wanted = StreamSubscription(["r"], ["metrics"], after={"metrics/r": 9})
    wanted.request()
    began(wanted, **{"metrics/r": 9})
    assert wanted.take(left_out("metrics/r", 10, 19)) == [] and wanted.again
    wanted.request()
    began(wanted, **{"metrics/r": 9})
    (told,) = wanted.take(left_out("metrics/r", 10, 19))
    assert not wanted.again and told.kind == LEFT_OUT and told.run == "r"
    assert told.data == {"from": 10, "to": 19, "count": 10}
    assert seqs(wanted.take(batch(("metrics/r", 20)))) == [("metrics/r", 20)]


def test_a_subscription_of_thousands_of_runs_names_the_liveliest() -> None:
    wanted = StreamSubscription(["*"], ["metrics"])
    wanted.request()
    began(wanted, **{f"metrics/run-{i}": 1 for i in range(5000)})
    wanted.take(batch(("metrics/run-17", 2)))
    request = wanted.request()
    assert len(request.encode()) < 64 << 10
    assert json.loads(request)["after"]["metrics/run-17"] == 2


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownName, match="metrics"):
        StreamSubscription(["*"], ["metric"])
    with pytest.raises(InputError, match="name runs"):
        StreamSubscription([], ["events"])


# --- addresses -----------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a server, and nothing in the environment."""
    for name in ("ROOKERY_SERVER", "ROOKERY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOKERY_HOME", str(tmp_path))
    return tmp_path


def put_server(home: Path, url: str, token: str = "rk_home") -> None:
    (home / "server.json").write_text(json.dumps({"url": url, "pid": 1}))
    (home / "server.token").write_text(token + "\n")


def test_without_any_server_it_says_how_to_start_one(elsewhere: Path) -> None:
    with pytest.raises(InputError, match="rookery serve"):
        Client()


def test_the_server_of_the_home_is_found_with_its_token(elsewhere: Path) -> None:
    put_server(elsewhere, "http://127.0.0.1:7860")
    assert find_address() == find_address("http://127.0.0.1:7860", "rk_home")
    assert find_address("http://localhost:7860/").token == "rk_home"
    put_server(elsewhere, "http://0.0.0.0:7860")
    assert find_address().url == "http://127.0.0.1:7860"


def test_the_token_of_the_home_goes_to_no_other_server(elsewhere: Path) -> None:
    put_server(elsewhere, "http://127.0.0.1:7860")
    for other in ("http://127.0.0.1:9000", "https://127.0.0.1:7860", "https://example.org:7860"):
        with pytest.raises(Unauthorized, match="ROOKERY_TOKEN"):
            find_address(other)


def test_what_is_named_goes_before_the_environment(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_server(elsewhere, "http://127.0.0.1:1")
    monkeypatch.setenv("ROOKERY_SERVER", "http://127.0.0.1:2/")
    monkeypatch.setenv("ROOKERY_TOKEN", "rk_environment")
    assert find_address() == find_address("http://127.0.0.1:2", "rk_environment")
    assert find_address("http://127.0.0.1:3/#token=rk_link").token == "rk_link"
    assert find_address("http://127.0.0.1:3/#token=rk_link", "rk_own").token == "rk_own"


def test_a_token_is_not_sent_in_the_clear_over_a_network(elsewhere: Path) -> None:
    for far in ("http://example.org:7860", "http://192.168.1.5", "http://[2001:db8::1]:80"):
        with pytest.raises(InputError, match="https"):
            Client(far, "rk_x")
    Client("http://example.org:7860", "rk_x", insecure=True)
    Client("https://example.org", "rk_x")
    Client("http://[::1]:7860", "rk_x")


def test_addresses_that_are_none_are_refused_without_their_token(elsewhere: Path) -> None:
    for bad in ("127.0.0.1:7860", "ftp://x", "http://", "http://u:p@h", "http://h:x", "http://h?a"):
        with pytest.raises(InputError, match="http://HOST:PORT") as caught:
            Client(f"{bad}#token=rk_secret")
        assert "rk_secret" not in str(caught.value)
    assert "rk_secret" not in repr(Client("http://127.0.0.1:1/#token=rk_secret"))
    assert "rk_secret" not in repr(find_address("http://127.0.0.1:1", "rk_secret"))


def test_importing_the_client_is_light() -> None:
    heavy = ("httpx2", "websockets", "jax", "numpy", "pydantic", "asyncio")
    code = f"import sys, rookery.client; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.check_output([sys.executable, "-c", code], text=True, timeout=60)
    assert done == "[]\n"


# --- a server that misbehaves --------------------------------------------------------------------

Reply = tuple[int, Any, dict[str, str]] | None  # None: the connection breaks


class Scripted:
    """A server that answers by a list, and remembers what it was asked."""

    def __init__(self, *replies: Reply) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        scripted, left = self, list(replies)

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                scripted.asked.append(
                    (self.command, self.path, dict(self.headers), json.loads(body or "null"))
                )
                reply = left.pop(0)
                if reply is None:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                status, content, headers = reply
                payload = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(payload))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_DELETE = do

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Scripted:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self._server.server_port}", "rk_x", timeout_s=5)


ACCEPTED = {"command": "c", "kind": "pause_run", "run": "r", "outcome": "accepted", "why": ""}
OK: Reply = (200, {**ACCEPTED, "effect": "held"}, {})


def problem(status: int, detail: str = "", **headers: str) -> Reply:
    found = {"type": "about:blank", "title": "t", "status": status, "detail": detail}
    return status, found, {"Content-Type": "application/problem+json", **headers}


def test_a_change_is_sent_again_under_the_same_key() -> None:
    with Scripted(None, problem(503, "busy"), OK, OK) as server, server.client as client:
        run = RemoteRun(client, "r")
        assert run.pause(reason="lunch").effect == "held"
        run.pause()
    keys = [headers["Idempotency-Key"] for _, _, headers, _ in server.asked]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert [body for *_, body in server.asked[:3]] == [{"reason": "lunch"}] * 3
    assert {path for _, path, _, _ in server.asked} == {"/api/v1/runs/r/pause?dry_run=false"}


def test_a_new_token_is_not_asked_for_twice() -> None:
    with Scripted(None, OK) as server, server.client as client, pytest.raises(Unreachable):
        client.create_token("read")
    assert len(server.asked) == 1


def test_a_server_that_asks_for_patience_gets_it() -> None:
    with Scripted(problem(429, "slow down", **{"Retry-After": "1"}), OK) as server:
        assert RemoteRun(server.client, "r").stop().outcome == "accepted"


REFUSALS: dict[int, type[RookeryError]] = {
    400: InputError,
    401: Unauthorized,
    403: Forbidden,
    404: InputError,
    409: Rejected,
    422: InputError,
    500: ServerFailed,
    307: ServerFailed,
}


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refusal_is_one_line_of_the_right_kind(status: int) -> None:
    said = problem(status, "first\nsecond \x1b[31mred")
    with Scripted(said) as server, pytest.raises(REFUSALS[status]) as caught:
        RemoteRun(server.client, "r").why()
    assert type(caught.value) is REFUSALS[status]
    assert str(caught.value).endswith("first second red")


def test_what_is_no_rookery_server_is_told_in_one_line() -> None:
    for reply in ((200, b"<html>", {}), (200, {"hello": 1}, {}), (404, b"<html>", {})):
        with Scripted(reply) as server, pytest.raises(RookeryError) as caught:
            RemoteRun(server.client, "r").detail()
        assert "\n" not in str(caught.value) and "127.0.0.1" in str(caught.value)


def test_nobody_there_is_told_at_once() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(Unreachable, match="rookery serve"):
            Client(url, "rk_x").runs()
        with pytest.raises(Unreachable), RemoteRun(Client(url, "rk_x"), "r").follow():
            raise AssertionError("nobody is there")

        async def listen() -> None:
            async for _ in Client(url, "rk_x").events():
                raise AssertionError("nobody is there")

        with pytest.raises(Unreachable):
            asyncio.run(asyncio.wait_for(listen(), 30))


class Refusing:
    """A stream that begins, says one thing, and closes with a code; then the next code."""

    def __init__(self, *codes: int) -> None:
        from websockets.sync.server import serve

        self.requests: list[Any] = []
        self._codes = list(codes)
        self._server = serve(self._converse, "127.0.0.1", 0, compression=None)
        self.url = f"http://127.0.0.1:{self._server.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def _converse(self, connection: Any) -> None:
        self.requests.append(json.loads(connection.recv(timeout=10)))
        count = len(self.requests)
        connection.send(json.dumps({"type": "subscribed", "at": {"events": count - 2}}))
        connection.send(batch(("events", count - 1)))
        connection.send(json.dumps({"type": "error", "detail": f"number {count}"}))
        connection.close(self._codes.pop(0), "closed")

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(10)


FINAL = {4400: InputError, 4401: Unauthorized, 4403: Forbidden}


@pytest.mark.parametrize("code", FINAL)
def test_a_stream_comes_back_until_it_is_refused_for_good(code: int) -> None:
    server = Refusing(1001, 1013, 4429, code)
    try:
        with pytest.raises(FINAL[code], match="number 4"):
            asyncio.run(asyncio.wait_for(everything(server.url), 30))
    finally:
        server.close()
    assert [request["after"] for request in server.requests] == [
        {},
        {"events": 0},
        {"events": 1},
        {"events": 2},
    ]
    server = Refusing(1011, code)
    try:
        with Client(server.url, "rk_x").follow() as stream, pytest.raises(FINAL[code]):
            assert [event.seq for event in stream.poll(10)] == [0]
            assert [event.seq for event in stream.poll(10)] == [1]
            stream.poll(10)
    finally:
        server.close()


async def everything(url: str) -> None:
    found = [event.seq async for event in Client(url, "rk_x").events()]
    raise AssertionError(f"it ended after {found}")


class Talking:
    """A stream that goes on for as long as it is listened to, and never says good-bye."""

    def __init__(self) -> None:
        from websockets.sync.server import serve

        self._server = serve(self._converse, "127.0.0.1", 0, compression=None)
        self.client = Client(f"http://127.0.0.1:{self._server.socket.getsockname()[1]}", "rk_x")
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Talking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(10)

    def _converse(self, connection: Any) -> None:
        from websockets.exceptions import ConnectionClosed

        connection.recv(timeout=10)
        connection.send(json.dumps({"type": "subscribed", "at": {"events": -1}}))
        with contextlib.suppress(ConnectionClosed):
            for seq in range(10**6):
                connection.send(batch(("events", seq)))


async def breaks_off(events: AsyncIterator[Event]) -> None:
    async for _ in events:
        break


async def is_cut_off(events: AsyncIterator[Event]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            async for _ in events:
                await asyncio.sleep(0.001)


async def takes_one(events: AsyncIterator[Event]) -> None:
    await asyncio.wait_for(anext(events), 30)


@pytest.mark.parametrize("leave", [breaks_off, is_cut_off, takes_one])
def test_who_stops_listening_leaves_nothing_open(
    leave: Callable[[AsyncIterator[Event]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """However it is left, also as the last thing that an event loop does."""
    with Talking() as server, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")

        async def listen() -> None:
            await leave(server.client.events())

        for _ in range(5):
            asyncio.run(listen())
            gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_what_cannot_be_meant_is_refused_before_it_is_sent() -> None:
    run = RemoteRun(Client("http://127.0.0.1:1", "rk_x"), "r")
    with pytest.raises(InputError, match="actors or learner"):
        run.scale()
    with pytest.raises(InputError, match="confirm='r'"):
        run.delete(confirm="last")
    with pytest.raises(InputError, match="JSON"):
        run.set(learning_rate=float("nan"))
    with pytest.raises(InputError, match=r"missing\.yaml"):
        Client("http://127.0.0.1:1", "rk_x").submit("missing.yaml")


# --- a real server -------------------------------------------------------------------------------


class Wire:
    """A way to the server that can be cut: now, or just before the next answer comes back."""

    def __init__(self, url: str) -> None:
        self.lead_to(url)
        self.swallow = threading.Event()  # the next answer is lost
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def lead_to(self, url: str) -> None:
        """From now on to another server."""
        host, _, port = url.removeprefix("http://").partition(":")
        self._to = (host, int(port))

    def cut(self) -> None:
        """Everybody's connection is lost."""
        self.cuts += 1
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(10)

    def _begin(self, work: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                far = socket.create_connection(self._to)
            except OSError:  # nobody there
                near.close()
                continue
            self._open |= {near, far}
            self._begin(self._carry, near, far, False)
            self._begin(self._carry, far, near, True)

    def _carry(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):  # cut
            while data := source.recv(65536):
                if is_answer and self.swallow.is_set():
                    self.swallow.clear()
                    self.cuts += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._open.discard(end)
            end.close()


@pytest.fixture(scope="module")
def server(shared_cli: Cli) -> Served:
    return shared_cli.serve("--cpus", 4)


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[Client]:
    with Client(server.url, server.token) as made:
        yield made


@pytest.fixture(scope="module")
def run(client: Client) -> RemoteRun:
    """A run that goes on for all tests of this module."""
    made = client.submit(build(ENDLESS), reason="for the tests")
    made.wait(steps=2000, timeout_s=120)
    return made


@pytest.fixture
def wire(server: Served) -> Iterator[Wire]:
    made = Wire(server.url)
    yield made
    made.close()


def test_a_run_can_be_steered_and_says_why(client: Client, run: RemoteRun) -> None:
    assert run.answer is not None and run.answer.outcome == "accepted"
    assert client.run("last").id == client.run(run.id[:-1]).id == run.id
    assert run.set(learning_rate=1e-4, reason="a test").outcome == "accepted"
    assert run.set({"algorithm.gamma": 0.98}, dry_run=True).outcome == "would_accept"
    assert run.detail().hyperparameters["algorithm.learning_rate"] == 1e-4
    assert run.config()["algorithm"]["gamma"] == 0.99
    scaled = run.scale(actors=2, learner=1)
    assert scaled.kind == "scale_actors" and "learners stay at 1" in scaled.effect
    assert run.scale(actors=1).effect == "actors 2 -> 1: 1 process ends"
    assert run.row.actors_wanted == 1
    assert run.why().status == "running"
    said = [(entry.kind, entry.reason, entry.outcome) for entry in run.audit()]
    assert said[:3] == [
        ("create_run", "for the tests", "accepted"),
        ("start_run", "for the tests", "accepted"),
        ("set_hyperparameters", "a test", "accepted"),
    ]
    assert [entry.run for entry in client.audit()][:3] == [run.id] * 3


def test_pausing_holds_it_and_a_wait_sees_it_go_on(run: RemoteRun) -> None:
    run.pause()
    assert run.wait(status="paused", timeout_s=30).desired == "paused"
    with pytest.raises(TimedOut, match="paused") as caught:
        run.wait(status="running", timeout_s=0.3)
    assert isinstance(caught.value, TimeoutError)
    run.resume()
    steps = run.row.env_steps
    assert run.wait(steps=steps + 500, timeout_s=60).status == "running"


def test_what_the_run_cannot_do_is_rejected_in_one_line(client: Client, run: RemoteRun) -> None:
    with pytest.raises(Rejected, match="limit of 16"):
        run.scale(actors=99)
    with pytest.raises(InputError, match=r"algorithm\.learning_rate"):
        run.set(lerning_rate=1e-4)
    with pytest.raises(Rejected, match="stop it first"):
        run.delete(confirm=run.id)
    with pytest.raises(InputError, match="nope"):
        client.run("nope")
    with pytest.raises(InputError, match="CartPole-v1"):
        client.submit({"environment": {"id": "CartPoel-v1"}}, dry_run=True)
    with pytest.raises(Forbidden, match=r"allow\.code"):
        client.submit({"environment": {"id": "os:Env"}})


@pytest.mark.soak
def test_jobs_are_waited_for(run: RemoteRun) -> None:
    run.checkpoint()
    with pytest.raises(TimedOut, match="goes on"):
        run.evaluate(episodes=3, wait_s=0.01)
    result = run.evaluate(episodes=2, seed=1, wait_s=120)
    assert result["episodes"] == 2 and result["greedy"]["mean"] > 0
    with pytest.raises(RookeryError, match="has one seat, and a match needs two"):
        run.match(run.id, "script:random", games=2, wait_s=120)
    assert run.evaluate(episodes=1, dry_run=True).outcome == "would_accept"


@pytest.mark.soak
def test_lists_are_followed_over_their_pages(
    client: Client, run: RemoteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.client.PAGE", 2)
    made = [client.submit(ENDLESS, start=False) for _ in range(4)]
    rows = client.runs()
    assert [row.run for row in rows][:5] == [*(each.id for each in reversed(made)), run.id]
    assert {row.run for row in client.runs(status="created")} == {each.id for each in made}
    assert client.runs(environment="Acrobot-v1") == []
    assert len(client.audit()) > 2
    assert len({e.id for e in client.environments("classic control")}) > 2
    for each in made:
        assert each.delete(confirm=each.id).outcome == "accepted"


@pytest.mark.soak
def test_a_yaml_file_is_a_config_and_the_same_key_the_same_run(
    client: Client, tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("environment: {id: CartPole-v1}\nstop: {steps: 100}\n")
    first = client.submit(path, start=False, idempotency_key="one")
    assert client.submit(str(path), start=False, idempotency_key="one").id == first.id
    assert first.config() == build(load_yaml(path)).model_dump(mode="json")
    whole = client.submit(build(load_yaml(path)), start=False)
    assert whole.config() == first.config()
    whole.delete(confirm=whole.id)
    first.delete(confirm=first.id)


def test_an_answer_that_got_lost_does_not_make_it_act_twice(
    server: Served, run: RemoteRun, wire: Wire
) -> None:
    with Client(wire.url, server.token) as client:
        far = client.run(run.id)
        before = len(run.audit())
        for act in (far.checkpoint, lambda: far.set(entropy_coef=0.001)):
            cuts = wire.cuts
            wire.swallow.set()
            assert act().outcome == "accepted"
            assert wire.cuts == cuts + 1, "no answer was lost"
        assert len(run.audit()) == before + 2


def test_the_token_decides_what_may_be_done(server: Served, client: Client, run: RemoteRun) -> None:
    made = client.create_token("read", ttl_s=600, label="a visitor")
    with Client(server.url, made.token) as visitor:
        far = visitor.run(run.id)
        assert far.metrics(["env_steps"]).run == run.id
        with pytest.raises(Forbidden, match="operate"):
            far.pause()
        assert made.id in [token.id for token in client.tokens()]
        client.revoke_token(made.id)
        with pytest.raises(Unauthorized):
            far.detail()
        with pytest.raises(Unauthorized), far.follow():
            raise AssertionError("it was revoked")
        with pytest.raises(Unauthorized):
            asyncio.run(asyncio.wait_for(anext(aiter(far.events())), 30))


# --- the stream over a bad wire ------------------------------------------------------------------


async def first(events: AsyncIterator[Event], count: int, also: Callable[[int], None]) -> list[Any]:
    """So many events; `also` is called after each with how many there are."""
    found: list[Event] = []
    async for event in events:
        found.append(event)
        also(len(found))
        if len(found) == count:
            break
    return found


def test_events_go_on_over_lost_connections_without_a_gap_or_a_double(
    server: Served, run: RemoteRun, wire: Wire
) -> None:
    """A number of changes, each an event; the wire is cut in between again and again."""
    with Client(wire.url, server.token) as client:
        far = client.run(run.id)
        start = len(run.events_page(limit=1000).entries)
        after = run.events_page(limit=1000).entries[-1].seq

        def cut(count: int) -> None:
            if count % 7 == 3:
                wire.cut()

        async def listen() -> list[Event]:
            changing = asyncio.create_task(asyncio.to_thread(change))
            try:
                events = far.events(kinds=("events", "metrics"), after={"events": after})
                return await first(events, 60, cut)
            finally:
                await changing

        def change() -> None:
            for i in range(30):
                run.set(entropy_coef=1e-3 * (i % 2), reason=f"change {i}")

        found = asyncio.run(asyncio.wait_for(listen(), 120))
    assert wire.cuts >= 5
    heard = [event for event in found if event.channel == "events"]
    truth = run.events_page(limit=1000).entries[start:]
    assert [event.seq for event in heard] == [entry.seq for entry in truth[: len(heard)]]
    assert [event.kind for event in heard] == [entry.kind for entry in truth[: len(heard)]]
    metrics = [event.seq for event in found if event.channel == f"metrics/{run.id}"]
    assert metrics == list(range(metrics[0], metrics[0] + len(metrics)))
    assert LEFT_OUT not in {event.kind for event in found}


@pytest.mark.soak
def test_following_without_asyncio_goes_on_over_a_lost_connection(
    server: Served, run: RemoteRun, wire: Wire
) -> None:
    with Client(wire.url, server.token) as client, client.run(run.id).follow() as stream:
        found: list[Event] = []
        for _ in range(4):
            answer = run.set(entropy_coef=1e-3)
            wire.cut()
            while answer.command not in {e.data.get("command") for e in found}:
                batch = stream.poll(30)
                assert batch, "nothing came in 30 s"
                found += batch
        assert stream.trouble is None
    accepted = [e.data["command"] for e in found if e.kind == "command_accepted"]
    assert len(accepted) == len(set(accepted)) == 4


@pytest.mark.soak
def test_a_client_outlives_its_server(cli: Cli) -> None:
    """The server is killed and another takes its place: the client goes on where it was."""
    server = cli.serve("--cpus", 4)
    wire = Wire(server.url)
    try:
        with Client(wire.url, server.token) as client:
            run = client.submit(ENDLESS)
            run.wait(steps=500, timeout_s=120)
            with run.follow(kinds=("events",)) as stream:
                server.kill()
                assert stream.poll(0.5) == [] and stream.trouble is not None
                cli.home.close()
                second = cli.serve("--cpus", 4)
                assert second.token == server.token
                wire.lead_to(second.url)
                answer = run.set(learning_rate=1e-4)
                found: list[Event] = []
                while answer.command not in {e.data.get("command") for e in found}:
                    batch = stream.poll(60)
                    assert batch, "nothing came in 60 s"
                    found += batch
                after = [entry.seq for entry in run.events_page(limit=1000).entries]
                heard = [event.seq for event in found]
                begin = after.index(heard[0])
                assert heard == after[begin : begin + len(heard)]
                assert found[0].kind in ("run_owned", "worker_exited", "worker_starting")
            assert run.wait(steps=run.row.env_steps + 500, timeout_s=120).status == "running"
    finally:
        wire.close()
