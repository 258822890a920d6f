"""Gymnasium environments as the slots of one batched environment.

    env = GymnasiumEnvironment("CartPole-v1", slots=8)

`making` makes the copies, `probing` asks one of them what it observes and plays (`leaves`,
`heads`), `copies` steps them, and `layers` and `saving` keep their state; this adapter joins them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.envs import NO_OPTIONS, SOLO_SEAT, Arrays, Options, Picture, SeatView
from rookery.envs.gymnasium.make import Env, Factory, make_copy, make_vector
from rookery.envs.gymnasium.probe import Interface, probe
from rookery.envs.gymnasium.slots import LoopedSlots, Slots, VectorSlots
from rookery.envs.saved_state import check_header, header_text, load_view, save_view
from rookery.errors import ConfigError, InputError, RookeryError

__all__ = ["GymnasiumEnvironment", "probe"]


class GymnasiumEnvironment:
    """A Gymnasium id, or a factory of `gymnasium.Env`, as a batched environment with one seat."""

    def __init__(
        self,
        id: str,
        slots: int,
        kwargs: Options = NO_OPTIONS,
        factory: Factory | None = None,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"environment {id} needs at least 1 slot, not {slots}")
        interface = probe(id, kwargs, factory)
        self.spec = interface.spec
        self.slots = slots
        self._view: SeatView | None = None
        self._copies = self._make_copies(id, kwargs, factory, interface)

    def _make_copies(
        self, id: str, kwargs: Options, factory: Factory | None, interface: Interface
    ) -> Slots:
        vector = make_vector(id, self.slots, kwargs, factory)
        self._native = vector is not None
        if vector is not None:
            return VectorSlots(vector, interface, self.slots)
        envs: list[Env] = []
        try:
            for _ in range(self.slots):
                envs.append(make_copy(id, kwargs, factory))
        except RookeryError:
            for env in envs:
                env.close()
            raise
        return LoopedSlots(envs, interface)

    @property
    def native(self) -> bool:
        """Whether the slots are stepped by the library's own vector environment."""
        return self._native

    def reset(self, seed: int) -> dict[str, SeatView]:
        """Begin a new episode in every slot."""
        self._view = self._copies.reset(seed)
        return {SOLO_SEAT: self._view}

    def step(
        self, actions: dict[str, np.ndarray], advance: np.ndarray | None = None
    ) -> dict[str, SeatView]:
        """Play one action per slot; a slot whose episode has ended begins a new one instead."""
        assert advance is None or advance.all(), "slots with one seat are stepped together"
        self._view = self._copies.step(actions[SOLO_SEAT])
        return {SOLO_SEAT: self._view}

    def save(self) -> Arrays:
        """The exact state of every slot, and the views as they stand."""
        if not self.spec.can_save:
            raise InputError(f"environment {self.spec.id} cannot save its state")
        if self._view is None:
            raise RuntimeError("save before the first reset")
        return {
            "header": header_text(self._header()),
            **self._copies.save(),
            **save_view(self._view),
        }

    def restore(self, state: Arrays) -> dict[str, SeatView]:
        """Continue from `save`, in this copy or in a new one."""
        check_header(state, self._header())
        self._view = load_view(state, self.spec.seats[SOLO_SEAT])
        self._copies.restore(state, self._view)
        return {SOLO_SEAT: self._view}

    def _header(self) -> dict[str, Any]:
        return {"id": self.spec.id, "slots": self.slots, "native": self._native}

    def picture(self, slot: int) -> Picture | None:
        """What the environment renders, if its options have a `render_mode` of rgb_array."""
        return self._copies.picture(slot)

    def close(self) -> None:
        """Close every copy."""
        self._copies.close()
