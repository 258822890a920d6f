"""A rollout fed step by step: for environments that are stepped from Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from rookery.actor.experience import EpisodeCounter, Experience, Played
from rookery.actor.loop import Admitted
from rookery.envs import BatchedEnvironment, SeatView
from rookery.errors import MaskError
from rookery.messages.frame import Arrays
from rookery.players import Player


class SteppedRollout:
    """One seat's player in every slot of a batched environment."""

    def __init__(
        self,
        env: BatchedEnvironment,
        player: Player,
        seat: str,
        steps: int,
        rng: np.random.Generator,
        seed: int,
        busy: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self.env, self.player, self.seat, self.steps = env, player, seat, steps
        self.can_save = env.spec.can_save
        self._rng = rng
        self._busy = busy  # told what is about to be done, for the deadline's watch
        self._counter = EpisodeCounter(seat, env.slots)
        self._state = player.initial_state(env.slots)
        self.restart(seed)

    def restart(self, seed: int) -> None:
        self._busy("reset")
        self._view: SeatView = self.env.reset(seed)[self.seat]
        self._busy("")
        self._counter.clear(slice(None))

    def close(self) -> None:
        """A policy needs no ending."""

    def __call__(self, admitted: Admitted) -> Played:
        (arrays,) = admitted.arrays.values()
        steps, slots, view, state = self.steps, self.env.slots, self._view, self._state
        initial_state = state
        observation = {
            leaf: np.empty((steps + 1, slots, *x.shape[1:]), x.dtype)
            for leaf, x in view.observation.items()
        }
        mask = None
        if view.mask is not None:
            mask = np.empty((steps + 1, *view.mask.shape), np.bool_)
        reward, log_prob = np.empty((2, steps, slots), np.float32)
        terminated, truncated, reset = np.empty((3, steps, slots), np.bool_)
        actions: list[Any] = []
        for t in range(steps):
            for leaf, x in view.observation.items():
                observation[leaf][t] = x
            if mask is not None:
                mask[t] = self._check_mask(view)
            decision = self.player.act(arrays, view.observation, view.mask, state, self._rng)
            state = decision.state
            self._busy("step")
            view = self.env.step({self.seat: decision.to_environment})[self.seat]
            actions.append(decision.action)
            log_prob[t] = decision.log_prob
            reward[t] = view.reward
            terminated[t], truncated[t], reset[t] = view.terminated, view.truncated, view.reset
        self._busy("")
        for leaf, x in view.observation.items():
            observation[leaf][steps] = x
        if mask is not None:
            mask[steps] = view.mask
        self._view, self._state = view, state
        valid = ~reset
        episodes = self._counter.fold(reward, terminated | truncated, valid)
        experience = Experience(
            observation,
            np.stack(actions),
            reward,
            terminated,
            truncated,
            valid,
            log_prob,
            mask,
            initial_state,
            episodes,
        )
        return Played(dict.fromkeys(admitted.arrays, experience))

    def _check_mask(self, view: SeatView) -> Any:
        """A slot whose episode has ended only waits for its reset; any other must have a choice."""
        stuck = ~view.mask.any(-1) & ~(view.terminated | view.truncated)  # type: ignore[union-attr]
        if stuck.any():
            slot = int(np.flatnonzero(stuck)[0])
            raise MaskError(
                f"seat {self.seat!r} of slot {slot} was offered no legal action: its action mask "
                "is all false"
            )
        return view.mask

    def save(self) -> Arrays:
        """All of it; without the environment where that can't be saved: then `restart` follows."""
        state = {"rng": _json_array(self._rng.bit_generator.state)}
        if self.can_save:
            state |= {f"env/{name}": array for name, array in self.env.save().items()}
        state["totals"], state["lengths"] = (
            self._counter.totals.copy(),
            self._counter.lengths.copy(),
        )
        state |= {f"state/{name}": np.asarray(array) for name, array in self._state.items()}
        return state

    def restore(self, state: Arrays) -> None:
        self._rng.bit_generator.state = json.loads(state["rng"].tobytes())
        self._counter.totals[:] = state["totals"]
        self._counter.lengths[:] = state["lengths"]
        self._state = {n[6:]: a for n, a in state.items() if n.startswith("state/")}
        if self.can_save:
            saved = {n[4:]: a for n, a in state.items() if n.startswith("env/")}
            self._view = self.env.restore(saved)[self.seat]


def _json_array(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)
