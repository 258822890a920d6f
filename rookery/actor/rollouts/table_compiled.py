"""A rollout at tables with several seats as one compiled call: every player is a JAX function.

Who sits where in the episodes to come is drawn outside, as for any other table, and handed in; the
turns that come out are packed by the same function too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rookery.actor.deciders import Deciders
from rookery.actor.episodes import GameBook
from rookery.actor.held import HeldSteps
from rookery.actor.lineup import ROUND_STEPS as ROUND_STEPS
from rookery.actor.lineup import Lineup
from rookery.actor.loop import Admitted, Played
from rookery.actor.packing import EDGE, FINAL, STEP, Outcomes, Turns, pack
from rookery.actor.player_states import choose
from rookery.actor.rollouts.compiled import load_tree, save_tree
from rookery.actor.rollouts.compiled_players import CompiledPlayers
from rookery.actor.saved import LINEUP, prefixed, under
from rookery.envs import CompiledEnvironment
from rookery.messages.frame import Arrays
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
        record: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.env, self.lineup, self.layouts, self.slots = env, lineup, dict(layouts), slots
        self._record = dict(record or {})  # policy -> seats that become its rows whoever holds them
        self._deciders = Deciders()
        self.seats = tuple(env.spec.seats)
        self.steps = steps
        self.held = HeldSteps(blank)
        self.book = GameBook(self.seats, slots, lineup.members)
        self._seed = seed
        self._carry: Any = None  # (state, seen, sitting, acted, unclaimed, states)
        self._key = jax.random.key(seed)
        self._reset = jax.jit(self._reset_slots)
        self._stacked: tuple[int, Any] = (-1, None)
        self._compile()

    def _compile(self) -> None:
        self._players = CompiledPlayers(self.lineup.members, self.lineup.blocks)
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
            self._players.initial_states(*shape),
        )
        self.held.drop()
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
        everyone = np.ones(len(self.seats), np.bool_)
        flags = (rows[name][:, :, None] & everyone for name in ("terminated", "truncated"))
        outcomes = Outcomes(rows["reward"], *flags)
        self.held.go_on(admitted.version)
        number = admitted.version.number
        games, episodes = self.book.take()
        steps = {}
        for policy, layout in self.layouts.items():
            turns = self._turns(policy, rows, seen, number)
            steps[policy], self.held[policy] = pack(turns, outcomes, layout, number)
        return Played(steps, episodes, games, self._deciders.names)

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
        first_states = self._players.initial_states(self.slots, len(self.seats))

        def one(carry: Any, key: Any) -> tuple[Any, Any]:
            (state, seen, sitting, acted, unclaimed, states), episode = carry
            act_key, step_key = jax.random.split(key)
            playing = ~(seen.terminated | seen.truncated)
            who = sitting[slots, seen.seat]
            own = jax.tree.map(lambda x: x[slots, seen.seat], states)
            action, log_prob, after = self._players.act(arrays, frozen, who, seen, own, act_key)
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
                "terminated": step.terminated,
                "truncated": step.truncated & ~step.terminated,
                "reset": step.reset,
                "acted": acted,
                "sitting": sitting,
                "states": own,
            }
            states = jax.tree.map(lambda x, y: x.at[slots, seen.seat].set(y), states, after)
            states = jax.tree.map(
                lambda new, old: choose(jnp, step.reset, new, old), first_states, states
            )
            fresh = step.reset[:, None]
            sitting = jnp.where(fresh, coming[slots, episode], sitting)
            acted, unclaimed = acted & ~fresh, jnp.where(fresh, 0.0, unclaimed)
            carry = (state, step, sitting, acted, unclaimed, states)
            return (carry, episode + step.reset), row

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
        recorded = np.isin(np.arange(len(self.seats)), self._record.get(policy, ()))
        mine = (rows["who"] == member) | recorded[rows["seat"]]
        time, slot = np.nonzero(rows["playing"] & mine)
        who = rows["who"][time, slot]
        text = self._players.members[member].text
        steps = Turns(
            kind=np.full(len(time), STEP, np.int8),
            slot=slot.astype(np.int32),
            seat=rows["seat"][time, slot].astype(np.int32),
            time=time.astype(np.int32),
            earlier=rows["earlier"][time, slot].astype(np.float64),
            number=np.full(len(time), number, np.int64),
            log_prob=np.where(who == member, rows["log_prob"][time, slot], np.float32(np.nan)),
            action=rows["action"][time, slot],
            mask=None if rows["mask"] is None else rows["mask"][time, slot],
            observation={leaf: x[time, slot] for leaf, x in rows["observation"].items()},
            player=self._kinds()[who],
            state={leaf: x[time, slot] for leaf, x in rows["states"][text].items()},
        )
        slot = np.flatnonzero(~(seen.terminated | seen.truncated))
        seat = np.asarray(seen.seat)[slot]
        mine = (np.asarray(self._carry[2])[slot, seat] == member) | recorded[seat]
        slot, seat = slot[mine], seat[mine]
        edges = self._shown(policy, EDGE, rows, seen, np.full(len(slot), self.steps), slot, seat)
        time, slot = np.nonzero(rows["truncated"])
        seat = self._seen_at(rows["seat"], seen.seat, time + 1, slot)
        mine = (rows["sitting"][time, slot, seat] == member) | recorded[seat]
        mine &= rows["acted"][time, slot, seat]
        time, slot, seat = time[mine], slot[mine], seat[mine]
        finals = self._shown(policy, FINAL, rows, seen, time + 1, slot, seat)
        return Turns.join([self.held[policy], steps, edges, finals])

    def _shown(
        self,
        policy: str,
        kind: int,
        rows: Any,
        seen: Any,
        moment: np.ndarray,
        slot: np.ndarray,
        seat: np.ndarray,
    ) -> Turns:
        """Turns that only show what the seat to move saw at these moments."""
        mask = None
        if seen.mask is not None:
            mask = self._seen_at(rows["mask"], seen.mask, moment, slot)
        return replace(
            self.held.blank[policy].zeros(len(slot)),
            kind=np.full(len(slot), kind, np.int8),
            slot=slot.astype(np.int32),
            seat=seat.astype(np.int32),
            time=(moment - (kind == FINAL)).astype(np.int32),
            mask=mask,
            observation={
                leaf: self._seen_at(x, seen.observation[leaf], moment, slot)
                for leaf, x in rows["observation"].items()
            },
        )

    def _seen_at(self, rows: Any, after: Any, moment: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """Rows of these moments; that after the last step is in `after`."""
        found: np.ndarray = rows[np.minimum(moment, self.steps - 1), slot]
        last = moment == self.steps
        found[last] = np.asarray(after)[slot[last]]
        return found

    def _kinds(self) -> np.ndarray:
        """By member: the number of its kind, as far as rows are kept of it."""
        if not self._record:
            return np.zeros(len(self._players.members), np.uint8)
        kinds = [self._deciders.number(m.player.kind) for m in self._players.members]
        return np.array(kinds, np.uint8)

    def _blank_carry(self) -> Any:
        blank = jnp.zeros((self.slots, len(self.seats)))
        begun = (*self._reset(jax.random.key(0)), blank.astype(jnp.int32))
        states = self._players.initial_states(*blank.shape)
        return (*begun, blank.astype(bool), blank.astype(jnp.float32), states)

    def save(self) -> Arrays:
        state = prefixed("carry/", save_tree(self._carry))  # none before it began
        state["key"] = np.asarray(jax.random.key_data(self._key))
        state |= prefixed(LINEUP, self.lineup.save()) | prefixed("book/", self.book.save())
        state |= self._deciders.save()
        return state | self.held.save()

    def restore(self, state: Arrays) -> None:
        self.lineup.restore(under(state, LINEUP))
        if len(self._players.members) != len(self.lineup.members):
            self._compile()
        saved = under(state, "carry/")
        self._carry = load_tree(self._blank_carry(), saved) if saved else None
        self._key = jax.random.wrap_key_data(jnp.asarray(state["key"]))
        self.book.restore(under(state, "book/"))
        self._deciders.restore(state)
        self.held.restore(state)
