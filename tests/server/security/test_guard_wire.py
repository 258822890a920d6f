"""The guard behind a real server on a loopback port: what raw bytes do to it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from rookery.control.settings import ServerSettings
from rookery.control.tokens import TokenStore
from rookery.server.security.connections import Connections
from rookery.server.security.guard import Guard
from rookery.server.security.refusals import quieten_server_log
from rookery.server.security.tickets import Tickets
from rookery.server.security.wire import WebSocketConnection, http_connections

TIMEOUT_S = 20.0
RUNS = "/api/v1/runs"
ARTIFACT = "/api/v1/runs/x/artifacts/a.mp4"
GOOD_BYE = {"type": "websocket.close", "code": 1000}
UPGRADE = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@dataclass
class Inner:
    """Keeps what reached it; a WebSocket is accepted and closed, or spoken to until it is gone."""

    is_patient: bool = False  # hears until the client has left, before it answers
    talks: bool = False
    left: Queue[str] = field(default_factory=Queue)  # how each client did that
    seen: list[tuple[str, str, bytes]] = field(default_factory=list)
    heads: list[list[tuple[bytes, bytes]]] = field(default_factory=list)  # after the body came
    answer: bytes = b"{}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            self.seen.append(("WEBSOCKET", scope["path"], b""))
            await receive()
            await send({"type": "websocket.accept"})
            await (self._talk(receive, send) if self.talks else send(GOOD_BYE))
            return
        body = (await receive())["body"] if scope["method"] == "POST" else b""
        self.seen.append((scope["method"], scope["path"], body))
        self.heads.append(list(scope["headers"]))
        if self.is_patient:
            while (await receive())["type"] != "http.disconnect":
                continue
            self.left.put(scope["path"])
        length = str(len(self.answer)).encode()
        headers = [(b"content-length", length), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.answer, "more_body": True})
        await send({"type": "http.response.body", "body": b""})  # once there is room for it

    async def _talk(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            while True:
                await send({"type": "websocket.send", "text": "and then"})
                await asyncio.sleep(0.001)
        except OSError as gone:
            self.left.put(type(gone).__name__)


@dataclass
class Served:
    port: int
    inner: Inner
    token: str
    tickets: Tickets

    @property
    def host(self) -> str:
        return f"Host: 127.0.0.1:{self.port}\r\n"

    @property
    def bearer(self) -> str:
        return f"Authorization: Bearer {self.token}\r\n"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)

    def raw(self, request: str | bytes) -> Reply:
        """Send bytes as they are, and read one answer."""
        with self.connect() as connection:
            connection.sendall(request if isinstance(request, bytes) else request.encode("latin-1"))
            return Reply.read(connection)

    def get(self, headers: str, method: str = "GET", target: str = RUNS) -> Reply:
        return self.raw(f"{method} {target} HTTP/1.1\r\n{headers}\r\n")


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @classmethod
    def read(cls, connection: socket.socket) -> Reply:
        """The head, and as much of a body as it announces."""
        data = b""
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            assert part, f"the connection ended after {data!r}"
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(": ") for line in lines[1:]]
        headers = {name.lower(): value for name, _, value in pairs}
        status = int(lines[0].split()[1])
        while status != 101 and len(body) < int(headers.get("content-length", 0)):
            part = connection.recv(65536)
            if not part:
                break  # an answer to HEAD has none
            body += part
        return cls(status, headers, body)

    @property
    def detail(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        assert self.headers["x-content-type-options"] == "nosniff"
        return str(json.loads(self.body)["detail"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(Path(tmp_path_factory.mktemp("home"))) as found:
        yield found


@contextmanager
def serving(home: Path, connections: int = 256) -> Iterator[Served]:
    """The guard on a loopback port, over `Inner`."""
    store = TokenStore(home / "tokens.json")
    inner, tickets = Inner(), Tickets()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    settings = ServerSettings(port=port, max_body_kb=64, changes_per_s=1e6, change_burst=10**6)
    config = uvicorn.Config(
        Guard(inner, store, tickets, settings, body_timeout_s=TIMEOUT_S / 2),
        http=http_connections(Connections(connections)),
        ws=WebSocketConnection,
        log_config=None,
        access_log=True,
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    quieten_server_log()
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    yield Served(port, inner, store.create("operate", None).token, tickets)
    server.should_exit = True
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
    listener.close()
    logging.getLogger("mcp").setLevel(logging.NOTSET)
    log = logging.getLogger("uvicorn.error")
    log.setLevel(logging.NOTSET)
    for added in list(log.filters):
        log.removeFilter(added)


@pytest.fixture
def served(running: Served) -> Served:
    running.inner.seen.clear()
    return running


def test_a_good_request_is_let_in(served: Served) -> None:
    reply = served.get(served.host + served.bearer)
    assert reply.status == 200
    assert reply.body == b"{}"
    assert reply.headers["cache-control"] == "no-store"
    assert served.inner.seen == [("GET", RUNS, b"")]


def test_a_request_without_a_host_is_refused(served: Served) -> None:
    assert served.get(served.bearer).status == 400
    assert served.raw(f"GET /healthz HTTP/1.0\r\n{served.bearer}\r\n").status == 400
    assert served.raw(f"GET {RUNS} HTTP/1.0\r\n{served.bearer}\r\n").status == 400
    assert served.get("Host:\r\n" + served.bearer).status == 400
    assert not served.inner.seen


def test_http_1_0_with_a_host_and_a_token_is_let_in(served: Served) -> None:
    request = f"GET {RUNS} HTTP/1.0\r\n{served.host}{served.bearer}\r\n"
    assert served.raw(request).status == 200


def test_a_name_that_was_bound_to_our_address_is_refused(served: Served) -> None:
    for host in (f"evil.example:{served.port}", "evil.example"):
        reply = served.get(f"Host: {host}\r\n{served.bearer}")
        assert reply.status == 400
        assert "allowed_hosts" in reply.detail
    evil = f"http://evil.example{RUNS}"
    assert served.get(f"Host: evil.example\r\n{served.bearer}", target=evil).status == 400
    assert not served.inner.seen


def test_headers_that_come_twice_are_refused(served: Served) -> None:
    evil = "Host: evil.example\r\n"
    assert served.get(served.host + evil + served.bearer).status == 400
    assert served.get(evil + served.host + served.bearer).status == 400
    assert served.get(served.host + served.bearer + "Authorization: Bearer x\r\n").status == 401
    assert served.get(served.host + served.bearer + served.bearer).status == 401
    own = f"Origin: http://127.0.0.1:{served.port}\r\n"
    foreign = "Origin: http://evil.example\r\n"
    assert served.get(served.host + served.bearer + own).status == 200
    assert served.get(served.host + served.bearer + own + foreign).status == 403
    assert len(served.inner.seen) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
def test_a_foreign_origin_is_refused_by_every_method(served: Served, method: str) -> None:
    for origin in ("null", "http://evil.example", f"http://localhost:{served.port}"):
        headers = f"{served.host}{served.bearer}Origin: {origin}\r\nConnection: close\r\n"
        reply = served.get(headers, method)
        assert reply.status == 403
        assert "access-control-allow-origin" not in reply.headers
    assert not served.inner.seen


def test_a_preflight_is_refused(served: Served) -> None:
    asked = "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n"
    assert served.get(served.host + asked, "OPTIONS").status == 403


@pytest.mark.parametrize("path", ["/api/v1/stream", "/other"])
def test_an_upgrade_is_checked_like_a_request(served: Served, path: str) -> None:
    def upgrade(headers: str) -> Reply:
        return served.get(UPGRADE + headers, target=path)

    foreign = "Origin: http://evil.example\r\n"
    assert upgrade(served.host + served.bearer + foreign).status == 403
    assert upgrade(served.host + served.bearer + "Origin: null\r\n").status == 403
    assert upgrade("Host: evil.example\r\n" + served.bearer).status == 400
    refused = upgrade(served.host + "Authorization: Bearer x\r\n")
    assert refused.status == 401
    assert "token" in refused.detail
    assert not served.inner.seen
    own = f"Origin: http://127.0.0.1:{served.port}\r\n"
    assert upgrade(served.host + served.bearer + own).status == 101
    assert served.inner.seen == [("WEBSOCKET", path, b"")]


def test_only_the_stream_may_say_later_who_it_is(served: Served) -> None:
    assert served.get(UPGRADE + served.host, target="/api/v1/stream").status == 101
    assert served.get(UPGRADE + served.host, target="/other").status == 401


@pytest.mark.parametrize(
    "injected",
    [
        "X: a\nAuthorization: Bearer {token}\r\n",
        "X: a\rAuthorization: Bearer {token}\r\n",
        "X: a\r\n Authorization: Bearer {token}\r\n",
        "X: a\x00b\r\nAuthorization: Bearer {token}\r\n",
        "X : a\r\nAuthorization : Bearer {token}\r\n",
        "X: a\r\nAuthorization\t: Bearer {token}\r\n",
        "X: a\x0bAuthorization: Bearer {token}\r\n",
    ],
)
def test_no_header_can_be_put_inside_another(served: Served, injected: str) -> None:
    """The server or the guard refuses it; nothing comes in by the injected token."""
    reply = served.get(served.host + injected.format(token=served.token))
    assert reply.status in (400, 401)
    assert not served.inner.seen


def test_a_line_break_in_an_address_stays_in_it(served: Served) -> None:
    reply = served.get(served.host + served.bearer, target="/a%0d%0aSet-Cookie:%20a=b")
    assert reply.status == 200
    assert "set-cookie" not in reply.headers
    assert served.inner.seen == [("GET", "/a\r\nSet-Cookie: a=b", b"")]


JSON = "Content-Type: application/json\r\n"


def chunks(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def post(served: Served, headers: str, body: bytes) -> Reply:
    head = f"POST {RUNS} HTTP/1.1\r\n{served.host}{served.bearer}{headers}\r\n"
    return served.raw(head.encode() + body)


def test_a_chunked_body_comes_through(served: Served) -> None:
    body = chunks(b'{"a":', b" 1}")
    assert post(served, JSON + "Transfer-Encoding: chunked\r\n", body).status == 200
    assert served.inner.seen == [("POST", RUNS, b'{"a": 1}')]


def test_a_body_that_is_too_large_is_refused_with_and_without_a_length(served: Served) -> None:
    large = b'"' + b"x" * (100 << 10) + b'"'
    reply = post(served, f"{JSON}Content-Length: {len(large)}\r\n", large)
    assert reply.status == 413
    assert "64 kB" in reply.detail
    assert reply.headers["connection"] == "close"
    pieces = [large[i : i + 1000] for i in range(0, len(large), 1000)]
    reply = post(served, JSON + "Transfer-Encoding: chunked\r\n", chunks(*pieces))
    assert reply.status == 413
    assert not served.inner.seen


def test_an_endless_body_is_answered_before_it_ends(served: Served) -> None:
    head = f"POST {RUNS} HTTP/1.1\r\n{served.host}{served.bearer}{JSON}"
    with served.connect() as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        piece = b"%x\r\n%s\r\n" % (65536, b" " * 65536)
        for _ in range(9):  # beyond eight times the limit, and never the last chunk
            connection.sendall(piece)
        assert Reply.read(connection).status == 413
    assert not served.inner.seen


def test_a_body_nobody_may_send_is_not_waited_for(served: Served) -> None:
    """No token: the answer comes before the body does, and ends the connection."""
    head = f"POST {RUNS} HTTP/1.1\r\n{served.host}{JSON}Content-Length: 60000\r\n\r\n"
    reply = served.raw(head)
    assert reply.status == 401
    assert reply.headers["connection"] == "close"


def test_a_request_in_a_body_is_no_request(served: Served) -> None:
    """Two lengths, and a request behind the shorter one: at most one request is ever seen."""
    inside = f"GET /smuggled HTTP/1.1\r\n{served.host}{served.bearer}\r\n".encode()
    both = f"{JSON}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
    twice = f"{JSON}Content-Length: 2\r\nContent-Length: {2 + len(inside)}\r\n"
    assert post(served, both, b"0\r\n\r\n" + inside).status == 400
    assert post(served, twice, b"{}" + inside).status == 400
    assert not served.inner.seen


def test_deep_json_forms_and_other_encodings_are_refused(served: Served) -> None:
    def reply(body: bytes, kind: str = JSON) -> Reply:
        return post(served, f"{kind}Content-Length: {len(body)}\r\n", body)

    assert reply(b"[" * 5000 + b"]" * 5000).status == 400
    assert reply("[1]".encode("utf-16")).status == 400
    assert reply(b"a=1", "Content-Type: application/x-www-form-urlencoded\r\n").status == 415
    assert reply(b"{}", "").status == 415
    assert not served.inner.seen


def test_requests_that_follow_each_other_are_each_checked(served: Served) -> None:
    good = f"GET {RUNS} HTTP/1.1\r\n{served.host}{served.bearer}\r\n"
    bad = f"GET {RUNS} HTTP/1.1\r\n{served.host}\r\n"
    with served.connect() as connection:
        for request, status in ((good, 200), (bad, 401), (good, 200), (bad, 401)):
            connection.sendall(request.encode())
            assert Reply.read(connection).status == status
    assert len(served.inner.seen) == 2


def test_no_secret_reaches_a_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Even with the server's log of every request, which `rookery serve` leaves off."""
    used = served.tickets.issue(ARTIFACT)
    with caplog.at_level(logging.DEBUG):
        assert served.get(served.host + served.bearer).status == 200
        assert served.get(served.host, target=f"{RUNS}?token={served.token}").status == 400
        assert served.get(served.host, target=f"{ARTIFACT}?ticket={used}").status == 200
        assert served.get(served.host, target=f"{ARTIFACT}?ticket={used}").status == 401
        wrong = f"Authorization: Bearer {served.token[:-4]}AAAA\r\n"
        assert served.get(served.host + wrong).status == 401
        query = f"/api/v1/stream?token={served.token}"
        assert served.get(UPGRADE + served.host, target=query).status == 400
    assert '"GET /api/v1/runs HTTP/1.1" 200' in caplog.text
    assert served.token[12:-4] not in caplog.text
    assert used not in caplog.text


def test_upgrades_that_are_refused_do_not_fill_a_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        for _ in range(100):
            assert served.get(UPGRADE + "Host: evil.example\r\n", target="/other").status == 400
    assert len(caplog.records) <= 1
