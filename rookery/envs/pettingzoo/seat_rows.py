"""One seat's view of a step, filled in slot by slot."""

from __future__ import annotations

import numpy as np

from rookery.envs import SeatView
from rookery.envs.pettingzoo.game import Sight
from rookery.envs.pettingzoo.probe import Port


class SeatRows:
    """Fresh arrays for every slot; only slots where the seat sees something are written.

    Elsewhere observations are zeros and every action is allowed, so that a network which is run on
    the whole batch has nothing to trip over.
    """

    __slots__ = ("_leaves", "_mask", "_port", "reset", "reward", "terminated", "truncated", "turn")

    def __init__(self, port: Port, slots: int) -> None:
        self._port = port
        self._leaves = [np.zeros((slots, *r.raw_shape), r.leaf.dtype) for r in port.readers]
        for reader, leaf in zip(port.readers, self._leaves, strict=True):
            if reader.start is not None:
                leaf[:] = reader.start  # 0, as the view counts
        self._mask = np.ones((slots, port.mask_width), bool) if port.spec.masked else None
        self.reward = np.zeros(slots, np.float32)
        self.terminated, self.truncated, self.reset, self.turn = np.zeros((4, slots), bool)

    def take_turn(self, slot: int, sight: Sight) -> None:
        """The seat is to act in that slot."""
        self.turn[slot] = True
        self._see(slot, sight)
        if self._mask is not None and (mask := self._port.mask_of(sight)) is not None:
            self._mask[slot] = mask

    def truncate(self, slot: int, sight: Sight) -> None:
        """The seat's part was cut short; this is the last it sees."""
        self.truncated[slot] = True
        self._see(slot, sight)

    def _see(self, slot: int, sight: Sight) -> None:
        for reader, leaf in zip(self._port.readers, self._leaves, strict=True):
            leaf[slot] = reader.dig(sight.observation)

    def view(self) -> SeatView:
        """The view, once every slot is written."""
        converted = zip(self._port.readers, self._leaves, strict=True)
        return SeatView(
            {reader.leaf.path: reader.convert(leaf) for reader, leaf in converted},
            self._mask,
            self.reward,
            self.terminated,
            self.truncated,
            self.reset,
            self.turn,
        )
