"""A switchboard and the tunnel behind it: what workers ask there is answered from files here.

No Ray cluster: the switchboard lives in a loop of its own, and handles give futures as Ray's do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from ray.exceptions import ActorAlreadyExistsError, ActorDiedError

from rookery.bus import EARLIEST, LATEST, Outgoing
from rookery.bus.ray.calls import Call, encode
from rookery.bus.ray.client import HostedBus
from rookery.bus.sqlite import SqliteBus
from rookery.checkpoints.hosted import HostedStore
from rookery.checkpoints.store import FileStore
from rookery.errors import CheckpointGone
from rookery.launchers.ray.driver import Driver
from rookery.launchers.ray.host import Switchboard
from rookery.launchers.ray.tunnel import Tunnel
from rookery.launchers.ray.words import HostOrder
from tests.conftest import loop_in_a_thread

WAIT_S = 20.0
TOPIC = "experiences"


class Handle:
    """Of a switchboard, as Ray gives one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._board = loop, Switchboard()
        self.error: Exception | None = None
        self.under_way: list[Future[bytes]] = []

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)

    def fail(self, error: Exception) -> None:
        """All calls, those under way too."""
        self.error = error
        for called in self.under_way:
            if not called.done():
                called.set_exception(error)

    def call_in_cluster(self, name: str, *arguments: Any) -> Future[bytes]:
        called: Coroutine[Any, Any, bytes] = getattr(self._board, name)(*arguments)
        return asyncio.run_coroutine_threadsafe(called, self._loop)


class Method:
    def __init__(self, handle: Handle, name: str) -> None:
        self._handle, self._name = handle, name

    def remote(self, *arguments: bytes) -> Reference:
        found: Future[bytes] = Future()
        self._handle.under_way.append(found)
        if self._handle.error is not None:
            self._handle.fail(self._handle.error)
            return Reference(found)

        def hand_on(called: Future[bytes]) -> None:
            if not called.cancelled() and not found.done():
                found.set_result(called.result())

        self._handle.call_in_cluster(self._name, *arguments).add_done_callback(hand_on)
        return Reference(found)


class Reference:
    def __init__(self, found: Future[bytes]) -> None:
        self._found = found

    def future(self) -> Future[bytes]:
        return self._found


class Line:
    """A worker's, to whichever switchboard there is."""

    name = "a line"
    trouble = None

    def __init__(self, board: Handle, method: str = "call") -> None:
        self.board, self._method = board, method

    def ask(self, content: bytes) -> bytes:
        return self.board.call_in_cluster(self._method, content).result(WAIT_S)

    def close(self) -> None:
        """There is nothing to be closed."""


class Served:
    """A tunnel at work, and how its thread ended."""

    def __init__(self, order: HostOrder, board: Handle) -> None:
        self.tunnel = Tunnel(order, board)
        self.ended: Future[None] = Future()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        try:
            self.ended.set_result(self.tunnel.serve())
        except BaseException as error:  # noqa: BLE001 for the test to look at
            self.ended.set_exception(error)


@pytest.fixture
def cluster() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that stands for it."""
    with loop_in_a_thread() as loop:
        yield loop


@pytest.fixture
def order(tmp_path: Path) -> HostOrder:
    return HostOrder(str(tmp_path / "bus.sqlite"), {TOPIC: 1 << 20}, str(tmp_path))


@pytest.fixture
def board(cluster: asyncio.AbstractEventLoop) -> Handle:
    return Handle(cluster)


@pytest.fixture
def served(order: HostOrder, board: Handle) -> Iterator[Served]:
    found = Served(order, board)
    yield found
    if not found.ended.done():
        found.tunnel.close()
    found.thread.join(WAIT_S)
    assert not found.thread.is_alive()


def test_what_a_worker_publishes_lies_in_the_owners_file(
    served: Served, board: Handle, order: HostOrder
) -> None:
    bus = HostedBus(Line(board))
    assert bus.publish([Outgoing(TOPIC, b"one"), Outgoing(TOPIC, b"two")]) == [0, 1]
    assert [r.payload for r in bus.subscribe(TOPIC, EARLIEST).poll(0.0)] == [b"one", b"two"]
    own = SqliteBus(order.path, {})
    assert [r.payload for r in own.subscribe(TOPIC, EARLIEST).poll(0.0)] == [b"one", b"two"]
    own.close()


def test_a_reader_that_waits_holds_up_nobody_and_hears_of_what_comes(
    served: Served, board: Handle
) -> None:
    bus = HostedBus(Line(board))
    readers = [bus.subscribe(TOPIC, LATEST) for _ in range(8)]
    with ThreadPoolExecutor(len(readers)) as threads:
        waiting = [threads.submit(reader.poll, WAIT_S) for reader in readers]
        bus.publish([Outgoing(TOPIC, b"news")])
        found = [each.result(WAIT_S) for each in waiting]
    assert [[r.payload for r in each] for each in found] == [[b"news"]] * len(readers)


def test_a_checkpoint_lies_in_the_owners_store_and_errors_come_back(
    served: Served, board: Handle, tmp_path: Path
) -> None:
    store = HostedStore(Line(board, "store").ask, "checkpoints")
    store.save("000001", {"weights": b"w" * 1_000_000})
    assert FileStore(tmp_path / "checkpoints").names() == ["000001"] == store.names()
    assert store.load("000001", ["weights"]) == {"weights": b"w" * 1_000_000}
    with pytest.raises(CheckpointGone):
        store.load("000002")


def test_callers_at_the_next_switchboard_are_answered(
    served: Served, board: Handle, cluster: asyncio.AbstractEventLoop
) -> None:
    HostedBus(Line(board)).publish([Outgoing(TOPIC, b"one")])
    other = Handle(cluster)
    served.tunnel.board = other
    board.fail(ActorDiedError())
    assert HostedBus(Line(other)).publish([Outgoing(TOPIC, b"two")]) == [1]


def test_an_answer_to_a_caller_of_the_switchboard_before_goes_to_nobody(
    cluster: asyncio.AbstractEventLoop,
) -> None:
    async def ring_each() -> list[Any]:
        boards = Switchboard(), Switchboard()
        calls = [
            asyncio.create_task(board.call(content))
            for board, content in zip(boards, (b"first", b"second"), strict=True)
        ]
        first, second = [await board.take() for board in boards]
        await boards[1].give(first)
        await boards[1].give(second)
        await boards[0].give(first)
        return await asyncio.wait_for(asyncio.gather(*calls), WAIT_S)

    found = asyncio.run_coroutine_threadsafe(ring_each(), cluster).result(WAIT_S)
    assert found == [b"first", b"second"]


def test_a_tunnel_that_is_closed_ends_though_callers_wait(served: Served, board: Handle) -> None:
    reader = board.call_in_cluster("call", encode(Call("poll", [TOPIC, 0, 10 * WAIT_S, 1])))
    HostedBus(Line(board)).publish([Outgoing("other", b"")])  # which comes after it
    served.tunnel.close()
    served.ended.result(WAIT_S)
    assert not reader.done()


def test_a_cluster_that_is_gone_for_good_ends_the_tunnel_loudly(
    served: Served, board: Handle
) -> None:
    HostedBus(Line(board)).publish([Outgoing(TOPIC, b"one")])
    board.fail(ConnectionError("the client has been disconnected"))
    with pytest.raises(ExceptionGroup) as caught:
        served.ended.result(WAIT_S)
    assert caught.group_contains(ConnectionError)


class TakenName:
    """What a client gets for an actor whose name is taken: it hears of it by the first call."""

    def options(self, **_: Any) -> TakenName:
        return self

    def remote(self, *_: Any) -> TakenName:
        return self

    @property
    def alive(self) -> TakenMethod:
        return TakenMethod()


class TakenMethod:
    def remote(self) -> None:
        raise ActorAlreadyExistsError("the name is already taken")


def test_a_client_notices_that_the_name_of_a_host_is_not_free_yet(
    order: HostOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookery.launchers.ray.driver.start_thread", lambda *_: None)
    driver = Driver("rookery", {}, is_client=True)
    driver._host_class = TakenName()
    assert driver._place_host("a-run", order) is None
    assert not driver._tunnels  # it would answer for a switchboard that is another's
