"""A rollout at tables with several seats as one compiled call: every player is a JAX function.

Who sits where in the episodes to come is drawn outside, as for any other table, and handed in; the
turns that come out are packed by the same function too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rookery.actor.episodes import GameBook
from rookery.actor.experience import Played
from rookery.actor.lineup import ROUND_STEPS as ROUND_STEPS
from rookery.actor.lineup import Lineup
from rookery.actor.loop import Admitted
from rookery.actor.packing import EDGE, STEP, Outcomes, Turns, pack
from rookery.actor.rollouts.compiled import load_tree, save_tree
from rookery.envs import CompiledEnvironment
from rookery.messages.frame import Arrays
from rookery.players.member import Member
from rookery.worker.policies import Layout

_SHORTEST_GAME = 2  # environment steps, its reset included


class CompiledTableRollout:
    """N steps of every slot inside one `lax.scan`; seats take turns."""

    can_save = True

    def __init__(
        self,
        env: CompiledEnvironment,
        lineup: Lineup,
        layouts: Mapping[str, Layout],
        blank: Mapping[str, Turns],
        steps: int,
        slots: int,
        seed: int,
    ) -> None:
        self.env, self.lineup, self.layouts, self.slots = env, lineup, dict(layouts), slots
        self.seats = tuple(env.spec.seats)
        self.steps = steps
        self._blank, self.held = dict(blank), dict(blank)
        self.book = GameBook(self.seats, slots, lineup.members)
        self._seed = seed
        self._carry: Any = None  # (state, seen, sitting, acted, unclaimed)
        self._key = jax.random.key(seed)
        self._reset = jax.jit(self._reset_slots)
        self._stacked: tuple[int, Any] = (-1, None)
        self._compile()

    def _compile(self) -> None:
        self._players = _Players(self.lineup.members, self.lineup.blocks)
        self._scan = jax.jit(self._play)

    def close(self) -> None:
        """Players that are functions need no ending."""

    def restart(self, seed: int) -> None:
        self._key, key = jax.random.split(jax.random.key(seed))
        state, seen = self._reset(key)
        sitting = self.lineup.seat(np.arange(self.slots))
        self.lineup.began(sitting)
        shape = sitting.shape
        self._carry = (
            *(state, seen, jnp.asarray(sitting)),
            *(jnp.zeros(shape, bool), jnp.zeros(shape, jnp.float32)),
        )
        self.held = dict(self._blank)
        self.book.clear(slice(None))

    def __call__(self, admitted: Admitted) -> Played:
        before = np.zeros(0) if self._carry is None else np.asarray(self._carry[2])
        if self.lineup.refresh(admitted, before):
            self._compile()
        if self._carry is None:
            self.restart(self._seed)
        self._key, key = jax.random.split(self._key)
        coming = self.lineup.seat(np.repeat(np.arange(self.slots), self._coming))
        coming = coming.reshape(self.slots, self._coming, len(self.seats))
        self._carry, rows = self._scan(
            admitted.arrays, self._frozen(), self._carry, jnp.asarray(coming), key
        )
        rows, seen = jax.device_get((rows, self._carry[1]))
        self._count(rows, coming)
        outcomes = Outcomes(rows["reward"], rows["ended"], np.zeros_like(rows["ended"]))
        number = admitted.version.number
        games, episodes = self.book.take()
        experience = {}
        for policy, layout in self.layouts.items():
            turns = self._turns(policy, rows, seen, number)
            experience[policy], self.held[policy] = pack(
                turns, outcomes, layout, number, episodes[policy]
            )
        return Played(experience, games)

    @property
    def _coming(self) -> int:
        """Episodes that may begin in one slot during a rollout."""
        return self.steps // _SHORTEST_GAME + 1

    def _frozen(self) -> Any:
        """The weights of the league's snapshots, side by side; made anew when one changed."""
        if self._stacked[0] != self.lineup.changes:
            self._stacked = (self.lineup.changes, self._players.stack())
        return self._stacked[1]

    # --- inside XLA ------------------------------------------------------------------------------

    def _reset_slots(self, key: Any) -> Any:
        return jax.vmap(self.env.reset)(jax.random.split(key, self.slots))

    def _play(self, arrays: Any, frozen: Any, carry: Any, coming: Any, key: Any) -> Any:
        slots = jnp.arange(self.slots)

        def one(carry: Any, key: Any) -> tuple[Any, Any]:
            (state, seen, sitting, acted, unclaimed), episode = carry
            act_key, step_key = jax.random.split(key)
            playing = ~(seen.terminated | seen.truncated)
            who = sitting[slots, seen.seat]
            action, log_prob = self._players.act(arrays, frozen, who, seen, act_key)
            keys = jax.random.split(step_key, self.slots)
            state, step = jax.vmap(self.env.step)(keys, state, action)
            mover = jax.nn.one_hot(seen.seat, len(self.seats), dtype=bool) & playing[:, None]
            earlier = jnp.where(acted, 0.0, unclaimed)[slots, seen.seat]
            acted = acted | mover
            unclaimed = unclaimed + jnp.where(acted, 0.0, step.reward)
            row = {
                "observation": seen.observation,
                "mask": seen.mask,
                "seat": seen.seat,
                "playing": playing,
                "who": who,
                "action": action,
                "log_prob": log_prob,
                "earlier": earlier,
                "reward": step.reward,
                "ended": jnp.broadcast_to((step.terminated | step.truncated)[:, None], acted.shape),
                "reset": step.reset,
                "sitting": sitting,
            }
            fresh = step.reset[:, None]
            sitting = jnp.where(fresh, coming[slots, episode], sitting)
            acted, unclaimed = acted & ~fresh, jnp.where(fresh, 0.0, unclaimed)
            return ((state, step, sitting, acted, unclaimed), episode + step.reset), row

        begin = (carry, jnp.zeros(self.slots, jnp.int32))
        (carry, _), rows = jax.lax.scan(one, begin, jax.random.split(key, self.steps))
        return carry, rows

    # --- outside it ------------------------------------------------------------------------------

    def _count(self, rows: Any, coming: np.ndarray) -> None:
        """Close the games that ended and tell the lineup which of the drawn ones began."""
        reward, reset, sitting = rows["reward"], rows["reset"], rows["sitting"]
        for t in range(self.steps):
            self.book.note(reward[t], ~reset[t], reset[t], sitting[t])
        begun = reset.sum(0)
        self.lineup.began(coming[np.arange(self._coming) < begun[:, None]])

    def _turns(self, policy: str, rows: Any, seen: Any, number: int) -> Turns:
        member = self._players.number(policy)
        time, slot = np.nonzero(rows["playing"] & (rows["who"] == member))
        steps = Turns(
            kind=np.full(len(time), STEP, np.int8),
            slot=slot.astype(np.int32),
            seat=rows["seat"][time, slot].astype(np.int32),
            time=time.astype(np.int32),
            earlier=rows["earlier"][time, slot].astype(np.float64),
            number=np.full(len(time), number, np.int64),
            log_prob=rows["log_prob"][time, slot],
            action=rows["action"][time, slot],
            mask=None if rows["mask"] is None else rows["mask"][time, slot],
            observation={leaf: x[time, slot] for leaf, x in rows["observation"].items()},
        )
        sitting = np.asarray(self._carry[2])
        to_move = sitting[np.arange(self.slots), seen.seat] == member
        slot = np.flatnonzero(to_move & ~(seen.terminated | seen.truncated))
        count, blank = len(slot), self._blank[policy]
        edges = Turns(
            kind=np.full(count, EDGE, np.int8),
            slot=slot.astype(np.int32),
            seat=np.asarray(seen.seat)[slot].astype(np.int32),
            time=np.full(count, self.steps, np.int32),
            earlier=np.zeros(count),
            number=np.full(count, number, np.int64),
            log_prob=np.zeros(count, np.float32),
            action=np.zeros((count, *blank.action.shape[1:]), blank.action.dtype),
            mask=None if seen.mask is None else np.asarray(seen.mask)[slot],
            observation={leaf: np.asarray(x)[slot] for leaf, x in seen.observation.items()},
        )
        return Turns.join([self.held[policy], steps, edges])

    def _blank_carry(self) -> Any:
        blank = jnp.zeros((self.slots, len(self.seats)))
        begun = (*self._reset(jax.random.key(0)), blank.astype(jnp.int32))
        return (*begun, blank.astype(bool), blank.astype(jnp.float32))

    def save(self) -> Arrays:
        state = {f"carry/{n}": a for n, a in save_tree(self._carry).items()}  # none before it began
        state["key"] = np.asarray(jax.random.key_data(self._key))
        state |= {f"lineup/{n}": a for n, a in self.lineup.save().items()}
        state |= {f"book/{n}": a for n, a in self.book.save().items()}
        for policy, held in self.held.items():
            state |= {f"held/{policy}/{n}": a for n, a in held.arrays().items()}
        return state

    def restore(self, state: Arrays) -> None:
        self.lineup.restore(_under(state, "lineup/"))
        if len(self._players.members) != len(self.lineup.members):
            self._compile()
        saved = _under(state, "carry/")
        self._carry = load_tree(self._blank_carry(), saved) if saved else None
        self._key = jax.random.wrap_key_data(jnp.asarray(state["key"]))
        self.book.restore(_under(state, "book/"))
        for policy in self.held:
            self.held[policy] = Turns.from_arrays(_under(state, f"held/{policy}/"))


class _Players:
    """The members' decisions as one function of who sits where."""

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

    def act(self, arrays: Any, frozen: Any, who: Any, seen: Any, key: Any) -> tuple[Any, Any]:
        """(slots,) actions and log-probabilities, each of the member that is to act there."""
        action: Any = None
        log_prob: Any = None
        number = 0
        while number < len(self.members):
            member = self.members[number]
            player: Any = member.player
            key, own = jax.random.split(key)
            if member.text.startswith("league:"):
                count = sum(m.text == member.text for m in self.members)

                chosen = self._league(player, frozen[member.text], count, who - number, seen, own)
                mine = (who >= number) & (who < number + count)
            else:
                count = 1
                weights = arrays[member.policy] if member.policy else member.arrays
                found = player.act(weights, seen.observation, seen.mask, {}, own)
                chosen, mine = [found.to_environment, found.log_prob], who == number
            if action is None:
                action, log_prob = chosen
            else:
                action = jnp.where(mine, chosen[0], action)
                log_prob = jnp.where(mine, chosen[1], log_prob)
            number += count
        return action, log_prob

    def _league(
        self, player: Any, weights: Any, count: int, place: Any, seen: Any, key: Any
    ) -> list[Any]:
        """What the snapshot in each slot's place decides, asking only those of the slot's block."""
        blocks, each = self.blocks, count // self.blocks

        def apart(x: Any) -> Any:  # (slots, ...) -> (blocks, slots of it, ...)
            return x.reshape(-1, blocks, *x.shape[1:]).swapaxes(0, 1)

        def play(weights: Any, observation: Any, mask: Any, key: Any) -> Any:
            found = player.act(weights, observation, mask, {}, key)
            return found.to_environment, found.log_prob

        seen_apart = jax.tree.map(apart, (seen.observation, seen.mask))
        weights = jax.tree.map(lambda x: x.reshape(blocks, each, *x.shape[1:]), weights)
        keys = jax.random.split(key, (blocks, each))
        of_block: Any = jax.vmap(play, in_axes=(0, None, None, 0))
        all_blocks: Any = jax.vmap(of_block)
        every = all_blocks(weights, *seen_apart, keys)  # (blocks, each, slots of it)
        own = apart(place % each)  # where the place is this league's
        chosen = [jnp.take_along_axis(x, own[:, None], axis=1)[:, 0] for x in every]
        return [x.swapaxes(0, 1).reshape(-1) for x in chosen]


def _under(state: Arrays, prefix: str) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
