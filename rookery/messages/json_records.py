"""What every JSON record has, and how one is read: decoding into its type is the validation."""

from __future__ import annotations

import threading
import time
from typing import Any, TypeVar, overload

import msgspec

from rookery.errors import MessageError

SCHEMA = 1
MAX_JSON_BYTES = 4 << 20


class JsonRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the JSON records: schema version and time."""

    schema: int = SCHEMA
    time_s: float = msgspec.field(default_factory=time.time)


class _Versioned(msgspec.Struct):
    """Whatever else a message holds."""

    schema: int = SCHEMA


_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making_decoder = threading.Lock()
_T = TypeVar("_T")


def encode_json(message: JsonRecord) -> bytes:
    return _encoder.encode(message)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Made once, by one thread: two that meet a type for the first time crash inside msgspec."""
    found = _decoders.get(kind)
    if found is None:
        with _making_decoder:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


@overload
def decode_json(payload: bytes, kind: type[_T]) -> _T: ...
@overload
def decode_json(payload: bytes, kind: Any) -> Any: ...
def decode_json(payload: bytes, kind: Any) -> Any:
    """Decode into `kind`, a record type or a union of them; anything else is a MessageError."""
    if len(payload) > MAX_JSON_BYTES:
        raise MessageError(f"a JSON message of {len(payload)} bytes is over {MAX_JSON_BYTES}")
    try:
        message = decoder(kind).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        check_schema(_schema_of(payload))
        raise MessageError(f"not a valid message: {error}") from error
    check_schema(getattr(message, "schema", SCHEMA))
    return message


def check_schema(schema: int) -> None:
    if schema != SCHEMA:
        raise MessageError(
            f"schema version {schema} of a message; this Rookery reads {SCHEMA}: use one version "
            "of Rookery everywhere"
        )


def _schema_of(payload: bytes) -> int:
    """What a message that cannot be read says of its schema; ours, if it says nothing."""
    try:
        found: _Versioned = decoder(_Versioned).decode(payload)
        return found.schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return SCHEMA


def decode_or_none(payload: bytes, kind: type[_T]) -> _T | None:
    """None for a message that is none, where anybody may write and nothing depends on it."""
    try:
        return decode_json(payload, kind)
    except MessageError:
        return None
