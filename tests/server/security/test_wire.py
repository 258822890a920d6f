"""Connections that are slow, endless or many, at a real server on a loopback port."""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.server.security import wire
from rookery.server.security.connections import Connections
from rookery.server.security.wire import HEAD_BYTES, HEADERS, HELLO_BYTES, PIPELINED
from tests.server.security.test_guard_wire import RUNS, TIMEOUT_S, UPGRADE, Reply, Served, serving

BRIEF_S = 0.3
STREAM = "/api/v1/stream"
HEALTH = "GET /healthz HTTP/1.1\r\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, connections=64) as found:
        yield found


@pytest.fixture
def hasty(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """One that waits for nobody."""
    monkeypatch.setattr(wire, "HEAD_S", BRIEF_S)
    monkeypatch.setattr(wire, "STALL_S", BRIEF_S)
    return served


def sent(connection: socket.socket, part: bytes, most: int) -> int:
    """How many bytes of an endless text the server takes before it ends the connection."""
    size = 0
    while size < most:
        try:
            connection.sendall(part)
        except (ConnectionResetError, BrokenPipeError):
            break
        size += len(part)
    return size


def ended(connection: socket.socket) -> bytes:
    """What the server still says; waits for the end of the connection."""
    said = b""
    try:
        while part := connection.recv(65536):
            said += part
    except (ConnectionResetError, BrokenPipeError):
        return said
    return said


@pytest.mark.parametrize(
    "head",
    [
        f"{HEALTH}X-Endless: ",
        f"{HEALTH}X-Endless",
        "GET /healthz?",
        f"POST {RUNS} HTTP/1.1\r\n{{host}}{{bearer}}Content-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n1;extension=",
    ],
    ids=["value", "name", "address", "extension of a chunk"],
)
def test_what_has_no_end_is_ended(served: Served, head: str) -> None:
    with served.connect() as connection:
        begun = head.format(host=served.host, bearer=served.bearer)
        connection.sendall(begun.encode())
        taken = sent(connection, b"a" * 4096, 64 << 20)
        assert taken < 64 << 20, "all of it was taken in"
    assert served.get(served.host, target="/healthz").status == 200


def test_a_head_that_is_too_large_is_told_so(served: Served) -> None:
    reply = served.get(f"{served.host}X: {'a' * (HEAD_BYTES + 40_000)}\r\n", target="/healthz")
    assert reply.status == 431 and "send fewer" in reply.detail
    assert reply.headers["connection"] == "close"
    many = "".join(f"X-{number}: 1\r\n" for number in range(HEADERS))
    assert served.get(served.host + many, target="/healthz").status == 431
    assert served.get(served.host + f"X: {'a' * 8000}\r\n", target="/healthz").status == 200


def test_trailers_do_not_become_headers(served: Served) -> None:
    head = f"{served.host}{served.bearer}Content-Type: application/json\r\n"
    body = "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-Late: 1\r\n"
    assert served.raw(f"POST {RUNS} HTTP/1.1\r\n{head}{body}\r\n").status == 200
    (names,) = [{name for name, _ in head} for head in served.inner.heads]
    assert b"content-type" in names and b"x-late" not in names


@pytest.mark.parametrize("begun", ["", "GET", f"{HEALTH}Host: x\r\n"])
def test_a_request_that_does_not_come_is_not_waited_for(hasty: Served, begun: str) -> None:
    with hasty.connect() as connection:
        connection.sendall(begun.encode())
        assert Reply.read(connection).status == 408
        assert ended(connection) == b""


@pytest.mark.parametrize("drop", [b"a", b"\r\n"], ids=["bytes of a header", "empty lines"])
def test_a_byte_now_and_then_gains_no_time(hasty: Served, drop: bytes) -> None:
    """After a first request, too: then nothing but empty lines came, and no time ran."""
    with hasty.connect() as connection:
        connection.sendall(f"{HEALTH}{hasty.host}\r\n".encode())
        assert Reply.read(connection).status == 200
        connection.sendall(b"\r\n" if drop == b"\r\n" else f"{HEALTH}X: ".encode())
        connection.settimeout(0.02)
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            connection.sendall(drop)
            try:
                said = connection.recv(100)
            except TimeoutError:
                continue
            assert said.startswith(b"HTTP/1.1 408")
            return
    raise AssertionError("it was waited for")


def test_an_answer_that_nobody_reads_is_given_up(hasty: Served) -> None:
    hasty.inner.answer = b"a" * (32 << 20)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(TIMEOUT_S)
        connection.connect(("127.0.0.1", hasty.port))
        connection.sendall(f"GET {RUNS} HTTP/1.1\r\n{hasty.host}{hasty.bearer}\r\n".encode())
        connection.recv(1)
        time.sleep(3 * BRIEF_S)
        assert len(ended(connection)) < 32 << 20


def test_strangers_give_way_to_who_comes_and_nobody_else_does(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    known, strangers = served.connect(), list[socket.socket]()
    request = f"GET {RUNS} HTTP/1.1\r\n{served.host}{served.bearer}\r\n".encode()
    with known, caplog.at_level(logging.WARNING):
        known.sendall(request)
        assert Reply.read(known).status == 200
        for number in range(100):
            strangers.append(served.connect())
            strangers[-1].sendall(f"{HEALTH}X-{number}: ".encode())
            if number % 20 == 0:
                assert served.get(served.host + served.bearer).status == 200
                known.sendall(request)
                assert Reply.read(known).status == 200
        assert ended(strangers[0]) == b"", "the first has gone"
        strangers[-1].sendall(f"1\r\n{served.host}\r\n".encode())
        assert Reply.read(strangers[-1]).status == 200, "the last is served"
    for stranger in strangers:
        stranger.close()
    lines = [record.getMessage() for record in caplog.records if "gave way" in record.message]
    assert len(lines) == 1, "once a minute"


@pytest.mark.parametrize(
    ("first", "stays"),
    [
        (f"{HEALTH}X: ", False),
        ("GET", False),
        (f"GET {STREAM} HTTP/1.1\r\n{{host}}{UPGRADE}\r\n", False),
        (f"GET {STREAM} HTTP/1.1\r\n{{host}}{{bearer}}{UPGRADE}\r\n", True),
        (f"{HEALTH}{{host}}Connection: close\r\n\r\n", True),
        (f"GET {RUNS} HTTP/1.1\r\n{{host}}{{bearer}}Connection: close\r\n\r\n", True),
    ],
    ids=["half", "a word", "says later who it is", "says so now", "a whole request", "an owner"],
)
def test_in_a_rush_whoever_does_not_speak_at_once_goes(
    served: Served, monkeypatch: pytest.MonkeyPatch, first: str, stays: bool
) -> None:
    monkeypatch.setattr(Connections, "_is_rush", lambda self: True)
    with contextlib.ExitStack() as others:
        for _ in range(8):  # half of the strangers that there is room for
            others.enter_context(served.connect())
        with served.connect() as connection:
            connection.sendall(first.format(host=served.host, bearer=served.bearer).encode())
            assert (ended(connection)[:4] == b"HTTP") == stays


def test_a_token_has_a_share_of_the_connections(served: Served) -> None:
    """64 of which 56 are for tokens, and half of these for one."""
    request = f"GET {RUNS} HTTP/1.1\r\n{served.host}{served.bearer}\r\n".encode()
    held, statuses = list[socket.socket](), list[int]()
    for _ in range(30):
        held.append(served.connect())
        held[-1].sendall(request)
        statuses.append(Reply.read(held[-1]).status)
    assert statuses == [200] * 28 + [429] * 2
    for connection in held:
        connection.close()


def test_a_conversation_says_who_it_is_before_it_says_much(served: Served) -> None:
    with served.connect() as connection:
        connection.sendall(f"GET {STREAM} HTTP/1.1\r\n{UPGRADE}{served.host}\r\n".encode())
        assert Reply.read(connection).status == 101
        ping = b"\x89\x80\0\0\0\0"
        assert sent(connection, ping * 512, 16 << 20) < 16 << 20
    assert 512 * len(ping) * 2 > HELLO_BYTES, "the second time at the latest"


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What is logged, none of which may have a traceback."""
    yield caplog
    said = caplog.get_records("call")
    assert not [record.getMessage() for record in said if record.exc_info]


@pytest.mark.parametrize(
    ("target", "more"),
    [
        (STREAM, "X: " + "a" * 9000),
        (f"{STREAM}?{'a' * 9000}", "X: a"),
        (STREAM, "Content-Length: 5"),
    ],
    ids=["a long header", "a long address", "a body"],
)
def test_an_upgrade_that_its_parser_does_not_take_is_refused(
    served: Served, target: str, more: str
) -> None:
    """Nothing was answered, and nothing ended it."""
    reply = served.get(f"{UPGRADE}{served.host}{more}\r\n", target=target)
    assert reply.status == 400 and "WebSocket" in reply.detail


def test_whoever_is_answered_late_is_known_to_have_left(
    served: Served, log: pytest.LogCaptureFixture
) -> None:
    """Also where more requests wait on the same connection, of which one was too many."""
    served.inner.is_patient = True
    request = f"GET {RUNS} HTTP/1.1\r\n{served.host}{served.bearer}\r\n".encode()
    with served.connect() as connection:
        connection.sendall(request * (PIPELINED + 3))
        assert ended(connection) == b""
    assert served.inner.left.get(timeout=TIMEOUT_S) == RUNS


def test_a_body_that_breaks_off_is_not_asked_for(
    served: Served, log: pytest.LogCaptureFixture
) -> None:
    head = f"{served.host}{served.bearer}Content-Type: application/json\r\nExpect: 100-continue\r\n"
    request = f"POST {RUNS} HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\nnone"
    assert served.raw(request).status == 400
    assert served.get(served.host, target="/healthz").status == 200


@pytest.mark.parametrize("and_leaves", [False, True])
def test_what_is_no_text_ends_a_conversation(
    served: Served, log: pytest.LogCaptureFixture, and_leaves: bool
) -> None:
    served.inner.talks = True
    good, bad, close = b"\x81\x81\0\0\0\0a", b"\x81\x81\0\0\0\0\xff", b"\x88\x80\0\0\0\0"
    with served.connect() as connection:
        connection.sendall(f"GET {STREAM} HTTP/1.1\r\n{UPGRADE}{served.host}\r\n".encode())
        assert Reply.read(connection).status == 101
        connection.sendall(good + bad + (close if and_leaves else b""))
        ended(connection)
    assert served.inner.left.get(timeout=TIMEOUT_S) == "ClientDisconnected"
    assert log.messages == ["refused 1 (not WebSocket), the last from 127.0.0.1"]


def test_only_so_many_requests_wait_on_a_connection(served: Served) -> None:
    request = f"GET {RUNS} HTTP/1.1\r\n{served.host}\r\n".encode()
    with served.connect() as connection:
        connection.sendall(request * 20 * PIPELINED)
        assert ended(connection).count(b"HTTP/1.1 401") < 20 * PIPELINED
