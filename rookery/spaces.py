"""What a seat sees and may do, as plain data.

An observation space of any shape becomes a tuple of leaves, each a named array; an action space
becomes one of three heads. Everything downstream (networks, fragments, checkpoints) works on these
and never imports an environment library.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

LeafKind = Literal["box", "image", "discrete", "multi_discrete", "multi_binary"]


class Leaf(msgspec.Struct, frozen=True):
    """One array of an observation, raw as the environment gives it."""

    path: str  # "" for a lone space; "camera", "arm.angle", "0" inside Dict and Tuple
    kind: LeafKind
    shape: tuple[int, ...]  # of one observation; () for discrete
    dtype: str  # numpy name, as it travels in a fragment
    sizes: tuple[int, ...] = ()  # number of values: one entry for discrete, one per component
    low: float = float(
        "-inf"
    )  # smallest and largest bound over the leaf; images are scaled by them
    high: float = float("inf")


class Categorical(msgspec.Struct, frozen=True, tag="categorical"):
    """One choice of n."""

    n: int
    start: int = 0  # the environment's smallest action; the policy always counts from 0


class MultiCategorical(msgspec.Struct, frozen=True, tag="multi_categorical"):
    """Several independent choices."""

    sizes: tuple[int, ...]
    starts: tuple[int, ...] = ()


class Continuous(msgspec.Struct, frozen=True, tag="continuous"):
    """A real vector between bounds."""

    shape: tuple[int, ...]
    low: tuple[float, ...]  # flattened
    high: tuple[float, ...]
    dtype: str = "float32"


ActionSpace = Categorical | MultiCategorical | Continuous


def stored_action(space: ActionSpace) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of one action as a fragment keeps it."""
    match space:
        case Categorical():
            return (), "int32"
        case MultiCategorical(sizes=sizes):
            return (len(sizes),), "int32"
        case Continuous(shape=shape):
            return (math.prod(shape),), "float32"


class SeatSpec(msgspec.Struct, frozen=True):
    """The spaces of one seat."""

    observation: tuple[Leaf, ...]
    action: ActionSpace
    masked: bool = False  # the environment says which actions are legal


class EnvironmentSpec(msgspec.Struct, frozen=True):
    """An environment's seats and their spaces."""

    id: str
    seats: dict[str, SeatSpec]
    compiled: bool = False  # JAX-native: the whole rollout is one compiled call
    can_save: bool = False  # its state can be saved and restored exactly
    max_episode_steps: int | None = None
    simultaneous: bool = True  # all seats act at every step; else one at a time, in turns


msgspec.json.Decoder(EnvironmentSpec)  # two threads that first meet a type crash inside msgspec


def spec_to_json(spec: EnvironmentSpec) -> dict[str, Any]:
    """Plain data; an infinite bound, which JSON lacks, becomes "inf" or "-inf"."""
    found = _bounds(msgspec.to_builtins(spec), str)
    assert isinstance(found, dict)
    return found


def spec_from_json(data: dict[str, Any]) -> EnvironmentSpec:
    return msgspec.convert(_bounds(data, float), EnvironmentSpec)


def _bounds(data: Any, change: type[str] | type[float]) -> Any:
    """The same tree with every infinite `low` and `high` as text or as a number."""
    if isinstance(data, dict):
        return {
            key: _bound(value, change) if key in ("low", "high") else _bounds(value, change)
            for key, value in data.items()
        }
    if isinstance(data, list | tuple):
        return [_bounds(value, change) for value in data]
    return data


def _bound(value: Any, change: type[str] | type[float]) -> Any:
    if isinstance(value, list | tuple):
        return [_bound(item, change) for item in value]
    return change(value) if isinstance(value, str) or math.isinf(value) else value
