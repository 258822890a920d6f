"""Observation spaces as leaves: flat, named arrays in a layout that networks can count on.

A `LeafReader` knows where its leaf is inside an observation and turns one observation per slot, or
a whole batch, into the leaf's array.

Images: a Box with finite bounds and two or three dimensions whose height and width are both at
least 7 is an image, kept as height x width x channels. Two dimensions get one channel. Of three,
the first holds the channels only when it is strictly the smallest (3x84x84), else the last.
Boards follow the same rule: connect four's 6x7x2 is a box, which convolutions would crop to little,
chess's 8x8 and Go's 9x9 are images.

Numbers: 64-bit observations travel as float32 and booleans as uint8, since JAX computes in 32 bits;
Discrete and MultiDiscrete values are counted from 0 whatever the space's start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from gymnasium import spaces

from rookery.errors import InputError
from rookery.spaces import Leaf, LeafKind

_SUPPORTED = "Box of 0 to 3 dimensions, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
_SMALLEST_IMAGE_SIDE = 7  # MiniGrid's 7x7x3 is the smallest that convolutions are used on

Layout = Literal["as_is", "add_axis", "flatten", "channels_first"]


@dataclass(frozen=True, slots=True)
class LeafReader:
    """Where a leaf is inside an observation and how its values become the leaf's."""

    leaf: Leaf
    keys: tuple[Any, ...]
    raw_shape: tuple[int, ...]
    start: np.ndarray | None = None
    layout: Layout = "as_is"

    def dig(self, observation: Any) -> Any:
        """This leaf's part of an observation, of one slot or of a batch."""
        for key in self.keys:
            observation = observation[key]
        return observation

    def convert(self, raw: Any, xp: Any = np) -> Any:
        """Values in the leaf's layout; `xp` is numpy or jax.numpy, `raw` has the leaf's dtype."""
        if self.start is not None:
            raw = raw - self.start
        if self.layout == "channels_first":
            return xp.ascontiguousarray(xp.moveaxis(raw, -3, -1))
        if self.layout == "flatten":
            return raw.reshape((*raw.shape[: raw.ndim - len(self.raw_shape)], *self.leaf.shape))
        return raw[..., None] if self.layout == "add_axis" else raw

    def read_rows(self, observations: list[Any]) -> np.ndarray:
        """This leaf of one observation per slot, as a fresh array."""
        rows = np.empty((len(observations), *self.raw_shape), self.leaf.dtype)
        if not self.keys:
            for slot, observation in enumerate(observations):
                rows[slot] = observation
        else:
            for slot, observation in enumerate(observations):
                rows[slot] = self.dig(observation)
        return cast(np.ndarray, self.convert(rows))

    def read_batch(self, observation: Any) -> np.ndarray:
        """This leaf of a vector environment's observation, as a fresh array in C order."""
        rows = np.array(self.dig(observation), dtype=self.leaf.dtype, order="C")
        return cast(np.ndarray, self.convert(rows))


def read_space(space: Any, where: str, keys: tuple[Any, ...] = ()) -> tuple[LeafReader, ...]:
    """The leaves of an observation space; `where` begins the message when there is none for it."""
    if isinstance(space, spaces.Dict):
        parts: list[tuple[Any, Any]] = list(space.spaces.items())
    elif isinstance(space, spaces.Tuple):
        parts = list(enumerate(space.spaces))
    else:
        return (_read_leaf(space, where, keys),)
    readers = tuple(r for key, part in parts for r in read_space(part, where, (*keys, key)))
    paths = [reader.leaf.path for reader in readers]
    if clash := next((path for path in paths if paths.count(path) > 1), None):
        raise InputError(f"{where} has two parts named {clash!r}; rename one of its keys")
    return readers


def _read_leaf(space: Any, where: str, keys: tuple[Any, ...]) -> LeafReader:
    path = ".".join(str(key) for key in keys)
    if isinstance(space, spaces.Box) and len(space.shape) <= 3:
        return _read_box(space, path, keys)
    if isinstance(space, spaces.Discrete):
        leaf = Leaf(path, "discrete", (), "int32", sizes=(int(space.n),))
        return LeafReader(leaf, keys, (), _start(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in space.nvec.reshape(-1))
        leaf = Leaf(path, "multi_discrete", (len(sizes),), "int32", sizes=sizes)
        return LeafReader(leaf, keys, space.nvec.shape, _start(space.start), "flatten")
    if isinstance(space, spaces.MultiBinary):
        shape = tuple(int(n) for n in space.shape)
        return LeafReader(Leaf(path, "multi_binary", shape, "uint8", low=0, high=1), keys, shape)
    shape_note = f" with {len(space.shape)} dimensions" if isinstance(space, spaces.Box) else ""
    place = f" at {path!r}" if path else ""
    raise InputError(
        f"{where} has a {type(space).__name__}{shape_note}{place}, which is not supported; "
        f"supported are {_SUPPORTED}"
    )


def _read_box(space: spaces.Box, path: str, keys: tuple[Any, ...]) -> LeafReader:
    shape = tuple(int(n) for n in space.shape)
    low, high = _bound(np.min, space.low, -np.inf), _bound(np.max, space.high, np.inf)
    layout, kind = _box_layout(shape, bool(np.isfinite(low) and np.isfinite(high)))
    if layout == "channels_first":
        leaf_shape = (*shape[1:], shape[0])
    else:
        leaf_shape = (*shape, 1) if layout == "add_axis" else shape
    leaf = Leaf(path, kind, leaf_shape, travel_dtype(space.dtype), low=low, high=high)
    return LeafReader(leaf, keys, shape, None, layout)


def _bound(pick: Any, bounds: np.ndarray, infinite: float) -> float:
    """The outermost bound; the largest float32 is how many environments say infinite."""
    bound = float(pick(bounds)) if bounds.size else infinite
    return infinite if abs(bound) >= float(np.finfo(np.float32).max) else bound


def _box_layout(shape: tuple[int, ...], bounded: bool) -> tuple[Layout, LeafKind]:
    """How a Box is laid out as a leaf, and whether it is an image (the rule is at the top)."""
    if not shape:
        return "add_axis", "box"
    if bounded and len(shape) == 2 and min(shape) >= _SMALLEST_IMAGE_SIDE:
        return "add_axis", "image"
    if bounded and len(shape) == 3:
        channels_first = shape[0] < shape[1] and shape[0] < shape[2]
        if min(shape[1:] if channels_first else shape[:2]) >= _SMALLEST_IMAGE_SIDE:
            return ("channels_first" if channels_first else "as_is"), "image"
    return "as_is", "box"


def travel_dtype(dtype: Any) -> str:
    """The dtype in which a Box's values travel."""
    given = np.dtype(dtype)
    if given.kind == "b":
        return "uint8"
    return "float32" if given.itemsize >= 8 else given.name


def _start(start: Any) -> np.ndarray | None:
    return np.asarray(start, np.int32) if np.any(start) else None
