"""The players of a compiled table: their decisions as one function of who sits where."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rookery.actor.player_states import choose
from rookery.players.member import Member


class CompiledPlayers:
    """All members of a lineup; those of a league share one function, with weights side by side."""

    def __init__(self, members: list[Member], blocks: int) -> None:
        self.members, self.blocks = list(members), blocks

    def number(self, policy: str) -> int:
        return next(i for i, m in enumerate(self.members) if m.policy == policy)

    def stack(self) -> dict[str, Any]:
        """Per league, its snapshots' arrays with a leading axis; an empty place plays the first."""
        stacked = {}
        for text in dict.fromkeys(m.text for m in self.members if m.text.startswith("league:")):
            found = [m.arrays for m in self.members if m.text == text]
            filled = [arrays or next(a for a in found if a) for arrays in found]
            stacked[text] = {n: jnp.stack([a[n] for a in filled]) for n in filled[0]}
        return stacked

    def initial_states(self, slots: int, seats: int) -> Any:
        """By the text of members: leaf -> (slots, seats, ...) of what they carry between steps."""

        def one(player: Any) -> Any:
            state = player.initial_state(slots * seats)
            return {n: jnp.reshape(x, (slots, seats, *x.shape[1:])) for n, x in state.items()}

        return {member.text: one(member.player) for member in self.members}

    def act(
        self, arrays: Any, frozen: Any, who: Any, seen: Any, states: Any, key: Any
    ) -> tuple[Any, Any, Any]:
        """(slots,) actions and log-probabilities, each of the member that is to act there, and
        the states after them."""
        action: Any = None
        log_prob: Any = None
        after = dict(states)
        number = 0
        while number < len(self.members):
            member = self.members[number]
            player: Any = member.player
            key, own = jax.random.split(key)
            before = states[member.text]
            if member.text.startswith("league:"):
                count = sum(m.text == member.text for m in self.members)
                chosen = self._league(
                    player, frozen[member.text], count, who - number, seen, before, own
                )
                mine = (who >= number) & (who < number + count)
            else:
                count = 1
                weights = arrays[member.policy] if member.policy else member.arrays
                found = player.act(weights, seen.observation, seen.mask, before, own)
                chosen, mine = [found.to_environment, found.log_prob, found.state], who == number
            after[member.text] = {
                n: choose(jnp, mine, x, after[member.text][n]) for n, x in chosen[2].items()
            }
            if action is None:
                action, log_prob, _ = chosen
            else:
                action = jnp.where(mine, chosen[0], action)
                log_prob = jnp.where(mine, chosen[1], log_prob)
            number += count
        return action, log_prob, after

    def _league(
        self, player: Any, weights: Any, count: int, place: Any, seen: Any, states: Any, key: Any
    ) -> list[Any]:
        """What the snapshot in each slot's place decides, asking only those of the slot's block."""
        blocks, each = self.blocks, count // self.blocks

        def apart(x: Any) -> Any:  # (slots, ...) -> (blocks, slots of it, ...)
            return x.reshape(-1, blocks, *x.shape[1:]).swapaxes(0, 1)

        def play(weights: Any, observation: Any, mask: Any, state: Any, key: Any) -> Any:
            found = player.act(weights, observation, mask, state, key)
            return found.to_environment, found.log_prob, found.state

        seen_apart = jax.tree.map(apart, (seen.observation, seen.mask, states))
        weights = jax.tree.map(lambda x: x.reshape(blocks, each, *x.shape[1:]), weights)
        keys = jax.random.split(key, (blocks, each))
        of_block: Any = jax.vmap(play, in_axes=(0, None, None, None, 0))
        all_blocks: Any = jax.vmap(of_block)
        every = all_blocks(weights, *seen_apart, keys)  # (blocks, each, slots of it, ...)
        own = apart(place % each)[:, None]  # where the place is this league's

        def picked(x: Any) -> Any:
            at = own.reshape(*own.shape, *[1] * (x.ndim - own.ndim))
            chosen = jnp.take_along_axis(x, at, axis=1)[:, 0]
            return chosen.swapaxes(0, 1).reshape(-1, *chosen.shape[2:])

        return [jax.tree.map(picked, x) for x in every]
