"""The frame of a binary message, and the checks before a buffer is touched.

    prefix   magic "RKRY", schema u8, kind u8, two zero bytes, header length u32, CRC-32 u32
    header   msgpack: the typed header and, for a fragment, the list of its arrays
    body     raw array buffers, each aligned to 64 bytes from the start; safetensors for weights

Everything that a header claims (version, sizes, dtypes, shapes, their sum) is checked against the
bytes at hand, so bytes from anywhere give a valid message or a MessageError, and never an
allocation larger than the payload.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import Any

import msgspec
import numpy as np

from rookery.errors import MessageError
from rookery.messages.json_records import SCHEMA, check_schema

MAGIC = b"RKRY"
FRAGMENT, WEIGHTS, CREW = 1, 2, 3
ALIGN = 64
MAX_HEADER_BYTES = 4 << 20
MAX_ARRAYS = 256
MAX_RANK = 8
MAX_SPAN = 1 << 48
DTYPES = frozenset(
    [
        "bool",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    ]
)

PREFIX = struct.Struct("<4sBBxxII")

Arrays = dict[str, np.ndarray]

encode_header = msgspec.msgpack.Encoder().encode


class ArrayHeader(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    shape: tuple[int, ...]


def frame(kind: int, header_bytes: int, chunks: list[Any]) -> bytes:
    crc = 0
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    return b"".join([PREFIX.pack(MAGIC, SCHEMA, kind, header_bytes, crc), *chunks])


def open_frame(payload: bytes | bytearray, kind: int, decoder: Any) -> tuple[Any, int]:
    if len(payload) < PREFIX.size:
        raise MessageError(f"{len(payload)} bytes are too few for a message")
    magic, schema, found, header_bytes, crc = PREFIX.unpack_from(payload)
    if magic != MAGIC:
        raise MessageError("not a Rookery message")
    check_schema(schema)
    if found != kind:
        raise MessageError(f"a message of kind {found} where {kind} was expected")
    body_at = PREFIX.size + header_bytes
    if header_bytes > MAX_HEADER_BYTES or body_at > len(payload):
        raise MessageError(f"a header of {header_bytes} bytes in a message of {len(payload)}")
    view = memoryview(payload)
    if payload[6:8] != b"\0\0" or zlib.crc32(view[PREFIX.size :]) != crc:
        raise MessageError("the checksum does not match: the message was damaged")
    try:
        return decoder.decode(view[PREFIX.size : body_at]), body_at
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MessageError(f"not a valid header: {error}") from error


def view_array(payload: bytes | bytearray, offset: int, entry: ArrayHeader) -> np.ndarray:
    if entry.dtype not in DTYPES:
        raise MessageError(f"array {entry.name!r} has the unsupported dtype {entry.dtype!r}")
    if len(entry.shape) > MAX_RANK or any(n < 0 for n in entry.shape):
        raise MessageError(f"array {entry.name!r} has the impossible shape {entry.shape}")
    if math.prod(max(n, 1) for n in entry.shape) > MAX_SPAN:  # numpy refuses it even when empty
        raise MessageError(f"array {entry.name!r} of shape {entry.shape} does not fit its message")
    count = math.prod(entry.shape)
    if offset + count * np.dtype(entry.dtype).itemsize > len(payload):
        raise MessageError(f"array {entry.name!r} of shape {entry.shape} does not fit its message")
    return np.frombuffer(payload, entry.dtype, count, min(offset, len(payload))).reshape(
        entry.shape
    )
