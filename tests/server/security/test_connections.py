"""Who gets a place, where there are few; and who has to go."""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any

import pytest

from rookery.control.tokens import Scope, Token
from rookery.server.mcp.http import MOST_SESSIONS, SESSION, Sessions
from rookery.server.security.connections import (
    RESERVED,
    RUSH,
    RUSH_PER_S,
    Connection,
    Connections,
    room_for,
)
from rookery.server.security.refusals import Seldom
from rookery.server.security.shares import NoPlace, Shares


def token(name: str, scope: Scope = "read") -> Token:
    return Token(name, scope, name)


OWNER = token("owner", "admin")


def taken(shares: Shares, who: Token, most: int = 10_000) -> int:
    """How many places it gets."""
    for count in range(most):
        try:
            shares.take(who)
        except NoPlace:
            return count
    return most


@pytest.mark.parametrize(
    ("most", "one", "two"), [(512, 256, 448), (256, 128, 224), (4, 2, 3), (2, 1, 1), (1, 1, 1)]
)
def test_one_token_gets_half_and_all_of_them_leave_room_for_the_owner(
    most: int, one: int, two: int
) -> None:
    shares = Shares(most, "streams")
    assert taken(shares, token("a")) == one
    assert one + taken(shares, token("b")) == two
    assert taken(shares, token("c", "operate")) == 0
    assert taken(shares, OWNER) == most - two
    assert len(shares) == most


def test_nobody_gets_a_place_where_there_is_none() -> None:
    assert taken(Shares(0, "viewers"), OWNER) == 0


def test_a_place_is_free_again_and_a_refusal_says_what_to_do() -> None:
    shares = Shares(4, "viewers")
    with shares.place(token("a")), shares.place(token("a")):
        with pytest.raises(NoPlace, match="this token has 2 of 4 viewers: close some"):
            shares.take(token("a"))
        with shares.place(token("b")), pytest.raises(NoPlace, match="all 4 viewers are taken"):
            shares.take(token("c"))
    assert len(shares) == 0 and taken(shares, token("a")) == 2


class Port:
    """Connections, and which of them were dropped."""

    def __init__(self, most: int) -> None:
        self.now = 0.0
        self.table = Connections(most, clock=lambda: self.now)
        self.dropped: list[int] = []
        self._count = 0

    def connect(self, address: str, who: Token | None = None) -> Connection:
        number = self._count
        self._count += 1
        made = self.table.admit(address, lambda: self.dropped.append(number))
        if who is not None:
            made.belongs_to(who)
        return made


def test_of_one_address_the_first_stranger_goes() -> None:
    port = Port(64)
    for _ in range(18):
        port.connect("a")
    port.connect("b")
    assert port.dropped == [0, 1] and len(port.table) == 17


def test_of_all_addresses_the_first_stranger_goes_and_never_one_with_a_token() -> None:
    port = Port(64)
    port.connect("0", token("reader"))
    for number in range(64):
        port.connect(str(number))
    assert port.dropped == [1] and len(port.table) == 64


def test_strangers_come_in_a_rush_where_there_are_many_and_many_come() -> None:
    port = Port(64)
    calm = [port.connect("a") for _ in range(8 + RUSH)]
    assert not any(stranger.in_rush for stranger in calm)
    port.now += 1.0
    later = [port.connect("a") for _ in range(2 * int(RUSH_PER_S))]
    assert [stranger.in_rush for stranger in later].count(False) == RUSH_PER_S
    port.now += 3600.0
    assert [port.connect("a").in_rush for _ in range(RUSH + 50)].count(False) == RUSH + 1


def test_those_with_tokens_leave_room_to_come_in() -> None:
    port = Port(64)
    for _ in range(54):
        port.connect("a", OWNER)
    for _ in range(3):
        with pytest.raises(NoPlace):
            [port.connect("a", OWNER) for _ in range(3)]
    assert len(port.table) <= 64
    port.connect("b")
    assert 0 not in port.dropped


def test_what_has_gone_is_not_counted_whoever_it_then_says_it_is() -> None:
    port = Port(64)
    made = port.connect("a", token("reader"))
    made.belongs_to(OWNER)  # another token on the same connection
    assert len(port.table) == 1
    made.leave()
    made.belongs_to(OWNER)
    made.leave()
    assert len(port.table) == 0


def test_a_process_takes_the_connections_that_it_has_descriptors_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = [256, 4096]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, found: limits.__setitem__(0, found[0]))
    assert room_for(1024) == 1024 and limits == [1024 + RESERVED, 4096]
    limits[:] = [1024, 1024]
    assert room_for(1024) == 1024 - RESERVED and limits == [1024, 1024]
    limits[:] = [resource.RLIM_INFINITY] * 2
    assert room_for(1024) == 1024
    limits[:] = [128, 128]
    assert room_for(1024) > 0


def test_a_line_of_a_library_is_said_once_a_minute() -> None:
    now = [0.0]
    seldom = Seldom(lambda: now[0])

    def said(text: str, *arguments: object) -> bool:
        record = logging.LogRecord("uvicorn.error", 40, "", 0, text, arguments, None)
        return bool(seldom.filter(record))

    assert [said("a %s", 1), said("a %s", 2), said("b"), said("a %s", 3)] == [True, False] * 2
    now[0] = 61.0
    assert said("a %s", 4) and not said("Invalid HTTP request received.")


def test_a_token_has_a_share_of_the_sessions_and_ended_ones_are_free() -> None:
    alive: dict[str, object] = {}
    statuses: list[int] = []

    async def sdk(scope: Any, receive: Any, send: Any) -> None:
        headers = [(SESSION, str(len(alive)).encode())] if scope["opens"] else []
        if scope["opens"]:
            alive[str(len(alive))] = None
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def ask(who: Token, opens: bool = True, headers: Any = ()) -> int:
        scope = {"type": "http", "state": {"token": who}, "opens": opens, "headers": headers}
        await sessions({**scope, "method": "GET"}, send, send)
        return statuses[-1]

    async def play() -> None:
        reader = token("reader")
        for _ in range(300):
            assert await ask(reader, opens=False) == 200, "what opens none takes none"
        assert [await ask(reader) for _ in range(MOST_SESSIONS // 2)].count(200) == 128
        assert await ask(reader) == 429 and await ask(OWNER) == 200
        assert await ask(reader, opens=False, headers=[(SESSION, b"0")]) == 200
        alive.clear()
        assert await ask(reader) == 200

    sessions = Sessions(sdk, lambda: alive)
    asyncio.run(play())


def test_an_id_of_a_session_is_answered_before_it_is_used_again() -> None:
    """The SDK would answer the second, and let the first wait for ever."""
    said, go_on = list[bytes](), asyncio.Event()

    async def sdk(scope: Any, receive: Any, send: Any) -> None:
        said.append((await receive())["body"])
        await asyncio.wait_for(go_on.wait(), 5)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(body: str, session: bytes = b"a", method: str = "POST") -> int:
        statuses: list[int] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body.encode("latin-1"), "more_body": False}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {"type": "http", "method": method, "state": {"token": OWNER}}
        await sessions({**scope, "headers": [(SESSION, session)]}, receive, send)
        return statuses[0]

    async def play() -> None:
        one, text = '{"id": 7, "method": "tools/call"}', '{"id": "7", "method": "tools/call"}'
        others = ('{"id": 8, "method": "ping"}', '{"id": 7, "result": {}}', '{"id": 7', "\xff")
        first = asyncio.create_task(ask(one))
        await asyncio.sleep(0)
        assert [await ask(one), await ask(text)] == [409, 409]
        rest = [asyncio.create_task(ask(body)) for body in others]
        rest.append(asyncio.create_task(ask(one, session=b"b")))
        rest.append(asyncio.create_task(ask("", method="GET")))
        await asyncio.sleep(0)
        go_on.set()
        assert [await task for task in (first, *rest)] == [200] * 7
        assert said == [text.encode("latin-1") for text in (one, *others, one, "")]
        assert await ask(one) == 200, "and then it may"

    sessions = Sessions(sdk, lambda: ())
    asyncio.run(play())
