"""What crosses between a worker and the host of its bus: a call, and what became of it.

Both are msgpack with the payloads inside, decoded into these types before anything is done with
them. Ray carries them as plain bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rookery.bus import Outgoing, Record
from rookery.errors import BusClosed, BusError, BusFull, MessageError, RookeryError

LARGEST_CALL = 1 << 31  # bytes
SMALL_FOR_RAY = 96 << 10  # below 100 kB Ray sends an argument with its call
MOST_WITH_CALL = 768 << 10
LARGE_ANSWER_PARTS = 4  # that a reader asks for whose last answer was too large for one


class Call(msgspec.Struct, array_like=True, frozen=True):
    """worker -> host."""

    method: str
    arguments: list[Any]
    client: str = ""  # who calls: with `number` it tells a repeated publication from a new one
    number: int = 0
    snapshot: str = ""  # inside which the call reads


class Done(msgspec.Struct, array_like=True, frozen=True):
    """host -> worker."""

    result: Any
    error: str = ""  # the kind of what was raised
    text: str = ""


ERRORS: Mapping[str, type[RookeryError]] = {
    "BusFull": BusFull,
    "BusClosed": BusClosed,
    "BusError": BusError,
}

_encoder = msgspec.msgpack.Encoder()
_calls = msgspec.msgpack.Decoder(Call)
_answers = msgspec.msgpack.Decoder(Done)
_Message = tuple[str, bytes, str, dict[str, str]]
_Row = tuple[str, int, int, str, dict[str, str], bytes, float]


def parted(content: bytes) -> list[bytes]:
    """As Ray carries it best: what is small with the call itself, in parts that it takes for small,
    which spares a way through the object store; what is large as one."""
    if len(content) > MOST_WITH_CALL:
        return [content]
    return [content[i : i + SMALL_FOR_RAY] for i in range(0, len(content), SMALL_FOR_RAY)]


def parts_for(size: int) -> int:
    """In how many parts an answer of so many bytes is asked for."""
    return LARGE_ANSWER_PARTS if size > SMALL_FOR_RAY else 1


def answer_parts(content: bytes, count: int) -> bytes | tuple[bytes, ...]:
    """As many as were asked for, since Ray must know beforehand; what does not fit is the first."""
    if count == 1:
        return content
    parts = parted(content) if len(content) <= count * SMALL_FOR_RAY else [content]
    return (*parts, *[b""] * (count - len(parts)))


def joined(parts: Sequence[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)


def encode(message: Call | Done) -> bytes:
    return _encoder.encode(message)


def decode_call(content: bytes) -> Call:
    if len(content) > LARGEST_CALL:
        raise MessageError(f"a call of {len(content)} bytes is larger than {LARGEST_CALL}")
    try:
        return _calls.decode(content)
    except msgspec.DecodeError as error:
        raise MessageError(f"not a call of a bus: {error}") from error


def result_of(content: bytes, errors: Mapping[str, type[RookeryError]] = ERRORS) -> Any:
    """What the host answered; raises what it raised, as one of `errors`, or else the last."""
    *_, otherwise = errors.values()
    try:
        done = _answers.decode(content)
    except msgspec.DecodeError as error:
        raise otherwise(f"the host answered what is no answer: {error}") from error
    if done.error:
        raise errors.get(done.error, otherwise)(done.text)
    return done.result


def failed(error: Exception) -> Done:
    return Done(None, type(error).__name__, str(error))


def messages_from(rows: Any) -> list[Outgoing]:
    return [Outgoing(*row) for row in msgspec.convert(rows, list[_Message])]


def records_from(rows: Any) -> list[Record]:
    return [Record(*row) for row in msgspec.convert(rows, list[_Row])]
