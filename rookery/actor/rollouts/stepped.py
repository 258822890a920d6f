"""A rollout fed step by step: for environments that are stepped from Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rookery.actor.deciders import Deciders
from rookery.actor.episodes import EpisodeCounter
from rookery.actor.loop import Admitted, Played
from rookery.actor.player_states import choose
from rookery.actor.saved import from_json_array, json_array, prefixed, under
from rookery.envs import BatchedEnvironment, SeatView
from rookery.errors import MaskError
from rookery.messages.frame import Arrays
from rookery.messages.steps import Steps
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
        self._deciders = Deciders()
        self.restart(seed)

    def restart(self, seed: int) -> None:
        self._busy("reset")
        self._view: SeatView = self.env.reset(seed)[self.seat]
        self._busy("")
        self._state = self.player.initial_state(self.env.slots)
        self._counter.clear(slice(None))

    def close(self) -> None:
        """A policy needs no ending."""

    def resize(self, env_steps: int) -> None:
        """How many environment steps are played from now on, in every slot."""
        self.steps = env_steps

    def close_environment(self) -> None:
        self.env.close()

    def __call__(self, admitted: Admitted) -> Played:
        (arrays,) = admitted.arrays.values()
        steps, slots, view, state = self.steps, self.env.slots, self._view, self._state
        states: list[Arrays] = []  # of a player that has some, before each step
        first = self.player.initial_state(slots)
        observation = {
            leaf: np.empty((steps + 1, slots, *x.shape[1:]), x.dtype)
            for leaf, x in view.observation.items()
        }
        mask = None
        if view.mask is not None:
            mask = np.empty((steps + 1, *view.mask.shape), np.bool_)
        reward, log_prob = np.empty((2, steps, slots), np.float32)
        terminated, truncated, reset = np.empty((3, steps, slots), np.bool_)
        zeros = np.zeros((steps, slots), np.uint8)
        player = zeros
        actions: list[Any] = []
        for t in range(steps):
            for leaf, x in view.observation.items():
                observation[leaf][t] = x
            if mask is not None:
                mask[t] = self._check_mask(view)
            decision = self.player.act(arrays, view.observation, view.mask, state, self._rng)
            if state:
                states.append(state)
            if decision.deciders is not None:
                player = zeros.copy() if player is zeros else player
                player[t], known = self._deciders.told(decision, slots)
                decision = decision._replace(log_prob=known)
            self._busy("step")
            view = self.env.step({self.seat: decision.to_environment})[self.seat]
            actions.append(decision.action)
            log_prob[t] = decision.log_prob
            reward[t] = view.reward
            terminated[t], truncated[t], reset[t] = view.terminated, view.truncated, view.reset
            state = {n: choose(np, view.reset, first[n], x) for n, x in decision.state.items()}
        self._busy("")
        for leaf, x in view.observation.items():
            observation[leaf][steps] = x
        if mask is not None:
            mask[steps] = view.mask
        self._view, self._state = view, state
        valid = ~reset
        episodes = self._counter.fold(reward, terminated | truncated, valid)
        made = Steps(
            observation=observation,
            action=np.stack(actions),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            log_prob=log_prob,
            seat=zeros,
            player=player,
            behind=zeros,
            mask=mask,
        )
        if states:
            made = made.with_state({n: np.stack([s[n] for s in states]) for n in first})
        policies = admitted.arrays
        return Played(
            dict.fromkeys(policies, made),
            dict.fromkeys(policies, episodes),
            players=self._deciders.names,
        )

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
        state = {"rng": json_array(self._rng.bit_generator.state)}
        if self.can_save:
            state |= prefixed("env/", self.env.save())
        state |= self._counter.save() | self._deciders.save()
        state |= {f"state/{name}": np.asarray(array) for name, array in self._state.items()}
        return state

    def restore(self, state: Arrays) -> None:
        self._rng.bit_generator.state = from_json_array(state["rng"])
        self._counter.restore(state)
        self._deciders.restore(state)
        self._state = under(state, "state/")
        if self.can_save:
            self._view = self.env.restore(under(state, "env/"))[self.seat]
