"""The guard, as plain ASGI: who is let in, with what, and what everyone else is told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from rookery.control.settings import ServerSettings
from rookery.control.tokens import Token, TokenStore
from rookery.server.security.guard import Guard
from rookery.server.security.limits import RateLimits
from rookery.server.security.tickets import Tickets

HOST = b"127.0.0.1:7860"
RUNS = "/api/v1/runs"
ARTIFACT = "/api/v1/runs/x/artifacts/videos/a b.mp4"
JSON = (b"content-type", b"application/json")
METHODS = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND"]
SECURITY = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cache-control": b"no-store",
}


class Inner:
    """What stands behind the guard: keeps what it got, and answers with headers of its own."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.bodies: list[bytes] = []
        self.after: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
        if scope["type"] != "http":
            return
        message = await receive()
        self.bodies.append(message["body"])
        assert not message.get("more_body")
        own = [(b"content-type", b"text/html"), (b"cache-control", b"public")]
        own += [(b"set-cookie", b"a=b"), (b"content-security-policy", b"default-src 'self'")]
        await send({"type": "http.response.start", "status": 200, "headers": own})
        await send({"type": "http.response.body", "body": b"{}"})
        self.after.append((await receive())["type"])


@dataclass
class Answer:
    sent: list[Message]
    scope: Scope
    read: int = 0

    @property
    def start(self) -> Message:
        return self.sent[0]

    @property
    def status(self) -> int:
        return int(self.start["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        pairs = self.start["headers"]
        found = dict(pairs)
        assert len(found) == len(pairs), "no header is given twice"
        return found

    @property
    def problem(self) -> dict[str, Any]:
        assert self.headers[b"content-type"] == b"application/problem+json"
        body = b"".join(message["body"] for message in self.sent[1:])
        assert int(self.headers[b"content-length"]) == len(body)
        found: dict[str, Any] = json.loads(body)
        assert set(found) == {"type", "title", "status", "detail"}
        assert found["status"] == self.status
        assert "\n" not in found["detail"]
        return found


@dataclass
class World:
    """A guard and all that it asks."""

    tokens: TokenStore
    inner: Inner = field(default_factory=Inner)
    tickets: Tickets = field(default_factory=Tickets)
    server: ServerSettings = field(default_factory=lambda: ServerSettings(max_body_kb=1))
    options: dict[str, Any] = field(default_factory=dict)
    guard: Guard = field(init=False)

    def __post_init__(self) -> None:
        self.guard = Guard(self.inner, self.tokens, self.tickets, self.server, **self.options)
        self.token = self.tokens.create("operate", None, "laptop").token

    @property
    def bearer(self) -> tuple[bytes, bytes]:
        return (b"authorization", b"Bearer " + self.token.encode())

    def ask(
        self,
        *headers: tuple[bytes, bytes],
        method: str = "GET",
        path: str = RUNS,
        query: bytes = b"",
        parts: Iterable[bytes] = (b"",),
        host: bytes | None = HOST,
        kind: str = "http",
        **more: Any,
    ) -> Answer:
        given = [(b"host", host), *headers] if host is not None else [*headers]
        scope: Scope = {
            "type": kind,
            "path": path,
            "query_string": query,
            "headers": given,
            "client": ("10.1.2.3", 5),
            "extensions": {"websocket.http.response": {}},
            "state": {"kept": 1},
            **more,
        }
        if kind == "http":
            scope["method"] = method
        answer = Answer([], scope)
        waiting = list(parts)

        async def receive() -> Message:
            answer.read += 1
            if kind == "websocket":
                return {"type": "websocket.connect"}
            if not waiting:
                return {"type": "http.disconnect"}
            part = waiting.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(waiting)}

        async def send(message: Message) -> None:
            answer.sent.append(message)

        async def bounded() -> None:
            async with asyncio.timeout(30):
                await self.guard(scope, receive, send)

        asyncio.run(bounded())
        return answer

    def post(self, body: bytes, *headers: tuple[bytes, bytes], **more: Any) -> Answer:
        length = (b"content-length", str(len(body)).encode())
        return self.ask(self.bearer, length, *headers, method="POST", parts=[body], **more)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(TokenStore(tmp_path / "tokens.json"))


# --- who is let in -------------------------------------------------------------------------------


def test_a_good_token_is_let_in_and_known_behind_the_door(world: World) -> None:
    answer = world.ask(world.bearer)
    assert answer.status == 200
    state = world.inner.scopes[0]["state"]
    assert state["token"] == Token(world.token[3:11], "operate", "laptop", None)
    assert state["kept"] == 1


def test_no_secret_gets_behind_the_door(world: World) -> None:
    world.ask(world.bearer, (b"x-other", b"1"))
    assert world.inner.scopes[0]["headers"] == [(b"host", HOST), (b"x-other", b"1")]


@pytest.mark.parametrize("method", METHODS)
def test_without_a_token_nothing_is_answered_by_any_method(world: World, method: str) -> None:
    answer = world.ask(method=method)
    assert answer.status == 401
    assert answer.headers[b"www-authenticate"].startswith(b"Bearer")
    assert "token" in answer.problem["detail"]
    assert not world.inner.scopes


@pytest.mark.parametrize(
    "path",
    ["/", "/mcp", "/metrics", "/healthz/", "/healthz/x", "/HEALTHZ", "//healthz", "/api/v1/stream"],
)
def test_every_path_but_the_health_checks_needs_a_token(world: World, path: str) -> None:
    assert world.ask(path=path).status == 401
    assert not world.inner.scopes


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_health_checks_need_none_to_be_read(world: World, path: str) -> None:
    assert world.ask(path=path).status == 200
    assert world.ask(path=path, method="HEAD").status == 200
    assert world.ask((b"authorization", b"Bearer nonsense"), path=path).status == 200
    assert world.inner.scopes[0]["state"]["token"] is None
    assert world.ask(path=path, method="POST").status == 401


def wrong(token: str) -> list[bytes]:
    text = token.encode()
    return [
        b"Bearer",
        b"Bearer ",
        b"Bearer  ",
        b"Bearer " + text[:-1],
        b"Bearer " + text + b"x",
        b"Bearer " + text.upper(),
        b"Bearer rk_00000000_" + text[12:],
        b"Bearer " + text + b", Bearer " + text,
        b"Bearer\t" + text,
        b"Basic " + text,
        text,
        b"",
        b"Bearer \xff\xfe",
        b"Bearer " + b"A" * 100_000,
    ]


@pytest.mark.parametrize("number", range(14))
def test_a_wrong_token_is_refused(world: World, number: int) -> None:
    answer = world.ask((b"authorization", wrong(world.token)[number]))
    assert answer.status == 401
    assert b"www-authenticate" in answer.headers
    assert not world.inner.scopes


def test_the_name_of_the_scheme_has_no_case(world: World) -> None:
    assert world.ask((b"authorization", b"bEARER " + world.token.encode())).status == 200


def test_two_authorizations_are_none(world: World) -> None:
    assert world.ask(world.bearer, world.bearer).status == 401
    assert world.ask(world.bearer, (b"authorization", b"Bearer x")).status == 401


def test_an_expired_and_a_revoked_token_are_refused(tmp_path: Path) -> None:
    at = [0.0]
    world = World(TokenStore(tmp_path / "tokens.json"), options={"now": lambda: at[0]})
    made = world.tokens.create("read", 60)
    assert made.expires_s is not None
    bearer = (b"authorization", b"Bearer " + made.token.encode())
    at[0] = made.expires_s - 1
    assert world.ask(bearer).status == 200
    at[0] = made.expires_s
    assert world.ask(bearer).status == 401
    assert world.ask(world.bearer).status == 200
    TokenStore(world.tokens.path).revoke(world.token[3:11])
    assert world.ask(world.bearer).status == 401


@pytest.mark.parametrize("query", [b"token=%s", b"a=1&access_token=%s", b"x=%%20%s", b"ticket=%s"])
def test_a_token_in_an_address_is_refused_and_taken_out(world: World, query: bytes) -> None:
    answer = world.ask(query=query % world.token.encode())
    assert answer.status == 400
    assert "revoke" in answer.problem["detail"]
    assert b"rk_" not in answer.scope["query_string"]


def test_a_query_that_only_looks_a_bit_like_one_is_left_alone(world: World) -> None:
    query = b"search=network_x&names=a%2Cb&park_=1"
    assert world.ask(world.bearer, query=query).status == 200
    assert world.inner.scopes[0]["query_string"] == query


def test_cookies_are_not_looked_at(world: World) -> None:
    assert world.ask((b"cookie", b"token=" + world.token.encode())).status == 401


def test_ten_thousand_bad_tokens_get_as_many_answers_and_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    scope = {
        "type": "http",
        "method": "GET",
        "path": RUNS,
        "query_string": b"",
        "client": ("10.1.2.3", 5),
    }
    statuses: list[int] = []

    async def receive() -> Message:
        raise AssertionError("nothing is read of a request that is refused")

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def try_all() -> None:
        for i in range(10_000):
            text = f"Bearer rk_{i:08x}_{'secret' * 7}A".encode()
            headers = [(b"host", HOST), (b"authorization", text)]
            await world.guard({**scope, "headers": headers}, receive, send)

    with caplog.at_level(logging.DEBUG):
        asyncio.run(try_all())
    assert statuses == [401] * 10_000
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("rookery")]
    assert lines == ["refused 1 (bad token), the last from 10.1.2.3"]
    assert "secret" not in caplog.text


# --- Host and Origin -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [b"localhost", b"LOCALHOST:7860", b"127.0.0.1", b"127.0.0.1:1", b"[::1]", b"[::1]:7860"],
)
def test_loopback_names_are_ours_on_any_port(world: World, host: bytes) -> None:
    assert world.ask(world.bearer, host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        None,
        b"",
        b":7860",
        b"evil.example",
        b"evil.example:7860",
        b"127.0.0.1.evil.example:7860",
        b"localhost.evil.example",
        b"localhost.",
        b"localhost:",
        b"localhost:x",
        b"localhost:7860:1",
        b"localhost:999999",
        b"localhost:7860@evil.example",
        b"evil.example@localhost:7860",
        b"localhost, evil.example",
        b"localhost evil.example",
        b"::1",
        b"[::1",
        b"0.0.0.0:7860",
        b"2130706433",
        b"127.1",
        b"localhost\r\nx: y",
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("path", ["/healthz", RUNS])
def test_any_other_host_is_refused_even_with_a_token(
    world: World, host: bytes | None, path: str
) -> None:
    for kind in ("http", "websocket"):
        answer = world.ask(world.bearer, host=host, path=path, kind=kind)
        assert answer.status == 400
        assert "allowed_hosts" in json.loads(answer.sent[1]["body"])["detail"]
    assert not world.inner.scopes


def test_two_hosts_are_none(world: World) -> None:
    assert world.ask(world.bearer, (b"host", HOST)).status == 400
    assert world.ask(world.bearer, (b"host", b"evil.example")).status == 400


def test_names_that_the_owner_gave_are_ours(tmp_path: Path) -> None:
    server = ServerSettings(host="0.0.0.0", allowed_hosts=("Lab.Example.org", "other:8443"))
    world = World(TokenStore(tmp_path / "tokens.json"), server=server)
    asked = [b"lab.example.org", b"LAB.example.org:9", b"other:8443", b"0.0.0.0:7860", b"other"]
    assert [world.ask(world.bearer, host=host).status for host in asked] == [200] * 4 + [400]


FOREIGN = [
    b"null",
    b"",
    b"http://evil.example",
    b"https://evil.example",
    b"http://127.0.0.1",
    b"http://127.0.0.1:7861",
    b"http://localhost:7860",
    b"http://127.0.0.1:7860.evil.example",
    b"http://127.0.0.1:7860@evil.example",
    b"http://127.0.0.1:7860/",
    b"http://127.0.0.1:7860 http://evil.example",
    b"file://",
    b"ws://127.0.0.1:7860",
    b"127.0.0.1:7860",
    b"chrome-extension://abc",
]


@pytest.mark.parametrize("origin", FOREIGN)
@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_origin_is_refused_by_every_method(
    world: World, origin: bytes, method: str
) -> None:
    for path in (RUNS, "/healthz"):
        answer = world.ask(world.bearer, (b"origin", origin), method=method, path=path)
        assert answer.status == 403
        assert not any(name.startswith(b"access-control") for name in answer.headers)
    assert not world.inner.scopes


@pytest.mark.parametrize("origin", FOREIGN)
def test_a_foreign_origin_is_refused_on_upgrade(world: World, origin: bytes) -> None:
    for path in ("/api/v1/stream", "/other"):
        for headers in ([], [world.bearer]):
            answer = world.ask(*headers, (b"origin", origin), kind="websocket", path=path)
            assert answer.start["type"] == "websocket.http.response.start"
            assert answer.status == 403
    assert not world.inner.scopes


def test_our_own_origin_is_let_in(world: World) -> None:
    own = (b"origin", b"http://127.0.0.1:7860")
    assert world.ask(world.bearer, own).status == 200
    assert world.ask(world.bearer, (b"origin", b"https://127.0.0.1:7860")).status == 200
    tunnel = (b"origin", b"http://localhost:9999")
    assert world.ask(world.bearer, tunnel, host=b"LocalHost:9999").status == 200
    assert world.ask(world.bearer, own, own).status == 403


def test_under_tls_a_plain_page_is_foreign(tmp_path: Path) -> None:
    server = ServerSettings(tls_cert="a", tls_key="b")
    world = World(TokenStore(tmp_path / "tokens.json"), server=server)
    assert world.ask(world.bearer, (b"origin", b"https://127.0.0.1:7860")).status == 200
    assert world.ask(world.bearer, (b"origin", b"http://127.0.0.1:7860")).status == 403


# --- tickets -------------------------------------------------------------------------------------


def test_a_ticket_opens_one_artifact_once(world: World) -> None:
    query = f"a=1&ticket={world.tickets.issue(ARTIFACT)}&b=2".encode()
    answer = world.ask(path=ARTIFACT, query=query)
    assert answer.status == 200
    assert world.inner.scopes[0]["state"]["token"].scope == "read"
    assert answer.scope["query_string"] == b"a=1&b=2"
    answer = world.ask(path=ARTIFACT, query=query)
    assert answer.status == 401
    assert answer.scope["query_string"] == b"a=1&b=2"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ARTIFACT),
        ("DELETE", ARTIFACT),
        ("GET", ARTIFACT + "x"),
        ("GET", RUNS),
        ("GET", "/api/v1/tokens"),
    ],
)
def test_a_ticket_opens_nothing_else(world: World, method: str, path: str) -> None:
    query = f"ticket={world.tickets.issue(ARTIFACT)}".encode()
    assert world.ask(method=method, path=path, query=query).status == 401
    assert not world.inner.scopes


def test_two_tickets_are_none_and_a_bad_token_is_not_mended_by_one(world: World) -> None:
    query = f"ticket={world.tickets.issue(ARTIFACT)}".encode()
    assert world.ask(path=ARTIFACT, query=query + b"&" + query).status == 401
    bad = (b"authorization", b"Bearer x")
    assert world.ask(bad, path=ARTIFACT, query=query).status == 401
    assert world.ask(path=ARTIFACT, query=query, kind="websocket").status == 401


# --- WebSockets ----------------------------------------------------------------------------------


def test_the_stream_may_say_who_it_is_later(world: World) -> None:
    answer = world.ask(kind="websocket", path="/api/v1/stream")
    assert answer.start["type"] == "websocket.accept"
    assert world.inner.scopes[0]["state"]["token"] is None


def test_a_header_of_an_upgrade_must_be_good(world: World) -> None:
    good = world.ask(world.bearer, kind="websocket", path="/api/v1/stream")
    assert good.start["type"] == "websocket.accept"
    assert world.inner.scopes[0]["state"]["token"].id == world.token[3:11]
    assert world.bearer in world.inner.scopes[0]["headers"]  # the stream asks again with it
    bad = (b"authorization", b"Bearer x")
    assert world.ask(bad, kind="websocket", path="/api/v1/stream").status == 401
    assert len(world.inner.scopes) == 1


def test_any_other_upgrade_needs_a_header(world: World) -> None:
    for path in ("/", "/healthz", "/api/v1/stream/", "/mcp"):
        assert world.ask(kind="websocket", path=path).status == 401
    assert not world.inner.scopes


def test_a_server_that_cannot_answer_an_upgrade_closes_it(world: World) -> None:
    answer = world.ask(kind="websocket", path="/", extensions={})
    assert answer.sent == [{"type": "websocket.close", "code": 4401, "reason": ""}]


def test_the_lifespan_passes_and_nothing_unknown_does(world: World) -> None:
    world.ask(kind="lifespan")
    assert world.inner.scopes[0]["type"] == "lifespan"
    with pytest.raises(RuntimeError, match="unknown type"):
        world.ask(kind="webtransport")


# --- rates ---------------------------------------------------------------------------------------


def slow(tmp_path: Path) -> World:
    limits = RateLimits(0.5, 3, 0.1, 1, clock=lambda: 0.0)
    return World(TokenStore(tmp_path / "tokens.json"), options={"limits": limits})


def test_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    world = slow(tmp_path)
    answers = [world.ask(world.bearer) for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert answers[3].headers[b"retry-after"] == b"2"
    assert "wait 2 s" in answers[3].problem["detail"]


def test_changes_are_counted_apart_and_tokens_too(tmp_path: Path) -> None:
    world = slow(tmp_path)
    assert world.ask(world.bearer, method="POST").status == 200
    refused = world.ask(world.bearer, method="DELETE")
    assert refused.status == 429
    assert refused.headers[b"retry-after"] == b"10"
    assert world.ask(world.bearer).status == 200
    other = world.tokens.create("admin", None).token.encode()
    assert world.ask((b"authorization", b"Bearer " + other), method="POST").status == 200


def test_what_mcp_posts_is_no_change_yet(tmp_path: Path) -> None:
    world = slow(tmp_path)
    asked = [world.ask(world.bearer, method="POST", path=path) for path in ("/mcp", "/mcp/")]
    assert [answer.status for answer in asked] == [200, 200]


def test_upgrades_and_tickets_count_and_the_refused_do_not(tmp_path: Path) -> None:
    world = slow(tmp_path)
    for _ in range(10):
        world.ask(world.bearer, host=b"evil.example")
    for _ in range(3):
        world.ask(world.bearer, kind="websocket", path="/api/v1/stream")
    assert world.ask(world.bearer, kind="websocket", path="/api/v1/stream").status == 429
    tickets = [f"ticket={world.tickets.issue(ARTIFACT)}".encode() for _ in range(4)]
    asked = [world.ask(path=ARTIFACT, query=query).status for query in tickets]
    assert asked == [200, 200, 200, 429]


# --- bodies --------------------------------------------------------------------------------------


def test_a_body_comes_through_whole_however_it_came(world: World) -> None:
    assert world.post(b'{"a": 1}', JSON).status == 200
    chunked = (b"transfer-encoding", b"chunked")
    parts = [b'{"a"', b"", b": 1}"]
    assert world.ask(world.bearer, JSON, chunked, method="POST", parts=parts).status == 200
    assert world.inner.bodies == [b'{"a": 1}'] * 2
    assert world.inner.after == ["http.disconnect"] * 2


def test_a_change_without_a_body_needs_no_type(world: World) -> None:
    assert world.ask(world.bearer, method="POST").status == 200
    assert world.post(b"").status == 200


@pytest.mark.parametrize(
    "kind",
    [
        None,
        b"",
        b"text/plain",
        b"application/x-www-form-urlencoded",
        b"multipart/form-data; boundary=x",
        b"application/jsonp",
        b"text/plain; application/json",
        b"application/json, text/plain",
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
def test_a_body_that_does_not_say_it_is_json_is_refused(
    world: World, kind: bytes | None, method: str
) -> None:
    headers = [] if kind is None else [(b"content-type", kind)]
    length = (b"content-length", b"2")
    answer = world.ask(world.bearer, length, *headers, method=method, parts=[b"{}"])
    assert answer.status == 415
    unannounced = world.ask(world.bearer, *headers, method="POST", parts=[b"{}"])
    assert unannounced.status == 415
    assert not world.inner.scopes


@pytest.mark.parametrize("kind", [b"application/json; charset=utf-8", b"Application/JSON"])
def test_json_may_be_said_in_more_words(world: World, kind: bytes) -> None:
    assert world.post(b"{}", (b"content-type", kind)).status == 200


def test_two_types_are_none(world: World) -> None:
    assert world.post(b"{}", JSON, (b"content-type", b"text/plain")).status == 415


def test_a_form_of_another_site_gets_nowhere(world: World) -> None:
    """What a browser sends for a form: no token, no JSON, and its Origin."""
    form = (b"content-type", b"application/x-www-form-urlencoded")
    length, origin = (b"content-length", b"3"), (b"origin", b"https://evil.example")
    foreign = world.ask(form, length, origin, method="POST", parts=[b"a=1"])
    silent = world.ask(form, length, method="POST", parts=[b"a=1"])
    cookied = world.ask(form, length, (b"cookie", b"a=b"), method="POST", parts=[b"a=1"])
    assert [foreign.status, silent.status, cookied.status] == [403, 401, 401]
    assert foreign.read == silent.read == cookied.read == 0
    assert foreign.headers[b"connection"] == b"close"


def test_a_body_at_the_limit_passes_and_one_byte_more_does_not(world: World) -> None:
    assert world.post(b'"' + b"x" * 1022 + b'"', JSON).status == 200
    answer = world.post(b'"' + b"x" * 1023 + b'"', JSON)
    assert answer.status == 413
    assert answer.headers[b"connection"] == b"close"
    assert "1 kB" in answer.problem["detail"]


def test_a_body_without_a_length_is_bounded_too(world: World) -> None:
    chunked = (b"transfer-encoding", b"chunked")
    for method in ("POST", "GET", "DELETE"):
        parts = [b" " * 100] * 1000
        answer = world.ask(world.bearer, JSON, chunked, method=method, parts=parts)
        assert answer.status == 413
        assert answer.read < 100, "an endless body is not read to its end"
    assert not world.inner.scopes


def test_a_length_that_is_a_lie_does_not_help(world: World) -> None:
    headers = [world.bearer, JSON, (b"content-length", b"2")]
    assert world.ask(*headers, method="POST", parts=[b" " * 2000]).status == 413


@pytest.mark.parametrize("length", [b"-1", b"+2", b"2x", b"", b"0x2", b"\xb2"])
def test_a_length_that_is_none_is_refused(world: World, length: bytes) -> None:
    headers = [world.bearer, JSON, (b"content-length", length)]
    assert world.ask(*headers, method="POST", parts=[b"{}"]).status == 400


def test_json_of_64_levels_passes_and_of_65_does_not(world: World) -> None:
    assert world.post(b"[" * 64 + b"]" * 64, JSON).status == 200
    answer = world.post(b"[" * 65 + b"]" * 65, JSON)
    assert answer.status == 400
    assert "64" in answer.problem["detail"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-le"])
def test_json_in_another_encoding_hides_nothing(world: World, encoding: str) -> None:
    for text in ("{}", '["\u2200' + "[" * 70):
        assert world.post(text.encode(encoding), JSON).status == 400


def test_a_body_that_does_not_come_ends_in_time(tmp_path: Path) -> None:
    world = World(TokenStore(tmp_path / "tokens.json"), options={"body_timeout_s": 0.01})
    sent: list[Message] = []

    async def never() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", HOST), world.bearer, JSON, (b"content-length", b"9")]
    scope = {"type": "http", "method": "POST", "path": RUNS, "query_string": b""}

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await world.guard({**scope, "headers": headers}, never, send)

    asyncio.run(bounded())
    assert sent[0]["status"] == 408
    assert not world.inner.scopes


def test_half_a_body_of_a_client_that_left_reaches_nobody(world: World) -> None:
    sent: list[Message] = []
    left = iter([{"type": "http.request", "body": b"{}", "more_body": True}])

    async def receive() -> Message:
        return next(left, {"type": "http.disconnect"})

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", HOST), world.bearer, JSON, (b"transfer-encoding", b"chunked")]
    scope = {"type": "http", "method": "POST", "path": RUNS, "query_string": b""}
    asyncio.run(world.guard({**scope, "headers": headers}, receive, send))
    assert not sent
    assert not world.inner.scopes


# --- what every answer has -----------------------------------------------------------------------


def test_every_answer_has_the_headers_of_safety_and_no_cookie(world: World) -> None:
    asked = [
        world.ask(world.bearer),
        world.ask(path="/healthz"),
        world.ask(),
        world.ask(host=b"evil.example"),
        world.ask((b"origin", b"null")),
        world.post(b"a=1"),
        world.ask(kind="websocket", path="/"),
    ]
    for answer in asked:
        assert SECURITY.items() <= answer.headers.items()
        assert answer.headers[b"content-security-policy"].startswith(b"default-src 'none'")
        assert b"set-cookie" not in answer.headers
    assert asked[0].headers[b"content-type"] == b"text/html"


def test_a_page_is_open_to_read_and_keeps_its_own_policy(tmp_path: Path) -> None:
    options = {"open_prefixes": ("/static/",), "open_paths": ("/",)}
    world = World(TokenStore(tmp_path / "tokens.json"), options=options)
    page = world.ask(path="/static/app.js")
    assert page.status == 200
    assert page.headers[b"content-security-policy"] == b"default-src 'self'"
    assert page.headers[b"cache-control"] == b"public"
    assert page.headers[b"x-frame-options"] == b"DENY"
    assert b"set-cookie" not in page.headers
    assert world.ask(path="/").status == 200
    assert world.ask(path="/static/app.js", method="POST").status == 401
    assert world.ask(path="/static").status == 401
    assert world.ask(path="/static/app.js", host=b"evil.example").status == 400


def test_a_refusal_repeats_nothing_of_the_request(world: World) -> None:
    marker = b"<script>SECRET</script>"
    asked = [
        world.ask(host=marker),
        world.ask((b"origin", marker)),
        world.ask((b"authorization", b"Bearer " + marker)),
        world.ask(path="/" + marker.decode()),
        world.ask(path=ARTIFACT, query=b"ticket=" + marker),
        world.post(b"{}", (b"content-type", marker)),
    ]
    for answer in asked:
        assert answer.status >= 400
        assert b"SECRET" not in repr(answer.sent).encode()
