"""Action spaces as heads: what a policy may choose from, and how its choice is played.

A policy counts its actions from 0 and may overshoot a bound; an `ActionWriter` turns its numbers
into the environment's. Where an environment also says which actions are legal, under "action_mask"
in its info or in its observation, the mask is read here too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from gymnasium import spaces

from rookery.errors import InputError, MaskError
from rookery.spaces import ActionSpace, Categorical, Continuous, MultiCategorical

MASK = "action_mask"  # the key under which environments give one, by Gymnasium's custom

MaskSource = Literal["none", "info", "observation"]

_SUPPORTED = "Discrete, MultiDiscrete and Box"


@dataclass(frozen=True, slots=True)
class ActionWriter:
    """The head of an action space, and the policy's numbers turned into the environment's."""

    head: ActionSpace
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def mask_width(self) -> int | None:
        """How many booleans a mask has; None where actions cannot be masked."""
        if isinstance(self.head, Categorical):
            return self.head.n
        return sum(self.head.sizes) if isinstance(self.head, MultiCategorical) else None

    def encoder(self, slots: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        """`encode(actions, ignored)` for that many slots; rows of `ignored` may hold anything."""
        head, batch = self.head, (slots, *self.shape)
        if isinstance(head, Continuous):
            return self._continuous_encoder(head, batch)
        if isinstance(head, Categorical):
            sizes, start = np.asarray(head.n), np.asarray(head.start)
        else:
            sizes = np.asarray(head.sizes).reshape(self.shape)
            start = np.asarray(head.starts).reshape(self.shape)
        dtype, smallest = self.dtype, int(sizes.min())
        # Seen as unsigned, a negative action is a huge one: a single pass finds both kinds.
        unsigned = np.dtype(f"u{dtype.itemsize}")
        offset = start.astype(dtype) if start.any() else None

        def encode(actions: np.ndarray, ignored: np.ndarray) -> np.ndarray:
            chosen = np.asarray(actions, dtype).reshape(batch)
            if np.maximum.reduce(chosen.view(unsigned), axis=None) >= smallest:  # look closely
                outside = ((chosen < 0) | (chosen >= sizes)).reshape(slots, -1).any(axis=1)
                if (outside & ~ignored).any():
                    slot = int(np.flatnonzero(outside & ~ignored)[0])
                    raise ValueError(f"action {chosen[slot]} of slot {slot} is not below {sizes}")
            return chosen.copy() if offset is None else chosen + offset

        return encode

    def _continuous_encoder(
        self, head: Continuous, batch: tuple[int, ...]
    ) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        low = np.asarray(head.low).reshape(self.shape)
        high = np.asarray(head.high).reshape(self.shape)
        whole = self.dtype.kind in "iu"  # a Box of integers: the nearest one is played

        def encode(actions: np.ndarray, ignored: np.ndarray) -> np.ndarray:
            chosen = np.asarray(actions, np.float64).reshape(batch)
            chosen = np.minimum(np.maximum(chosen, low), high)
            return cast(np.ndarray, np.rint(chosen) if whole else chosen).astype(self.dtype)

        return encode


def write_space(space: Any, where: str) -> ActionWriter:
    """The head of an action space; `where` begins the message when there is none for it."""
    if isinstance(space, spaces.Discrete):
        return ActionWriter(Categorical(int(space.n), int(space.start)), (), np.dtype(space.dtype))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = tuple(int(n) for n in space.nvec.reshape(-1))
        starts = tuple(int(n) for n in space.start.reshape(-1))
        dtype = np.dtype(space.dtype)
        return ActionWriter(MultiCategorical(sizes, starts), space.nvec.shape, dtype)
    if isinstance(space, spaces.Box):
        low = tuple(float(bound) for bound in space.low.reshape(-1))
        high = tuple(float(bound) for bound in space.high.reshape(-1))
        shape = tuple(int(n) for n in space.shape)
        dtype = np.dtype(space.dtype)
        return ActionWriter(Continuous(shape, low, high, dtype.name), shape, dtype)
    raise InputError(
        f"{where} is a {type(space).__name__}, which is not supported; supported are {_SUPPORTED}"
    )


def find_mask(space: Any, info: dict[str, Any], writer: ActionWriter) -> MaskSource:
    """Where a mask is found, given the observation space and the info of a first reset."""
    if writer.mask_width is None:
        return "none"
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        return "observation"
    return "info" if MASK in info else "none"


def check_legal(
    seat: str, head: ActionSpace, mask: np.ndarray, actions: np.ndarray, rows: np.ndarray
) -> None:
    """Raise MaskError when an action of those rows is forbidden: a bug of ours, not a person's.

    Environments answer an illegal action in ways of their own, some by silently ending the game.
    """
    sizes = head.sizes if isinstance(head, MultiCategorical) else (mask.shape[1],)
    chosen = np.asarray(actions)[rows].reshape(len(rows), len(sizes))
    offsets = np.cumsum((0, *sizes[:-1]))
    allowed = mask[rows[:, None], chosen + offsets].all(axis=1)
    if not allowed.all():
        at = int(np.flatnonzero(~allowed)[0])
        raise MaskError(
            f"seat {seat!r} of slot {int(rows[at])} was about to play action "
            f"{chosen[at].tolist()}, which its mask forbids"
        )


def flat_mask(value: Any, width: int, lead: tuple[int, ...] = ()) -> np.ndarray:
    """A mask as booleans of shape (*lead, width), from one array or from one per component."""
    if isinstance(value, tuple | list) and len(value) and np.ndim(value[0]) > len(lead):
        value = np.concatenate([np.asarray(part) for part in value], axis=-1)
    mask = np.asarray(value).astype(bool)
    if mask.shape != (*lead, width):
        raise ValueError(f"its action mask has the shape {mask.shape}, not {(*lead, width)}")
    return mask


def excuse_ended(mask: np.ndarray, ended: np.ndarray) -> np.ndarray:
    """A finished game may offer no move; the next action is ignored, so let it be any."""
    if np.count_nonzero(ended):
        mask[ended & ~mask.any(axis=1)] = True
    return mask
