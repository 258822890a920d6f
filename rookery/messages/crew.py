"""What a leader and its followers say to each other, over a line of their own.

    Hello      follower -> leader      who it is, with the word that the leader gave out on the bus
    Welcome    leader -> follower      everyone is here: where their collectives meet
    Aligned    leader -> followers     the lanes of a batch and every array of the train states
    Ready      follower -> leader      compiled: from here on everyone computes in step
    Shared     leader -> followers     one update of one group of policies: a follower's own lanes
    Over       leader -> followers     training has ended, in good order

Each is one frame (`frame`): a typed header, then raw arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from rookery.errors import MessageError
from rookery.messages.frame import (
    ALIGN,
    CREW,
    PREFIX,
    ArrayHeader,
    Arrays,
    encode_header,
    frame,
    open_frame,
    view_array,
)

MOST_HELLO_BYTES = 4096  # of somebody who has not said the word yet


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    token: str
    index: int


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    size: int
    generation: int
    coordinator: str  # HOST:PORT


class Aligned(msgspec.Struct, frozen=True, tag="aligned"):
    lanes: dict[str, int]  # by policy: of the whole batch


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    pass


class Shared(msgspec.Struct, frozen=True, tag="shared"):
    group: int  # of policies, in the trainer's order
    scalars: tuple[dict[str, float], ...]  # live hyperparameters of each member


class Over(msgspec.Struct, frozen=True, tag="over"):
    pass


Word = Hello | Welcome | Aligned | Ready | Shared | Over


class CrewMessage(NamedTuple):
    word: Word
    arrays: Arrays


class _CrewFrame(msgspec.Struct, frozen=True):
    word: Word
    arrays: tuple[ArrayHeader, ...]


_decoder = msgspec.msgpack.Decoder(_CrewFrame)


def encode_crew(word: Word, arrays: Sequence[tuple[str, np.ndarray]] = ()) -> bytes:
    told = tuple(ArrayHeader(name, array.dtype.name, array.shape) for name, array in arrays)
    header = encode_header(_CrewFrame(word, told))
    chunks: list[Any] = [header]
    offset = PREFIX.size + len(header)
    for _, array in arrays:
        padding = -offset % ALIGN
        chunks += [bytes(padding), np.ascontiguousarray(array).reshape(-1).view(np.uint8).data]
        offset += padding + array.nbytes
    return frame(CREW, len(header), chunks)


def decode_crew(payload: bytes | bytearray) -> CrewMessage:
    """The arrays are views of the payload."""
    told, offset = open_frame(payload, CREW, _decoder)
    arrays: Arrays = {}
    for entry in told.arrays:
        offset += -offset % ALIGN
        arrays[entry.name] = array = view_array(payload, offset, entry)
        offset += array.nbytes
    if offset != len(payload) or len(arrays) != len(told.arrays):
        raise MessageError("a message of a crew whose arrays do not fit its header")
    return CrewMessage(told.word, arrays)
