"""What crosses between a worker and the host of its bus: a call, and what became of it.

Both are msgpack with the payloads inside, decoded into these types before anything is done with
them. A socket or Ray carries them as plain bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rookery.bus import Outgoing, Record
from rookery.errors import BusClosed, BusError, BusFull, MessageError, RookeryError

LARGEST_CALL = 1 << 31  # bytes


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
