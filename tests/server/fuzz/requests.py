"""Requests that nobody should send: each is made of a seed and a number, and of nothing else.

    requests = Requests(world, seed=7)
    requests.make(41).data          # the same bytes each time, up to the tokens in them

Most begin as the API's own document has them and are then changed; the rest have wild methods,
paths and headers, odd bodies, or are no requests at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from rookery.config.models import RunConfig
from tests.server.fuzz.values import NUMBERS, TEXTS, hostile, mutated, sample, text, wide, written

COSTLY = {  # start a process, or end what others are about: rarely carried out
    "create_run",
    "show_environment",
    "start",
    "resume",
    "set_seat_map",
    "evaluate",
    "play_match",
    "delete",
    "delete_run",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
TYPES = (
    "application/json",
    "application/json; charset=utf-16",
    "APPLICATION/JSON",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/xml",
    "application/jsonx",
    "",
    "*/*",
)
PATHS = (
    "/",
    "//",
    "/assets/",
    "/assets/../../../etc/passwd",
    "/assets/%2e%2e/%2e%2e/index.html",
    "/index.html",
    "/healthz",
    "/healthz/",
    "/readyz",
    "/metrics",
    "/mcp",
    "/mcp/",
    "/api/v1",
    "/api/v1/",
    "/api/v2/runs",
    "/api/v1/stream",
    "/api/v1/watch",
    "/api/v1/runs/",
    "/api/v1//runs",
    "/api/v1/runs/%ff%fe",
    "/api/v1/runs/\xff\xfe",
    "/api/v1/runs/a/../../tokens",
    "/api/v1/runs/%00",
    "/api/v1/runs/;a=b",
    "*",
    "http://127.0.0.1/api/v1/runs",
    "/" + "a" * 3000,
    "/" + "a/" * 1500,
    "/api/v1/runs/" + "%41" * 900,
)
HEADERS = (
    "Accept: text/html;q=nan",
    "Accept-Encoding: gzip;q=0, br",
    "Content-Encoding: gzip",
    "Cookie: token=" + "x" * 2000,
    "Expect: 100-continue",
    "Expect: nonsense",
    "If-None-Match: *",
    "If-Range: \xff",
    "Last-Event-ID: \xff\xff",
    "Mcp-Session-Id: nonsense",
    "Mcp-Protocol-Version: 1999-01-01",
    "Origin: null",
    "Origin: https://evil.example",
    "Range: bytes=0-0",
    "Range: bytes=-0",
    "Range: bytes=99999999999999999999-",
    "Range: bytes=5-1,0-2",
    "Range: potatoes=1-2",
    "X-Forwarded-For: 10.0.0.1",
    "X-Forwarded-Host: evil.example",
    "X-Http-Method-Override: DELETE",
    "Idempotency-Key: " + "k" * 128,
    "Idempotency-Key: " + "k" * 129,
    "Idempotency-Key: one",
    "Idempotency-Key: \xff",
    "Keep-Alive: timeout=9999999",
    "Connection: close",
    "TE: trailers",
    "Forwarded: for=_hidden",
)
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
CONFIG: dict[str, Any] = RunConfig.model_json_schema()


@dataclass(frozen=True)
class World:
    """What there is at the server that is asked."""

    host: str
    tokens: Mapping[str, str]  # by scope; "" and a wrong one as well
    runs: tuple[str, ...]
    document: Mapping[str, Any] = field(repr=False)
    sessions: dict[str, str] = field(default_factory=dict)  # of MCP, by scope

    @property
    def address(self) -> tuple[str, int]:
        name, _, port = self.host.partition(":")
        return name, int(port)

    def hidden(self, data: bytes) -> str:
        """For eyes: without secrets, so that it can be put into a report."""
        for secrets in (self.tokens, self.sessions):
            for scope, secret in secrets.items():
                if secret:
                    data = data.replace(secret.encode(), f"<{scope}>".encode())
        return repr(data if len(data) < 2000 else data[:2000] + b"... of %d" % len(data))


class Request(NamedTuple):
    number: int
    method: str
    data: bytes
    is_framed: bool = True  # else it goes alone, and gets an answer or the end of its connection


class Requests:
    """All of a seed."""

    def __init__(self, world: World, seed: int, costly: float) -> None:
        """`costly`: the share of those that would start a process which are let do it."""
        self._world, self._seed, self._costly = world, seed, costly
        self._operations = [
            (method.upper(), path, operation)
            for path, operations in world.document["paths"].items()
            for method, operation in operations.items()
        ]
        self._schemas: Mapping[str, Any] = world.document["components"]["schemas"]

    def make(self, number: int) -> Request:
        rng = Random(f"request {self._seed} {number}")
        match rng.randrange(20):
            case 0:
                return self._raw(number, rng)
            case 1 | 2 | 3:
                return self._wild(number, rng)
            case _:
                return self._guided(number, rng)

    # --- as the document has it ------------------------------------------------------------------

    def _guided(self, number: int, rng: Random) -> Request:
        method, path, operation = rng.choice(self._operations)
        is_costly = operation["operationId"] in COSTLY
        spared = is_costly and rng.random() >= self._costly
        query, headers = [], self._usual(rng)
        for parameter in operation.get("parameters", ()):
            name, schema = parameter["name"], parameter.get("schema", {})
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", self._part(name, rng))
            elif name != "dry_run" and (parameter.get("required") or rng.random() < 0.5):
                value = hostile(rng) if rng.random() < 0.4 else sample(schema, self._schemas, rng)
                if parameter["in"] == "query":
                    query.append(f"{name}={_quoted(value, rng)}")
                else:
                    headers.append(f"{name}: {header(value)}")
        if spared and operation["operationId"] != "show_environment":
            query.append(rng.choice(("dry_run=true", "dry_run=true", "dry_run=", "dry_run=1")))
        elif spared:
            query = ["id=" + "a" * 201]
        if rng.random() < 0.1:
            query.append(f"{quote(text(rng), errors='replace')}={_quoted(hostile(rng), rng)}")
        if rng.random() < 0.1:
            method = rng.choice(METHODS)
        if rng.random() < 0.2:
            headers.append(rng.choice(HEADERS))
        target = path + ("?" + "&".join(query) if query else "")
        body = self._body(operation, spared, rng) if method not in ("GET", "HEAD") else b""
        return self._request(number, method, target, headers, body, rng)

    def _part(self, name: str, rng: Random) -> str:
        if name == "run" and rng.random() < 0.7:
            return rng.choice((*self._world.runs, "last", self._world.runs[0][:3]))
        if name in ("file", "path") and rng.random() < 0.5:
            return rng.choice(("learner-0.1.log", "logs/learner-0.1.log", "logs/", "checkpoints"))
        return quote(text(rng), safe=rng.choice(("", "/%")), errors="replace") or "%20"

    def _body(self, operation: Mapping[str, Any], spared: bool, rng: Random) -> bytes:
        content = operation.get("requestBody", {}).get("content", {})
        if not content:
            return written(hostile(rng), rng) if rng.random() < 0.1 else b""
        value = sample(content["application/json"]["schema"], self._schemas, rng)
        if operation["operationId"] == "create_run":
            value["config"] = config(spared, rng)
        if operation["operationId"] == "set_seat_map" and spared:
            value["seats"] = {rng.choice(TEXTS): hostile(rng) for _ in range(3)} | {"a": []}
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            value = mutated(value, rng)
        if spared and isinstance(value, dict):
            value = {"nothing of this name": 1, **value} if rng.random() < 0.5 else value
        if rng.random() < 0.002:
            value = {"config": wide(rng, 60_000)}
        return written(value, rng)

    # --- as nobody has it ------------------------------------------------------------------------

    def _wild(self, number: int, rng: Random) -> Request:
        method = rng.choice((*METHODS, "get", "FOO"))
        path = rng.choice(PATHS)
        if path == "/mcp" and method in ("DELETE", "GET"):
            method = "POST"  # the end of a session, or a stream without one
        headers = [*self._usual(rng), *rng.sample(HEADERS, rng.randrange(4))]
        if rng.random() < 0.02:
            headers += [f"X-{n}: 1" for n in range(rng.choice((90, 101, 2000)))]
        if rng.random() < 0.02:
            headers.append("X: " + "a" * rng.choice((8000, 33_000, 200_000)))
        query = "?" + _quoted(hostile(rng), rng) if rng.random() < 0.3 else ""
        body = b"" if rng.random() < 0.5 else written(hostile(rng), rng)
        if rng.random() < 0.01:
            body = b'{"config": "' + b"x" * rng.choice((1 << 20, 3 << 20)) + b'"}'
        return self._request(number, method, path + query, headers, body, rng)

    def _raw(self, number: int, rng: Random) -> Request:
        """Bytes that are no whole request: they go alone."""
        good = self._guided(number, rng)
        data, at = good.data, rng.randrange(len(good.data))
        match rng.randrange(9):
            case 0:
                data = rng.randbytes(rng.randrange(1, 3000))
            case 1:
                data = data[:at]
            case 2:
                data = data[:at] + rng.randbytes(rng.randrange(1, 8)) + data[at:]
            case 3:
                data = data.replace(b"\r\n", rng.choice((b"\n", b"\r", b"\r\n ", b"\r\n\r\n")), 2)
            case 4:
                data = data.replace(b"HTTP/1.1", rng.choice((b"HTTP/9.9", b"HTTP/1", b"", b"X")))
            case 5:
                lengths = (
                    b"-1",
                    b"99999999999999999999",
                    b"5, 6",
                    b"0x10",
                    b"1\r\nContent-Length: 2",
                )
                data = data.replace(
                    b"\r\n", b"\r\nContent-Length: " + rng.choice(lengths) + b"\r\n", 1
                )
            case 6:
                coding = rng.choice((b"chunked", b"gzip, chunked", b"chunked, identity", b"x"))
                data = data.replace(b"\r\n", b"\r\nTransfer-Encoding: " + coding + b"\r\n", 1)
            case 7:
                data = (
                    rng.choice((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\x02\0\x01"))
                    + data
                )
            case _:
                lines = "\r\n".join([f"Host: {self._world.host}", *UPGRADE, *self._usual(rng)[1:]])
                where = rng.choice((*PATHS[:20], "/api/v1/stream"))
                data = f"{rng.choice(('GET', 'POST'))} {where} HTTP/1.1\r\n{lines}\r\n\r\n".encode(
                    "latin-1"
                )
                data += rng.randbytes(rng.randrange(300))
        return Request(number, good.method, data, is_framed=False)

    # --- on the wire -----------------------------------------------------------------------------

    def _usual(self, rng: Random) -> list[str]:
        """Whose it is and where it goes, mostly right."""
        host = self._world.host if rng.random() < 0.98 else rng.choice(("", "evil.example", "\xff"))
        scope = rng.choice(("admin", "admin", "operate", "operate", "read", "read", "read", "", ""))
        scope = scope or rng.choice(("", "wrong"))
        headers = [f"Host: {host}"]
        if scope:
            scheme = "Bearer" if rng.random() < 0.97 else rng.choice(("Basic", "", "bearer  "))
            headers.append(f"Authorization: {scheme} {self._world.tokens[scope]}")
        return headers

    def _request(
        self,
        number: int,
        method: str,
        target: str,
        headers: list[str],
        body: bytes,
        rng: Random,
    ) -> Request:
        lines = [f"{method} {target} HTTP/1.1", *headers]
        if body or rng.random() < 0.05:
            kind = TYPES[0] if rng.random() < 0.9 else rng.choice(TYPES)
            lines.append(f"Content-Type: {kind}")
            if rng.random() < 0.15:
                lines.append("Transfer-Encoding: chunked")
                body = _chunked(body, rng)
            else:
                lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace")
        return Request(number, method, head + body)


def config(spared: bool, rng: Random) -> Any:
    """Of a run; one that is `spared` has a wrong part, whatever else it has."""
    found = sample(CONFIG, CONFIG["$defs"], rng)
    found["environment"] = {"id": "CartPole-v1"}
    for _ in range(rng.randrange(3)):
        found = mutated(found, rng)
    if not isinstance(found, dict):
        return found
    wrong = {"no such part": 1} if rng.random() < 0.5 else {"seed": "x", "stop": {"steps": -1}}
    return {**found, **wrong} if spared else found


def _chunked(body: bytes, rng: Random) -> bytes:
    parts, at = [], 0
    while at < len(body):
        size = rng.choice((1, 7, 4096, len(body))) if len(parts) < 50 else len(body)
        part = body[at : at + size]
        extension = rng.choice((b"", b"", b";a=b", b";" + b"e" * 100))
        parts.append(b"%x%s\r\n%s\r\n" % (len(part), extension, part))
        at += size
    return b"".join(parts) + b"0\r\n" + rng.choice((b"", b"", b"X-Late: 1\r\n")) + b"\r\n"


def _quoted(value: Any, rng: Random) -> str:
    if not isinstance(value, str):
        value = json.dumps(value) if value not in NUMBERS or rng.random() < 0.5 else str(value)
    return quote(value[:2000], safe=rng.choice(("", "%,;=/")), errors="replace")


def header(value: Any) -> str:
    """As much of it as a header can hold."""
    found = value if isinstance(value, str) else json.dumps(value)
    return "".join(c for c in found[:300] if c.isprintable() and ord(c) < 256)
