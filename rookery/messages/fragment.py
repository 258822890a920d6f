"""Fragments on the wire: a typed header, then raw array buffers.

Decoding copies nothing: the arrays are read-only views of the payload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

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
from rookery.messages.ids import WeightsVersion


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
    actor: str  # index.incarnation
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


@dataclass(frozen=True, slots=True)
class Fragment:
    """T x B steps of experience of one policy from one actor. A lane is a seat of a slot."""

    header: FragmentHeader
    observation: Arrays  # leaf -> (T+1, B, ...), raw
    action: np.ndarray  # (T, B, ...): as the policy sampled it, before squashing or clipping
    reward: np.ndarray  # (T, B) float32, raw
    terminated: np.ndarray  # (T, B) bool
    truncated: np.ndarray  # (T, B) bool
    valid: np.ndarray  # (T, B) bool: False on rows that only reset a slot
    log_prob: np.ndarray  # (T, B) float32 of the behaviour; NaN where it is unknown
    seat: np.ndarray  # (T, B) uint8
    player: np.ndarray  # (T, B) uint8
    behind: np.ndarray  # (T, B) uint8: versions by which a held step's weights are older
    mask: np.ndarray | None = None  # (T+1, B, actions) bool, True where legal
    state: Arrays = field(default_factory=dict)  # (B, ...) the player's state at the first step


class _FragmentFrame(msgspec.Struct, frozen=True, kw_only=True):
    fragment: FragmentHeader
    arrays: tuple[ArrayHeader, ...]


_fragment_decoder = msgspec.msgpack.Decoder(_FragmentFrame)


def encode_fragment(fragment: Fragment) -> bytes:
    named = _named_arrays(fragment)
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
    return _assemble(told.fragment, arrays)


_FIELDS = [
    *("action", "reward", "terminated", "truncated", "valid", "log_prob"),
    *("seat", "player", "behind"),
]


def _named_arrays(fragment: Fragment) -> list[tuple[str, np.ndarray]]:
    named = [(f"observation/{leaf}", array) for leaf, array in fragment.observation.items()]
    named += [(name, getattr(fragment, name)) for name in _FIELDS]
    if fragment.mask is not None:
        named.append(("mask", fragment.mask))
    return named + [(f"state/{leaf}", array) for leaf, array in fragment.state.items()]


def _assemble(header: FragmentHeader, arrays: Arrays) -> Fragment:
    observation: Arrays = {}
    state: Arrays = {}
    plain: dict[str, Any] = {}
    for name, array in arrays.items():
        group, slash, leaf = name.partition("/")
        if slash and group == "observation":
            observation[leaf] = array
        elif slash and group == "state":
            state[leaf] = array
        elif name in _FIELDS or name == "mask":
            plain[name] = array
        else:
            raise MessageError(f"unknown array {name!r} in a fragment")
    missing = [name for name in _FIELDS if name not in plain]
    if missing:
        raise MessageError(f"a fragment without {', '.join(missing)}")
    fragment = Fragment(header, observation, **plain, state=state)
    _check_shapes(fragment)
    return fragment


def _check_shapes(fragment: Fragment) -> None:
    """T and B agree everywhere, flags are flags, and the header's count is the mask's."""
    shape = fragment.reward.shape
    if len(shape) != 2:
        raise MessageError(f"a reward of shape {shape}, not (T, B)")
    steps, lanes = shape
    for name in ("terminated", "truncated", "valid"):
        array = getattr(fragment, name)
        if array.shape != shape or array.dtype != np.bool_:
            raise MessageError(f"{name} is {array.dtype}{array.shape}, not bool{shape}")
    for name in ("reward", "log_prob"):
        array = getattr(fragment, name)
        if array.shape != shape or array.dtype != np.float32:
            raise MessageError(f"{name} is {array.dtype}{array.shape}, not float32{shape}")
    for name in ("seat", "player", "behind"):
        array = getattr(fragment, name)
        if array.shape != shape or array.dtype != np.uint8:
            raise MessageError(f"{name} is {array.dtype}{array.shape}, not uint8{shape}")
    if fragment.action.shape[:2] != shape:
        raise MessageError(f"action has shape {fragment.action.shape}, not {shape} + ...")
    ahead = (steps + 1, lanes)
    if fragment.mask is not None and (
        fragment.mask.ndim != 3
        or fragment.mask.shape[:2] != ahead
        or fragment.mask.dtype != np.bool_
    ):
        raise MessageError(f"mask has shape {fragment.mask.shape}, not {ahead} + (actions,)")
    for leaf, array in fragment.observation.items():
        if array.shape[:2] != ahead:
            raise MessageError(f"observation {leaf!r} has shape {array.shape}, not {ahead} + ...")
    for leaf, array in fragment.state.items():
        if array.shape[:1] != (lanes,):
            raise MessageError(f"state {leaf!r} has shape {array.shape}, not ({lanes},) + ...")
    header = fragment.header
    if header.steps != int(np.count_nonzero(fragment.valid)):
        raise MessageError(f"the header counts {header.steps} steps, its valid rows differ")
    if header.sequence < 0 or header.first_step < 0:
        raise MessageError("a sequence number or step count below 0")
    for numbers, names in ((fragment.seat, header.seats), (fragment.player, header.players)):
        if numbers.size and int(numbers.max()) >= len(names):
            raise MessageError("a step names a seat or a kind of player that is not listed")
    if not 0 <= header.part < header.parts:
        raise MessageError(f"part {header.part} of {header.parts}")
