"""The direct line: messages come whole, only who knows the secret is answered, breaks are told."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.bus.ray import direct
from rookery.bus.ray.direct import Address, DirectLine, Listener
from tests.conftest import loop_in_a_thread

WAIT_S = 20.0


class Served(NamedTuple):
    address: bytes
    held: threading.Event  # calls of `hold` have come


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    held = threading.Event()

    async def echo(content: bytes) -> bytes:
        return content

    async def twice(content: bytes) -> bytes:
        return content * 2

    async def hold(content: bytes) -> bytes:
        held.set()
        await asyncio.sleep(10 * WAIT_S)
        return content

    listener = Listener({"echo": echo, "twice": twice, "hold": hold})
    with loop_in_a_thread() as loop:
        asked = asyncio.run_coroutine_threadsafe(listener.address("127.0.0.1"), loop)
        yield Served(asked.result(WAIT_S), held)
        loop.call_soon_threadsafe(listener.close)


@pytest.fixture(scope="module")
def echo(served: Served) -> Iterator[DirectLine]:
    line = DirectLine(served.address, "echo", WAIT_S)
    yield line
    line.close()


@given(size=st.integers(0, 3000) | st.sampled_from([330_000, 5 << 20]))
def test_every_message_comes_whole(echo: DirectLine, size: int) -> None:
    content = bytes(n % 251 for n in range(min(size, 1000))).ljust(size, b"x")
    assert echo.ask(content) == content


def test_threads_share_a_line_and_each_gets_its_own_answer(echo: DirectLine) -> None:
    with ThreadPoolExecutor(8) as threads:
        contents = [str(n).encode() * 5000 for n in range(200)]
        assert list(threads.map(echo.ask, contents)) == contents


def test_a_connection_is_for_one_kind_of_call(served: Served) -> None:
    line = DirectLine(served.address, "twice", WAIT_S)
    assert line.ask(b"ab") == b"abab"
    line.close()


def test_who_does_not_know_the_secret_is_not_answered(served: Served) -> None:
    address = msgspec.msgpack.decode(served.address, type=Address)
    wrong = msgspec.structs.replace(address, secret=bytes(len(address.secret)))
    with pytest.raises(ConnectionError):
        DirectLine(msgspec.msgpack.encode(wrong), "echo", WAIT_S)


def test_a_call_of_an_unknown_kind_is_not_answered(served: Served) -> None:
    with pytest.raises(ConnectionError):
        DirectLine(served.address, "shell", WAIT_S)


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, (4).to_bytes(8, "little") + b"junk"]
)
def test_what_is_no_greeting_ends_the_connection(served: Served, said: bytes) -> None:
    address = msgspec.msgpack.decode(served.address, type=Address)
    with (
        socket.create_connection((address.host, address.port), WAIT_S) as stranger,
        suppress(ConnectionError),  # reset, as the host left before it had read it all
    ):
        stranger.sendall(said)
        assert stranger.recv(64) == b""


def test_who_says_nothing_is_not_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "GREET_S", 0.1)
    address = msgspec.msgpack.decode(served.address, type=Address)
    with socket.create_connection((address.host, address.port), WAIT_S) as stranger:
        assert stranger.recv(64) == b""


def test_a_message_that_is_too_large_ends_the_connection(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "LARGEST_CALL", 100)
    line = DirectLine(served.address, "echo", WAIT_S)
    with pytest.raises(OSError, match=r"closed|reset|pipe"):
        line.ask(bytes(101))
    line.close()


def test_a_host_that_does_not_answer_in_time_is_told(served: Served) -> None:
    line = DirectLine(served.address, "hold", 0.2)
    with pytest.raises(TimeoutError):
        line.ask(b"x")
    line.close()


def test_a_slow_network_is_not_taken_for_a_host_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is large takes longer than an answer may, and goes on coming through all the while."""
    answer_s, size = 1.0, 6 << 20
    monkeypatch.setattr(direct, "SLOWEST", size / 10.0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)

        def host() -> int:
            line, _ = listening.accept()
            with line:
                (length,) = direct._LENGTH.unpack(direct._exactly(line, 8))
                direct._exactly(line, length)  # the greeting
                line.sendall(direct._WELCOME)
                (length,) = direct._LENGTH.unpack(direct._exactly(line, 8))
                for _ in range(8):
                    time.sleep(answer_s / 4)
                    direct._exactly(line, length // 8)
                time.sleep(answer_s * 2)  # it writes it down
                line.sendall(direct._LENGTH.pack(0))
            return int(length)

        address = Address("127.0.0.1", listening.getsockname()[1], b"secret")
        with ThreadPoolExecutor(1) as pool:
            served = pool.submit(host)
            line = DirectLine(msgspec.msgpack.encode(address), "echo", answer_s)
            assert line.ask(bytes(size)) == b"" and served.result(WAIT_S) == size
            line.close()


def test_a_line_that_is_closed_while_somebody_waits_leaves_no_socket(served: Served) -> None:
    """A socket that is left open is a warning, and so an error here."""
    served.held.clear()
    line = DirectLine(served.address, "hold", 1.0)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(line.ask, b"x")
        assert served.held.wait(WAIT_S)
        line.close()
        with pytest.raises(TimeoutError):
            waiting.result(WAIT_S)


def test_a_place_where_nobody_may_listen_is_no_address() -> None:
    assert asyncio.run(Listener({}).address("192.0.2.1")) == b""
