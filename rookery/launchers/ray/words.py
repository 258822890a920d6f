"""What an owner and its driver say to each other, over a socket of their own."""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

LARGEST = 1 << 30  # bytes of one message
_LENGTH = struct.Struct(">I")


class Order(msgspec.Struct, frozen=True):
    """One life of a worker that should be."""

    name: str
    kind: str
    index: int
    incarnation: int
    briefing: bytes
    cpus: float = 1.0
    gpus: float = 0.0
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    log: str = ""  # files of the owner's machine, which the driver keeps for it
    progress: str = ""
    grace_s: float = 5.0


class HostOrder(msgspec.Struct, frozen=True):
    """The host of a run's bus: files of the node that the driver is on."""

    path: str
    limits: dict[str, int]
    directory: str  # in which the run's stores are


class Match(msgspec.Struct, frozen=True, tag=True):
    """Start who is missing, ask the others to stop."""

    run: str
    orders: list[Order]
    host: HostOrder | None = None


class Look(msgspec.Struct, frozen=True, tag=True):
    run: str


class Kill(msgspec.Struct, frozen=True, tag=True):
    run: str
    name: str


class Close(msgspec.Struct, frozen=True, tag=True):
    """End all that a run has, at once."""

    run: str


class Nodes(msgspec.Struct, frozen=True, tag=True):
    pass


class TuneOrder(msgspec.Struct, frozen=True):
    """An experiment of Ray Tune's."""

    sweep: str
    trials: int
    jobs: int  # trials at a time
    scheduler: str = "none"
    steps: int = 0  # of a run
    rungs: tuple[int, ...] = ()  # at which trials are compared


class Offer(msgspec.Struct, frozen=True):
    """A trial for Tune to take."""

    number: int
    values: dict[str, Any]


class TrialReport(msgspec.Struct, frozen=True):
    """How a trial does, or did."""

    number: int
    steps: int
    value: float
    over: bool = False
    error: str = ""


class Tell(msgspec.Struct, frozen=True, tag=True):
    """To Ray Tune, which is started by the first of them."""

    order: TuneOrder
    offers: list[Offer] = []
    reports: list[TrialReport] = []


class Pruned(msgspec.Struct, frozen=True):
    """A trial that Tune has ended."""

    number: int
    steps: int
    value: float


class Told(msgspec.Struct, frozen=True):
    """What Tune wants."""

    wants: bool = False  # another trial
    pruned: list[Pruned] = []
    is_over: bool = False  # it has ended
    error: str = ""


Request = Match | Look | Kill | Close | Nodes | Tell


class Seen(msgspec.Struct, frozen=True):
    """A worker as the driver knows it."""

    name: str
    pid: int = 0  # 0: it waits for a place
    host: str = ""
    code: int | None = None
    reason: str = ""
    final: bool = False


class Node(msgspec.Struct, frozen=True):
    name: str
    address: str
    cpus: float
    alive: bool
    here: bool = False  # the driver's own, and so its owner's machine


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The driver's first word: it is on the cluster."""

    address: str
    cpus: float  # of all nodes
    version: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Its first and last: it is not, and why."""

    why: str


class Answer(msgspec.Struct, frozen=True, tag=True):
    result: Any = None
    error: str = ""


Word = Ready | Refused | Answer

_encoder = msgspec.msgpack.Encoder()
_requests = msgspec.msgpack.Decoder(Request)
_words = msgspec.msgpack.Decoder(Word)


def send(line: socket.socket, message: Request | Word) -> None:
    content = _encoder.encode(message)
    line.sendall(_LENGTH.pack(len(content)) + content)


def receive_request(line: socket.socket) -> Request | None:
    content = _received(line)
    return None if content is None else _requests.decode(content)


def receive_word(line: socket.socket) -> Word | None:
    content = _received(line)
    return None if content is None else _words.decode(content)


def _received(line: socket.socket) -> bytes | None:
    """None: the other side is gone."""
    head = _exactly(line, _LENGTH.size)
    if head is None:
        return None
    (length,) = _LENGTH.unpack(head)
    return _exactly(line, length) if length <= LARGEST else None


def _exactly(line: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        try:
            found = line.recv(min(count - len(parts), 1 << 20))
        except ConnectionError:
            return None
        if not found:
            return None
        parts += found
    return bytes(parts)
