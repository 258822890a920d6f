"""The host of a run's bus: a plain class that Ray places as an actor, on one node of the cluster.

It answers calls one after the other over a file, and lets those wait that ask for what is not there
yet. Processes of its own node may write to the same file beside it, so it looks about every
millisecond for what they published while somebody waits.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from rookery.bus import Outgoing, Position, Record
from rookery.bus.ray.calls import (
    Call,
    Done,
    decode_call,
    encode,
    failed,
    messages_from,
)
from rookery.bus.ray.direct import Listener
from rookery.bus.sqlite import SqliteBus
from rookery.errors import BusError, BusFull, RookeryError

LOOK_S = 0.001  # at what others have published
ROOM_S = 0.005  # a publisher that waits for room looks again
LARGE_BYTES = 64 << 10  # that are worth another thread

Serve = Callable[..., Any]


class BusHost:
    """`path`: of the bus's file. `limits`: as JSON, bytes that its topics may keep."""

    def __init__(self, path: str, limits: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._bus = SqliteBus(path, msgspec.json.decode(limits, type=dict[str, int]))
        self._changed: dict[str, asyncio.Event] = {}  # of topics that somebody waits for
        self._snapshots: dict[str, _Snapshot] = {}
        self._writer = ThreadPoolExecutor(1)
        self._listener = Listener({"call": self.call})

    async def alive(self) -> bytes:
        """Which process it is."""
        return str(os.getpid()).encode()

    async def direct(self) -> bytes:
        """Where it may be called past Ray."""
        return await listening(self._listener)

    async def call(self, content: bytes) -> bytes:
        try:
            return encode(Done(await self._answer(decode_call(content))))
        except (RookeryError, msgspec.ValidationError, TypeError, ValueError) as error:
            return encode(failed(error))

    def close(self) -> None:
        self._listener.close()
        self._bus.close()

    async def _answer(self, call: Call) -> Any:
        if call.snapshot:
            return await self._in_snapshot(call)
        if (waits := _WAITING.get(call.method)) is not None:
            return await waits(self, call)
        return _read(self._bus, call)

    async def publish(self, call: Call) -> list[int]:
        rows, timeout_s = call.arguments
        messages, deadline = messages_from(rows), time.monotonic() + timeout_s
        while True:
            try:
                offsets = await self._appended(call, messages)
                break
            except BusFull as full:
                if time.monotonic() >= deadline:
                    raise BusFull(str(full).replace("for 0 s", f"for {timeout_s:g} s")) from None
            await asyncio.sleep(ROOM_S)
        for topic in {message.topic for message in messages}:
            if topic in self._changed:
                self._changed[topic].set()
        return offsets

    async def _appended(self, call: Call, messages: list[Outgoing]) -> list[int]:
        """Large ones in a thread, so that others can read meanwhile."""
        append = partial(self._bus.publish_once, messages, 0.0, call.client, call.number)
        if sum(len(message.payload) for message in messages) < LARGE_BYTES:
            return append()
        return await asyncio.get_running_loop().run_in_executor(self._writer, append)

    async def poll(self, call: Call) -> list[Any]:
        """Records, where the next poll begins, and whether retention took some in between."""
        topic, start, timeout_s, limit = call.arguments
        deadline = time.monotonic() + timeout_s
        subscription = self._bus.subscribe(topic, (start,))
        while True:
            records = subscription.poll(0.0, limit)
            left = deadline - time.monotonic()
            if records or left <= 0:
                return [records, subscription.position()[0]]
            await self._news(topic, subscription.position(), left)

    async def _news(self, topic: str, seen: Position, timeout_s: float) -> None:
        """Until there is more than what was seen, or the time is up: one looks for all who wait."""
        waiting = self._changed.get(topic)
        if waiting is not None:
            await _within(waiting.wait(), timeout_s)
            return
        changed = self._changed[topic] = asyncio.Event()
        deadline = time.monotonic() + timeout_s
        try:
            while not changed.is_set() and time.monotonic() < deadline:
                await _within(changed.wait(), LOOK_S)
                if self._bus.end(topic) > seen:
                    break
        finally:
            del self._changed[topic]
            changed.set()

    async def snapshot(self, call: Call) -> str:
        name = uuid4().hex
        self._snapshots[name] = await asyncio.to_thread(_Snapshot, self._bus)
        return name

    async def leave_snapshot(self, call: Call) -> None:
        (name,) = call.arguments
        if (snapshot := self._snapshots.pop(name, None)) is not None:
            await asyncio.to_thread(snapshot.close)

    async def _in_snapshot(self, call: Call) -> Any:
        snapshot = self._snapshots.get(call.snapshot)
        if snapshot is None:
            raise BusError("the snapshot is over: its host was started again")
        return await asyncio.wrap_future(snapshot.thread.submit(_read, self._bus, call))


class _Snapshot:
    """A thread that sees one moment of the file."""

    def __init__(self, bus: SqliteBus) -> None:
        self.thread, self._stack = ThreadPoolExecutor(1), ExitStack()
        self.thread.submit(self._stack.enter_context, bus.snapshot()).result()

    def close(self) -> None:
        self.thread.submit(self._stack.close).result()
        self.thread.shutdown()


async def listening(listener: Listener) -> bytes:
    """At the address by which Ray's nodes know this one; on a cluster of ours that is loopback."""
    from ray.util import get_node_ip_address

    return await listener.address(get_node_ip_address())


async def _within(waited: Awaitable[Any], seconds: float) -> None:
    try:
        await asyncio.wait_for(waited, seconds)
    except TimeoutError:
        return


def _read(bus: SqliteBus, call: Call) -> Any:
    """What needs no waiting."""
    answer = _METHODS.get(call.method)
    if answer is None:
        raise BusError(f"a host of a bus knows no {call.method!r}")
    return answer(bus, *call.arguments)


def _poll_once(bus: SqliteBus, topic: str, start: int, _: float, limit: int) -> list[Any]:
    """Of a reader inside a snapshot."""
    subscription = bus.subscribe(topic, (start,))
    return [subscription.poll(0.0, limit), subscription.position()[0]]


def _lag(bus: SqliteBus, topic: str, start: int) -> int:
    return bus.subscribe(topic, (start,)).lag()


def _first(bus: SqliteBus, topic: str, start: int | str) -> int:
    wanted: Position | str = start if isinstance(start, str) else (start,)
    return bus.subscribe(topic, wanted).position()[0]


def _take_out(bus: SqliteBus, topic: str, stop: int, over: Iterable[int]) -> None:
    gone = set(over)

    def is_over(record: Record) -> bool:
        return record.offset in gone

    bus.thin(topic, (stop,), is_over)


_WAITING: dict[str, Callable[[BusHost, Call], Awaitable[Any]]] = {
    "publish": BusHost.publish,
    "poll": BusHost.poll,
    "snapshot": BusHost.snapshot,
    "leave_snapshot": BusHost.leave_snapshot,
}
_METHODS: dict[str, Serve] = {
    "poll": _poll_once,
    "first": _first,
    "lag": _lag,
    "newest": SqliteBus.newest,
    "newest_all": SqliteBus.newest_all,
    "newest_headers": SqliteBus.newest_headers,
    "headers": lambda bus, topic, start: list(bus.headers(topic, (start,))),
    "end": lambda bus, topic: bus.end(topic)[0],
    "retain": lambda bus, topic, start, keep: bus.retain(topic, (start,), keep),
    "above_floor": lambda bus, topic, start: bus.above_floor(topic, (start,)),
    "take_out": _take_out,
    "size_bytes": SqliteBus.size_bytes,
}
