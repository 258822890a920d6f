"""A rollout that is one compiled call: for JAX-native environments and players."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rookery.actor.episodes import EpisodeCounter
from rookery.actor.loop import Admitted, Played
from rookery.actor.player_states import choose
from rookery.actor.saved import prefixed, under
from rookery.envs import CompiledEnvironment
from rookery.messages.frame import Arrays
from rookery.messages.steps import Steps
from rookery.players import Player


class CompiledRollout:
    """T steps of every slot inside one `lax.scan`."""

    can_save = True

    def __init__(
        self,
        env: CompiledEnvironment,
        player: Player,
        seat: str,
        steps: int,
        slots: int,
        seed: int,
    ) -> None:
        self.env, self.player, self.seat, self.steps, self.slots = env, player, seat, steps, slots
        self._counter = EpisodeCounter(seat, slots)
        self._reset = jax.jit(self._reset_slots)
        self._scan = jax.jit(self._play)
        self.restart(seed)

    def restart(self, seed: int) -> None:
        self._key, key = jax.random.split(jax.random.key(seed))
        self._carry = self._reset(key)
        self._counter.clear(slice(None))

    def close(self) -> None:
        """A policy needs no ending."""

    def __call__(self, admitted: Admitted) -> Played:
        self._key, key = jax.random.split(self._key)
        (arrays,) = admitted.arrays.values()
        self._carry, rows, last = self._scan(arrays, self._carry, key)
        rows, last = jax.device_get((rows, last))
        seen, action, log_prob, step, states = rows
        observation = {
            leaf: np.concatenate([x, last.observation[leaf][None]])
            for leaf, x in seen.observation.items()
        }
        mask = None
        if seen.mask is not None:
            mask = np.concatenate([seen.mask, last.mask[None]])
        terminated, truncated = np.asarray(step.terminated), np.asarray(step.truncated)
        valid = ~np.asarray(step.reset)
        reward = np.asarray(step.reward, np.float32)
        zeros = np.zeros(reward.shape, np.uint8)
        made = Steps(
            observation=observation,
            action=action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            log_prob=log_prob,
            seat=zeros,
            player=zeros,
            behind=zeros,
            mask=mask,
        )
        if states:
            made = made.with_state(states)
        episodes = self._counter.fold(reward, terminated | truncated, valid)
        policies = admitted.arrays
        return Played(dict.fromkeys(policies, made), dict.fromkeys(policies, episodes))

    def _reset_slots(self, key: Any) -> Any:
        begun = jax.vmap(self.env.reset)(jax.random.split(key, self.slots))
        return (*begun, self.player.initial_state(self.slots))

    def _play(self, arrays: Any, carry: Any, key: Any) -> Any:
        first = self.player.initial_state(self.slots)

        def one(carry: Any, key: Any) -> tuple[Any, Any]:
            state, seen, own = carry
            act_key, step_key = jax.random.split(key)
            decision = self.player.act(arrays, seen.observation, seen.mask, own, act_key)
            keys = jax.random.split(step_key, self.slots)
            state, step = jax.vmap(self.env.step)(keys, state, decision.to_environment)
            after = {n: choose(jnp, step.reset, first[n], x) for n, x in decision.state.items()}
            return (state, step, after), (seen, decision.action, decision.log_prob, step, own)

        carry, rows = jax.lax.scan(one, carry, jax.random.split(key, self.steps))
        return carry, rows, carry[1]

    def save(self) -> Arrays:
        state = prefixed("carry/", save_tree(self._carry))
        state["key"] = np.asarray(jax.random.key_data(self._key))
        return state | self._counter.save()

    def restore(self, state: Arrays) -> None:
        self._carry = load_tree(self._carry, under(state, "carry/"))
        self._key = jax.random.wrap_key_data(jnp.asarray(state["key"]))
        self._counter.restore(state)


def save_tree(tree: Any) -> Arrays:
    """A pytree's leaves by number."""
    return {str(i): np.asarray(_raw(leaf)) for i, leaf in enumerate(jax.tree.leaves(tree))}


def load_tree(like: Any, saved: Arrays) -> Any:
    """The tree that `save_tree` saw; `like` gives its structure and types."""
    leaves, tree = jax.tree.flatten(like)
    return jax.tree.unflatten(tree, [_like(saved[str(i)], x) for i, x in enumerate(leaves)])


def _raw(leaf: Any) -> Any:
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _like(saved: np.ndarray, leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(saved))
    return jnp.asarray(saved, leaf.dtype)
