"""Messages of MCP that nobody should send, over HTTP and over standard input.

calls = Calls(world, seed=7, costly=0.001)
calls.make(41)              # JSON-RPC, mostly: bytes without a line feed
calls.request(41)           # the same as a request
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

from rookery.server.mcp.tools import TOOLS
from tests.server.fuzz.requests import Request, World, config, header
from tests.server.fuzz.values import hostile, mutated, sample, text, written

METHODS = (
    "ping",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "initialize",
    "server/discover",
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "resources/subscribe",
    "subscriptions/listen",
    "tasks/get",
    "rpc.discover",
    "../tools/call",
    "",
)
META = "io.modelcontextprotocol/"
VERSIONS = ("2026-07-28", "2025-11-25", "2024-11-05", "1999-01-01", "nonsense")
INITIALIZE = {
    "protocolVersion": VERSIONS[1],
    "capabilities": {},
    "clientInfo": {"name": "fuzz", "version": "1"},
}
COSTLY = {"create_run", "start_run", "resume_run", "set_seat_map", "evaluate", "play_match"}
COSTLY |= {"delete_run"}
URIS = ("rookery://runs", "rookery://runs/{}", "rookery://runs/{}/why", "file:///etc/passwd", "")
SCHEMAS = {name: tool.takes.model_json_schema() for name, tool in TOOLS.items()}


class Calls:
    """All of a seed."""

    def __init__(self, world: World, seed: int, costly: float) -> None:
        self._world, self._seed, self._costly = world, seed, costly

    def make(self, number: int) -> bytes:
        rng = Random(f"call {self._seed} {number}")
        return self._written(self._message(number, rng, VERSIONS[1]), number, rng)

    def request(self, number: int) -> Request:
        """In a session of the older protocol, or by itself in the newer one."""
        rng = Random(f"http {self._seed} {number}")
        scope = rng.choice(("admin", "operate", "read", "read"))
        method = "POST" if rng.random() < 0.98 else rng.choice(("PUT", "OPTIONS", "PATCH"))
        lines = [
            f"{method} /mcp HTTP/1.1",
            f"Host: {self._world.host}",
            f"Authorization: Bearer {self._world.tokens[scope]}",
            "Content-Type: application/json",
        ]
        if rng.random() < 0.98:
            lines.append("Accept: application/json, text/event-stream")
        is_new = rng.random() < 0.4
        version = rng.choice(VERSIONS) if rng.random() < 0.1 else VERSIONS[0 if is_new else 1]
        message = self._message(number, rng, version)
        if is_new:
            params = message.get("params")
            name = params.get("name", params.get("uri")) if isinstance(params, dict) else None
            lines.append(f"Mcp-Protocol-Version: {version}")
            lines.append(f"Mcp-Method: {header(message.get('method'))}")
            lines += [f"Mcp-Name: {header(name)}"] if name is not None else []
        elif rng.random() < 0.95:
            whose = scope if rng.random() < 0.97 else "admin"
            known = self._world.sessions[whose] if rng.random() < 0.97 else "nonsense"
            lines.append(f"Mcp-Session-Id: {known}")
        body = self._written(message, number, rng)
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""])
        return Request(number, method, head.encode("latin-1", errors="replace") + body)

    def opening(self, scope: str) -> bytes:
        """The request that opens a session."""
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
        body = json.dumps(message)
        return (
            f"POST /mcp HTTP/1.1\r\nHost: {self._world.host}\r\n"
            f"Authorization: Bearer {self._world.tokens[scope]}\r\n"
            "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}"
        ).encode()

    def _written(self, message: Any, number: int, rng: Random) -> bytes:
        if rng.random() < 0.04:
            several = [self._message(number, rng, VERSIONS[1]) for _ in range(rng.randrange(4))]
            message = several
        elif rng.random() < 0.1:
            message = mutated(message, rng)
        data = written(message, rng, 0.06)
        return data.replace(b"\n", b" ").replace(b"\r", b" ")

    def _message(self, number: int, rng: Random, version: str) -> Any:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": number}
        match rng.randrange(12):
            case 0 | 1:
                message["method"] = rng.choice(METHODS)
                message["params"] = rng.choice(({}, hostile(rng), {"_meta": hostile(rng)}))
            case 2:
                uri = rng.choice(URIS).format(rng.choice((*self._world.runs, text(rng))))
                message |= {"method": "resources/read", "params": {"uri": uri}}
            case 3:
                message |= rng.choice(
                    ({"result": {}}, {"error": hostile(rng)}, {"method": text(rng)})
                )
            case _:
                name = rng.choice(list(TOOLS))
                arguments = self._arguments(name, rng)
                if rng.random() < 0.03:
                    name = rng.choice((text(rng), name.upper(), name + " "))
                message |= {
                    "method": "tools/call",
                    "params": {"name": name, "arguments": arguments},
                }
        if rng.random() < 0.1:
            message["id"] = hostile(rng)
        if rng.random() < 0.03:
            del message["id"]
        if rng.random() < 0.02:
            message["jsonrpc"] = hostile(rng)
        if isinstance(message.get("params"), dict):
            meta = {
                f"{META}protocolVersion": version,
                f"{META}clientInfo": {"name": "x", "version": "1"},
                f"{META}clientCapabilities": {"elicitation": {}} if rng.random() < 0.3 else {},
            }
            if rng.random() < 0.3:
                meta["progressToken"] = rng.choice((1, "a", text(rng)))
            message["params"]["_meta"] = mutated(meta, rng) if rng.random() < 0.1 else meta
        return message

    def _arguments(self, name: str, rng: Random) -> Any:
        schema = SCHEMAS[name]
        found = sample(schema, schema.get("$defs", {}), rng)
        spared = name in COSTLY and rng.random() >= self._costly
        if "run" in found and rng.random() < 0.8:
            found["run"] = rng.choice((*self._world.runs, "last"))
        if name == "create_run":
            found["config"] = config(spared, rng)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            found = mutated(found, rng)
        if not isinstance(found, dict):
            return found
        if "wait_s" in schema["properties"]:  # nobody waits here
            found["wait_s"] = rng.choice((0, 0.01, -1, 601, "x", None))
        if spared:
            found["dry_run"] = rng.choice((True, True, 1, "true", None))
            if name in ("set_seat_map", "create_run") and rng.random() < 0.9:
                found["nothing of this name"] = 1
        return found
