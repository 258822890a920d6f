"""Conversations over WebSockets that nobody should have: what is said, and the frames it is in.

    conversation = Conversations(world, seed=7, costly=0.001).make(41)
    conversation.head, conversation.frames      # the request, and what comes after its answer

Each ends with a message that the server answers by hanging up, if it has not before: so the end of
the connection says that all of it was heard. Where a frame is left without its end, the client
leaves instead.
"""

from __future__ import annotations

import json
import struct
from random import Random
from typing import Any, NamedTuple

from tests.server.fuzz.requests import UPGRADE, World
from tests.server.fuzz.values import TEXTS, hostile, mutated, text, wide, written

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
FIN = 0x80
LAST = b'{"type":"that is all"}'
KINDS = ("events", "commands", "metrics", "actors")


class Conversation(NamedTuple):
    number: int
    head: bytes
    frames: list[bytes]
    leaves: bool  # the server may wait for more: the client has to go
    hastens: bool  # does not wait for the answer to its request

    @property
    def data(self) -> bytes:
        return self.head + b"".join(self.frames)


def frame(payload: bytes, first: int = FIN | TEXT, mask: bytes | None = b"\0\0\0\0") -> bytes:
    """One frame; the first byte has its flags and kind. A mask of zeros leaves it as it is."""
    bit, size = (0x80 if mask is not None else 0), len(payload)
    if size < 126:
        head = struct.pack("!BB", first, bit | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, bit | 127, size)
    if mask is None or not any(mask):
        return head + (mask or b"") + payload
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ key).to_bytes(size, "big")


class Conversations:
    """All of a seed."""

    def __init__(self, world: World, seed: int, costly: float) -> None:
        """`costly`: the share of those that watch which are shown a game, in a process."""
        self._world, self._seed, self._costly = world, seed, costly

    def make(self, number: int) -> Conversation:
        rng = Random(f"conversation {self._seed} {number}")
        path = "/api/v1/stream" if rng.random() < 0.7 else "/api/v1/watch"
        scope = rng.choice(("admin", "operate", "read", "read", "wrong", ""))
        token = self._world.tokens[scope]
        in_header = rng.random() < 0.4 and scope != ""
        lines = [f"GET {path} HTTP/1.1", f"Host: {self._world.host}", *UPGRADE]
        if in_header:
            lines.append(f"Authorization: Bearer {token}")
        frames: list[bytes] = []
        if not in_header and rng.random() < 0.9:
            frames.append(_text({"type": "hello", "token": token}))
        say = self._of_stream if path.endswith("stream") else self._of_watching
        shows = rng.random() < self._costly
        most = rng.choice((1, 3, 8, 20, 40)) if rng.random() < 0.99 else 1000
        for _ in range(most):
            frames.append(_text(say(rng, shows)))
        leaves = False
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            made, is_open = _odd(say(rng, shows), rng)
            frames.append(made)
            leaves |= is_open
        frames.append(frame(LAST))
        head = "\r\n".join([*lines, "", ""]).encode()
        hastens = rng.random() < 0.05  # what it says may not be heard
        return Conversation(number, head, frames, leaves or hastens, hastens)

    def _of_stream(self, rng: Random, shows: bool) -> Any:
        runs = rng.choices((*self._world.runs, "*", "nobody"), k=rng.choice((1, 1, 2, 30)))
        kinds = rng.choices(KINDS, k=rng.choice((1, 2, 4)))
        message: dict[str, Any] = {"type": "subscribe", "runs": runs, "kinds": kinds}
        if rng.random() < 0.6:
            channels = ("events", "commands", f"metrics/{runs[0]}", f"actors/{runs[0]}")
            after = (-1, 0, 5, 10**6, 2**62)
            message["after"] = {
                rng.choice(channels).replace("*", "a"): rng.choice(after) for _ in range(2)
            }
        return message

    def _of_watching(self, rng: Random, shows: bool) -> Any:
        if shows:
            run, weights = rng.choice(self._world.runs), rng.choice(("newest", *TEXTS[:20]))
            return {"type": "watch", "run": run, "weights": weights, "seed": 1}
        return rng.choice(
            (
                {"type": "play"},
                {"type": "pause"},
                {"type": "step"},
                {"type": "speed", "fps": rng.choice((0.2, 1, 60))},
                {"type": "restart"},
                {"type": "seek", "step": rng.randrange(1000)},
            )
        )


def _text(value: Any) -> bytes:
    return frame(json.dumps(value).encode())


def _odd(value: Any, rng: Random) -> tuple[bytes, bool]:
    """A message or a frame that is wrong, and whether the server may wait for the rest of it."""
    good = json.dumps(value).encode()
    match rng.randrange(18):
        case 0 | 1 | 2 | 3 | 4 | 5:
            return frame(written(mutated(value, rng), rng, 0.3)), False
        case 6:
            return frame(written(hostile(rng), rng, 0.5)), False
        case 7:
            return frame(good, FIN | BINARY), False
        case 8:
            return frame(good, mask=rng.randbytes(4)), False
        case 9:  # in pieces, with a ping between
            cut = rng.randrange(len(good))
            pieces = frame(good[:cut], TEXT), frame(b"", FIN | PING), frame(good[cut:], FIN)
            return b"".join(pieces), False
        case 10:
            return frame(good[:5], TEXT), True
        case 11:
            kind = rng.choice((0, 3, 7, 11, 15, PING, PONG, CLOSE))
            return frame(good, rng.choice((0, FIN)) | kind), True
        case 12:
            return frame(good, FIN | TEXT | rng.choice((0x40, 0x20, 0x10))), True
        case 13:
            return frame(good, mask=None), True
        case 14:
            return frame(good)[: rng.randrange(1, len(good))], True
        case 15:
            size = rng.choice((1 << 17, 1 << 40, (1 << 64) - 1))
            return struct.pack("!BBQ", FIN | TEXT, 0x80 | 127, size) + rng.randbytes(40), True
        case 16:
            code = rng.choice(
                (0, 999, 1000, 1005, 4999, 65535)
            )  # what it echoes is no word of its own
            said = struct.pack("!H", code) + rng.choice((b"", b"\xff\xfe", b"why"))
            return frame(rng.choice((b"\x03", b"", said)), FIN | CLOSE), True
        case _:
            large = (json.dumps(wide(rng, 3000)), "a" * 70_000, "\u20ac" * 22_000, "[" * 60_000)
            return frame(rng.choice((*large, text(rng))).encode(errors="replace")), False
