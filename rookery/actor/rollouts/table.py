"""The slots of an environment with players in their seats, stepped from Python.

Players that answer at once decide for all their slots together; one that answers later holds up
only its own slot, which stays as it is while the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rookery.actor.deciders import Deciders
from rookery.actor.episodes import GameBook
from rookery.actor.lineup import Lineup
from rookery.actor.player_states import PlayerStates
from rookery.actor.rollouts.questions import At, Questions
from rookery.envs import BatchedEnvironment, SeatView
from rookery.errors import MaskError
from rookery.messages.frame import Arrays
from rookery.players import PlayerAnswer
from rookery.players.actions import blank_actions
from rookery.spaces import SeatSpec


class RecordedSeats(NamedTuple):
    """Seats whose turns become a policy's rows although others hold them, as demonstrations."""

    seats: tuple[int, ...]
    stored: Callable[[np.ndarray], np.ndarray] = lambda action: action  # as the policy stores them


class Decided(NamedTuple):
    """Turns of one policy in one step; arrays lead with them."""

    rows: np.ndarray  # (turns, 2): slot and seat, sorted by seat
    observation: Arrays
    mask: np.ndarray | None
    action: np.ndarray  # as it is stored
    log_prob: np.ndarray
    player: np.ndarray  # which kind decided
    state: Arrays  # the policy's, before it decided


class Table:
    """The slots of an environment with the players in their seats; `step` moves all that can."""

    def __init__(
        self,
        env: BatchedEnvironment,
        lineup: Lineup,
        rng: np.random.Generator,
        seed: int,
        busy: Callable[[str], None] = lambda doing: None,
        name: str = "table",
        record: Mapping[str, RecordedSeats] | None = None,
    ) -> None:
        """`name` makes the ids of its games differ from those of the run's other tables."""
        self.env, self.lineup, self.seats = env, lineup, tuple(env.spec.seats)
        self.specs = tuple(env.spec.seats.values())
        self.book = GameBook(self.seats, env.slots, lineup.members)
        self.rng, self._busy, self.record = rng, busy, dict(record or {})
        self.deciders = Deciders()
        self.states = PlayerStates(lineup.members, env.slots, len(self.seats))
        self._questions = Questions(env.spec, env.slots, lineup.members, name)
        self._seed = seed
        self.sitting = np.zeros((0, len(self.seats)), np.int32)  # nobody yet

    def begin(self) -> None:
        """The first episodes, once there are players to be seated."""
        if not len(self.sitting):
            self.restart(self._seed)

    def restart(self, seed: int) -> None:
        """New episodes in every slot."""
        self._questions.break_off("restarted", self.book)
        self._busy("reset")
        self.views: dict[str, SeatView] = self.env.reset(seed)
        self._busy("")
        shape = (self.env.slots, len(self.seats))
        self.sit(self.lineup.seat(np.arange(self.env.slots)))
        self.lineup.began(self.sitting)
        self.acted = np.zeros(shape, np.bool_)  # in this episode
        self.unclaimed = np.zeros(shape)  # reward before the first turn of the episode
        self.book.clear(slice(None))
        self.states.restart(slice(None))

    def held_by(self, policy: str, sitting: np.ndarray) -> np.ndarray:
        """(slots, seats): whose turns become rows of this policy."""
        mine = np.array([member.policy == policy for member in self.lineup.members])
        held: np.ndarray = mine[sitting]
        if policy in self.record:
            held[:, list(self.record[policy].seats)] = True
        return held

    def sit(self, sitting: np.ndarray) -> None:
        """(slots, seats) members for the games that are on."""
        self.sitting = sitting
        self._questions.begin(np.arange(self.env.slots), sitting)

    @property
    def turn(self) -> np.ndarray:
        """(slots, seats): who is to act."""
        return np.stack([_turn(self.views[seat]) for seat in self.seats], axis=1)

    def step(self, weights: Mapping[str, Arrays]) -> Moved:
        """Ask whoever is to act, and move every slot that has its answers."""
        turn = self.turn
        self._check_masks(turn)
        waiting = self._questions.ask(self.env, self.views, turn)
        moved = Moved.begin(self.specs, turn & ~waiting[:, None])
        for member, rows in self._groups(moved.turn):
            self._decide(member, rows, weights, moved)
        answers = self._questions.take(waiting)
        for (slot, seat), answer in answers.items():
            moved.actions[seat][slot] = answer.action
            self.book.missed[slot, seat] += answer.decided_by == "fallback"
            self.book.resigned[slot, seat] |= answer.resigned
        self._questions.note(self.env, moved)
        for policy, recorded in self.record.items():
            self._record(policy, recorded, moved, answers)
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
        state = self.states.take(number, rows)
        decision = player.act(arrays, observation, mask, state, self.rng)
        self.states.put(number, rows, decision.state)
        for seat in np.unique(rows[:, 1]).tolist():
            at = rows[:, 1] == seat
            moved.actions[seat][rows[at, 0]] = decision.to_environment[at]
        if member.policy:
            kinds, log_prob = self.deciders.told(decision, len(rows))
            moved.decided.setdefault(member.policy, []).append(
                Decided(rows, observation, mask, decision.action, log_prob, kinds, state)
            )

    def _record(
        self,
        policy: str,
        recorded: RecordedSeats,
        moved: Moved,
        answers: Mapping[At, PlayerAnswer],
    ) -> None:
        """The turns that others took in a policy's stead."""
        others = np.array([member.policy != policy for member in self.lineup.members])
        wanted = np.zeros(len(self.seats), np.bool_)
        wanted[list(recorded.seats)] = True
        rows = np.argwhere((moved.turn & wanted & others[self.sitting]).T)[:, ::-1]
        if not len(rows):
            return
        kinds = [self._kind(slot, seat, answers) for slot, seat in rows.tolist()]
        observation, mask = self.seen(rows)
        action = np.stack([moved.actions[seat][slot] for slot, seat in rows.tolist()])
        unknown = np.full(len(rows), np.nan, np.float32)
        numbers = np.array([self.deciders.number(kind) for kind in kinds], np.uint8)
        moved.decided.setdefault(policy, []).append(
            Decided(rows, observation, mask, recorded.stored(action), unknown, numbers, {})
        )

    def _kind(self, slot: int, seat: int, answers: Mapping[At, PlayerAnswer]) -> str:
        """Who really decided: the member's own kind, or what did in its stead."""
        answer = answers.get((slot, seat))
        if answer is not None and answer.decided_by != "player":
            return answer.decided_by
        return self.lineup.members[int(self.sitting[slot, seat])].player.kind

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

    def _settle(self, moved: Moved, waiting: np.ndarray) -> None:
        """Rewards, ends and new episodes."""
        views = [self.views[seat] for seat in self.seats]
        moved.see(views)
        moved.earlier = np.where(self.acted, 0.0, self.unclaimed)
        self.acted |= moved.turn
        self.unclaimed += np.where(self.acted, 0.0, moved.reward)
        moved.acted, moved.sitting = self.acted.copy(), self.sitting
        self._questions.settle(moved, self.book)
        self.book.note(moved.reward, ~waiting & ~moved.reset, moved.reset, self.sitting)
        fresh = np.flatnonzero(moved.reset)
        if len(fresh):
            self.sitting = self.sitting.copy()
            self.sitting[fresh] = self.lineup.seat(fresh)
            self.lineup.began(self.sitting[fresh])
            self._questions.begin(fresh, self.sitting[fresh])
            self.acted[fresh], self.unclaimed[fresh] = False, 0.0
            self.states.restart(fresh)

    def close(self) -> None:
        """Break off its games; deferred players are told, and remain the lineup's."""
        self._questions.break_off("closed", self.book)

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


def _turn(view: SeatView) -> np.ndarray:
    """Where a seat is to act; one that always is decides nothing where it only begins anew."""
    return ~(view.terminated | view.truncated) if view.turn is None else view.turn


class Moved:
    """What one step of a table did; arrays lead with (slots, seats)."""

    turn: np.ndarray  # who acted
    actions: list[np.ndarray]  # per seat, as the environment takes them
    decided: dict[str, list[Decided]]  # by policy
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final: np.ndarray  # truncated, and what it saw last is shown
    reset: np.ndarray  # (slots,)
    earlier: np.ndarray  # reward of the episode before a seat's first turn
    acted: np.ndarray  # at any time in the episode
    sitting: np.ndarray  # who sat there in this step

    @classmethod
    def begin(cls, specs: Iterable[SeatSpec], turn: np.ndarray) -> Moved:
        moved = cls()
        moved.turn, moved.decided = turn, {}
        moved.actions = [blank_actions(spec, len(turn)) for spec in specs]
        return moved

    def see(self, views: Sequence[SeatView]) -> None:
        """What the environment gave for it, by seat."""
        self.reward = np.stack([view.reward for view in views], axis=1)
        self.terminated = np.stack([view.terminated for view in views], axis=1)
        self.truncated = np.stack([view.truncated for view in views], axis=1)
        shown = [v.truncated if v.final is None else v.truncated & v.final for v in views]
        self.final = np.stack(shown, axis=1)
        self.reset = views[0].reset
