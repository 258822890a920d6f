"""Fragments on the wire: a typed header, then raw array buffers.

Decoding copies nothing: the arrays are read-only views of the payload.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from rookery.errors import MessageError
from rookery.messages.frame import (
    ALIGN,
    FRAGMENT,
    MAX_ARRAYS,
    PREFIX,
    ArrayHeader,
    Arrays,
    encode_header,
    frame,
    open_frame,
    view_array,
)
from rookery.messages.ids import WALK_IN, WeightsVersion
from rookery.messages.steps import Steps, check_steps, from_named, named_arrays


class Episode(msgspec.Struct, frozen=True, array_like=True):
    """An episode that ended inside a fragment."""

    seat: str
    total_reward: float  # raw, undiscounted
    length: int


class Game(msgspec.Struct, frozen=True, array_like=True):
    """A game of several seats that ended: who sat where, and what each seat got."""

    players: tuple[str, ...]  # by seat: "main", "main@340", "script:random", "engine:stockfish?..."
    totals: tuple[float, ...]  # raw, undiscounted, by seat
    length: int  # environment steps
    missed: tuple[int, ...] = ()  # by seat: moves that a fallback chose; empty: none


class FragmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a fragment says of itself."""

    run: str
    policy: str
    actor: str  # index.incarnation; of a walk-in: WALK_IN and a name of this life of its sender
    sequence: int  # 0, 1, 2 ... within the incarnation
    first_step: int  # agent steps of this incarnation before this fragment
    steps: int  # agent steps in it: the valid ones
    version: WeightsVersion  # the weights that acted; `behind` says where a step's are older
    seats: tuple[str, ...]  # names for the numbers in `seat`
    players: tuple[str, ...]  # kinds of player for the numbers in `player`
    part: int = 0  # which of the fragments of one turn of the playing loop, one per policy
    parts: int = 1
    episodes: tuple[Episode, ...] = ()
    games: tuple[Game, ...] = ()

    @property
    def walk_in(self) -> bool:
        """Whether nobody granted it: then it is trained only where there is room."""
        return self.actor.startswith(WALK_IN)


class Fragment(NamedTuple):
    """T x B rows of experience of one policy from one sender, one message."""

    header: FragmentHeader
    steps: Steps


class _FragmentFrame(msgspec.Struct, frozen=True, kw_only=True):
    fragment: FragmentHeader
    arrays: tuple[ArrayHeader, ...]


_fragment_decoder = msgspec.msgpack.Decoder(_FragmentFrame)


def encode_fragment(fragment: Fragment) -> bytes:
    named = named_arrays(fragment.steps)
    told = _FragmentFrame(
        fragment=fragment.header,
        arrays=tuple(ArrayHeader(n, a.dtype.name, a.shape) for n, a in named),
    )
    header = encode_header(told)
    chunks: list[Any] = [header]
    offset = PREFIX.size + len(header)
    for _, array in named:
        padding = -offset % ALIGN
        chunks.append(bytes(padding))
        contiguous = np.ascontiguousarray(array)
        chunks.append(contiguous.reshape(-1).view(np.uint8).data if array.size else b"")
        offset += padding + array.nbytes
    return frame(FRAGMENT, len(header), chunks)


def decode_fragment(payload: bytes) -> Fragment:
    told, offset = open_frame(payload, FRAGMENT, _fragment_decoder)
    if len(told.arrays) > MAX_ARRAYS:
        raise MessageError(f"{len(told.arrays)} arrays in one fragment, over {MAX_ARRAYS}")
    arrays: Arrays = {}
    for entry in told.arrays:
        offset += -offset % ALIGN
        arrays[entry.name] = array = view_array(payload, offset, entry)
        offset += array.nbytes
    if offset != len(payload):
        raise MessageError(f"{len(payload)} bytes where the header says {offset}")
    if len(arrays) != len(told.arrays):
        raise MessageError("an array is named twice")
    steps = from_named(Steps, arrays, ("observation", "state"))
    fragment = Fragment(told.fragment, steps)
    _check(fragment)
    return fragment


def _check(fragment: Fragment) -> None:
    """The rows fit each other, and the header counts and names what is in them."""
    header, steps = fragment
    check_steps(steps)
    if header.steps != int(np.count_nonzero(steps.valid)):
        raise MessageError(f"the header counts {header.steps} steps, its valid rows differ")
    if header.sequence < 0 or header.first_step < 0:
        raise MessageError("a sequence number or step count below 0")
    for numbers, names in ((steps.seat, header.seats), (steps.player, header.players)):
        if numbers.size and int(numbers.max()) >= len(names):
            raise MessageError("a step names a seat or a kind of player that is not listed")
    if not 0 <= header.part < header.parts:
        raise MessageError(f"part {header.part} of {header.parts}")
    if header.walk_in and header.parts != 1:
        raise MessageError(f"a walk-in of {header.parts} parts, not of one")
