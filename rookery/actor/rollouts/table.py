"""The slots of an environment with players in their seats, stepped from Python.

Players that answer at once decide for all their slots together; one that answers later holds up
only its own slot, which stays as it is while the others go on.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import numpy as np

from rookery.actor.episodes import GameBook
from rookery.actor.lineup import Lineup
from rookery.envs import BatchedEnvironment, SeatView
from rookery.errors import MaskError
from rookery.messages.frame import Arrays
from rookery.players import PlayerAnswer, Question
from rookery.spaces import Continuous, MultiCategorical, SeatSpec

ALL_WAIT_S = 0.5  # how long to sleep at most when every slot waits for a late player


class Table:
    """The slots of an environment with the players in their seats; `step` moves all that can."""

    def __init__(
        self,
        env: BatchedEnvironment,
        lineup: Lineup,
        rng: np.random.Generator,
        seed: int,
        busy: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self.env, self.lineup, self.seats = env, lineup, tuple(env.spec.seats)
        self.specs = tuple(env.spec.seats.values())
        self.book = GameBook(self.seats, env.slots, lineup.members)
        self.rng, self._busy = rng, busy
        self._asked: dict[tuple[int, int], Future[PlayerAnswer]] = {}
        self._seed = seed
        self.sitting = np.zeros((0, len(self.seats)), np.int32)  # nobody yet

    def begin(self) -> None:
        """The first episodes, once there are players to be seated."""
        if not len(self.sitting):
            self.restart(self._seed)

    def restart(self, seed: int) -> None:
        """New episodes in every slot."""
        self._asked = {}  # what comes back for the old ones is for nobody
        self._busy("reset")
        self.views: dict[str, SeatView] = self.env.reset(seed)
        self._busy("")
        shape = (self.env.slots, len(self.seats))
        self.sitting = self.lineup.seat(np.arange(self.env.slots))
        self.lineup.began(self.sitting)
        self.acted = np.zeros(shape, np.bool_)  # in this episode
        self.unclaimed = np.zeros(shape)  # reward before the first turn of the episode
        self.book.clear(slice(None))

    @property
    def turn(self) -> np.ndarray:
        """(slots, seats): who is to act."""
        turns = [self.views[seat].turn for seat in self.seats]
        everyone = np.ones(self.env.slots, np.bool_)
        return np.stack([everyone if t is None else t for t in turns], axis=1)

    def step(self, weights: Mapping[str, Arrays]) -> Moved:
        """Ask whoever is to act, and move every slot that has its answers."""
        turn = self.turn
        self._check_masks(turn)
        late = self._late_answers(turn)
        waiting = np.zeros(self.env.slots, np.bool_)
        for slot, seat in self._asked:
            if (slot, seat) not in late:
                waiting[slot] = True
        if waiting.all():
            self._sleep()
        moved = Moved.begin(self, turn & ~waiting[:, None])
        for member, rows in self._groups(moved.turn):
            self._decide(member, rows, weights, moved)
        for (slot, seat), answer in late.items():
            if not waiting[slot]:
                moved.actions[seat][slot] = answer.action
                self.book.missed[slot, seat] += answer.missed
                self.book.resigned[slot, seat] |= answer.resigned
                del self._asked[slot, seat]
        self._busy("step")
        advance = ~waiting if waiting.any() else None
        actions = dict(zip(self.seats, moved.actions, strict=True))
        self.views = self.env.step(actions) if advance is None else self.env.step(actions, advance)
        self._busy("")
        self._settle(moved, waiting)
        return moved

    def _groups(self, turn: np.ndarray) -> list[tuple[int, np.ndarray]]:
        """For each member that answers at once, the (slot, seat) rows where it is to act."""
        rows = np.argwhere(turn)
        who = self.sitting[rows[:, 0], rows[:, 1]]
        order = np.lexsort((rows[:, 0], rows[:, 1], who))
        rows, who = rows[order], who[order]
        cuts = np.flatnonzero(np.diff(who)) + 1
        parts = np.split(rows, cuts) if len(rows) else []
        groups = [(int(self.sitting[p[0, 0], p[0, 1]]), p) for p in parts]
        return [(m, rows) for m, rows in groups if not self.lineup.members[m].deferred]

    def _decide(
        self, number: int, rows: np.ndarray, weights: Mapping[str, Arrays], moved: Moved
    ) -> None:
        member = self.lineup.members[number]
        observation, mask = self.seen(rows)
        arrays = weights[member.policy] if member.policy else member.arrays
        player: Any = member.player
        decision = player.act(arrays, observation, mask, {}, self.rng)
        for seat in np.unique(rows[:, 1]).tolist():
            at = rows[:, 1] == seat
            moved.actions[seat][rows[at, 0]] = decision.to_environment[at]
        if member.policy:
            moved.decided[member.policy] = (rows, observation, mask, decision)

    def seen(self, rows: np.ndarray) -> tuple[Arrays, np.ndarray | None]:
        """What these (slot, seat) rows, sorted by seat, see."""
        parts = [
            (self.views[self.seats[seat]], rows[rows[:, 1] == seat, 0])
            for seat in np.unique(rows[:, 1]).tolist()
        ]
        leaves = parts[0][0].observation
        if len(parts) == 1:
            view, slots = parts[0]
            mask = None if view.mask is None else view.mask[slots]
            return {leaf: x[slots] for leaf, x in leaves.items()}, mask
        observation = {
            leaf: np.concatenate([view.observation[leaf][slots] for view, slots in parts])
            for leaf in leaves
        }
        masks = [view.mask[slots] for view, slots in parts if view.mask is not None]
        return observation, np.concatenate(masks) if masks else None

    def _late_answers(self, turn: np.ndarray) -> dict[tuple[int, int], PlayerAnswer]:
        """Ask the late players that have not been asked; return the answers that are there."""
        if not any(member.deferred for member in self.lineup.members):
            return {}
        for slot, seat in np.argwhere(turn).tolist():
            member = self.lineup.members[int(self.sitting[slot, seat])]
            if member.deferred and (slot, seat) not in self._asked:
                view = self.views[self.seats[seat]]
                question = Question(
                    self.seats[seat],
                    {leaf: x[slot] for leaf, x in view.observation.items()},
                    None if view.mask is None else view.mask[slot],
                    self.env.position(slot) if hasattr(self.env, "position") else None,
                )
                player: Any = member.player
                self._asked[slot, seat] = player.ask(question)
        return {at: future.result() for at, future in self._asked.items() if future.done()}

    def _sleep(self) -> None:
        waited = list(self._asked.values())
        concurrent.futures.wait(waited, ALL_WAIT_S, return_when=concurrent.futures.FIRST_COMPLETED)

    def _settle(self, moved: Moved, waiting: np.ndarray) -> None:
        """Rewards, ends and new episodes."""
        views = [self.views[seat] for seat in self.seats]
        moved.reward = np.stack([v.reward for v in views], axis=1)
        moved.terminated = np.stack([v.terminated for v in views], axis=1)
        moved.truncated = np.stack([v.truncated for v in views], axis=1)
        moved.reset = views[0].reset
        moved.earlier = np.where(self.acted, 0.0, self.unclaimed)
        self.acted |= moved.turn
        self.unclaimed += np.where(self.acted, 0.0, moved.reward)
        moved.acted, moved.sitting = self.acted.copy(), self.sitting
        self.book.note(moved.reward, ~waiting & ~moved.reset, moved.reset, self.sitting)
        fresh = np.flatnonzero(moved.reset)
        if len(fresh):
            self.sitting = self.sitting.copy()
            self.sitting[fresh] = self.lineup.seat(fresh)
            self.lineup.began(self.sitting[fresh])
            self.acted[fresh], self.unclaimed[fresh] = False, 0.0

    def _check_masks(self, turn: np.ndarray) -> None:
        for number, seat in enumerate(self.seats):
            mask = self.views[seat].mask
            if mask is None:
                continue
            stuck = turn[:, number] & ~mask.any(-1)
            if stuck.any():
                slot = int(np.flatnonzero(stuck)[0])
                raise MaskError(
                    f"seat {seat!r} of slot {slot} was offered no legal action: its action mask "
                    "is all false"
                )


class Moved:
    """What one step of a table did; arrays lead with (slots, seats)."""

    turn: np.ndarray  # who acted
    actions: list[np.ndarray]  # per seat, as the environment takes them
    decided: dict[str, tuple[np.ndarray, Arrays, np.ndarray | None, Any]]  # by policy
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    reset: np.ndarray  # (slots,)
    earlier: np.ndarray  # reward of the episode before a seat's first turn
    acted: np.ndarray  # at any time in the episode
    sitting: np.ndarray  # who sat there in this step

    @classmethod
    def begin(cls, table: Table, turn: np.ndarray) -> Moved:
        moved = cls()
        moved.turn, moved.decided = turn, {}
        moved.actions = [blank_actions(spec, table.env.slots) for spec in table.specs]
        return moved


def blank_actions(spec: SeatSpec, slots: int) -> np.ndarray:
    if isinstance(spec.action, Continuous):
        return np.zeros((slots, *spec.action.shape), spec.action.dtype)
    if isinstance(spec.action, MultiCategorical):
        return np.zeros((slots, len(spec.action.sizes)), np.int32)
    return np.zeros(slots, np.int32)
