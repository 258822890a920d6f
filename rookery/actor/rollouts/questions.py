"""What the deferred players at a table are asked, and what came back.

    waiting = questions.ask(env, views, turn)   # slots that are short of an answer
    answers = questions.take(waiting)           # those of the slots that move now
    questions.note(env, moved)                  # before the step: what is done
    questions.settle(moved, book)               # after it: rewards, and games that are over

Futures put themselves into a queue when they are done, so that hundreds of open questions cost
nothing until one is answered. Where no deferred player sits, all of this is a look at one flag.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np

from rookery.actor.episodes import GameBook
from rookery.envs import BatchedEnvironment, SeatView
from rookery.players import Ending, GameOver, PlayerAnswer, Question, SeatMove
from rookery.players.action_names import action_name, legal_names
from rookery.players.member import Member
from rookery.spaces import Categorical, EnvironmentSpec

if TYPE_CHECKING:
    from rookery.actor.rollouts.table import Moved

ALL_WAIT_S = 0.5  # at most, while every slot waits: the loop looks whether it should stop

At = tuple[int, int]  # slot, seat

logger = logging.getLogger(__name__)


class Questions:
    """The open questions of a table; at most one for each seat of a slot."""

    def __init__(
        self, spec: EnvironmentSpec, slots: int, members: Sequence[Member], table: str
    ) -> None:
        self._spec, self._seats = spec, tuple(spec.seats)
        self._members, self._table = members, table
        shape = (slots, len(self._seats))
        self._sitting = np.zeros(shape, np.int32)
        self._deferred = np.zeros(shape, np.bool_)  # a deferred player sits there
        self._any = False
        self._asked = np.zeros(shape, np.bool_)  # for the move that is to be made now
        self._moves = np.zeros(shape, np.int64)
        self._rewards = np.zeros(shape)
        self._open = np.zeros(slots, np.int64)  # questions without an answer
        self._truncated = np.zeros(slots, np.bool_)
        self._episodes = np.zeros(slots, np.int64)
        self._futures: dict[At, Future[PlayerAnswer]] = {}
        self._answers: dict[At, PlayerAnswer] = {}
        self._since: dict[At, list[SeatMove]] = {}
        self._done: queue.SimpleQueue[tuple[At, Future[PlayerAnswer]]] = queue.SimpleQueue()

    def begin(self, slots: np.ndarray, sitting: np.ndarray) -> None:
        """New episodes in these slots, with whom in their seats."""
        deferred = np.array([member.deferred for member in self._members])
        if not self._any and not deferred.any():
            return
        self._sitting[slots], self._deferred[slots] = sitting, deferred[sitting]
        self._any = bool(self._deferred.any())
        self._asked[slots], self._moves[slots], self._rewards[slots] = False, 0, 0.0
        self._open[slots], self._truncated[slots] = 0, False
        self._episodes[slots] += 1
        for slot in slots.tolist():
            for seat in range(len(self._seats)):
                self._since[slot, seat] = []

    def ask(
        self, env: BatchedEnvironment, views: Mapping[str, SeatView], turn: np.ndarray
    ) -> np.ndarray:
        """Ask whoever has not been asked; (slots,): which wait for an answer."""
        if not self._any:
            return np.zeros(len(turn), np.bool_)
        for slot, seat in np.argwhere(turn & self._deferred & ~self._asked).tolist():
            self._ask(env, views[self._seats[seat]], slot, seat)
        self._collect(0.0)
        together = len(self._seats) == 1  # slots of one seat can't wait alone
        while (self._open > 0).all() or (together and self._open.any()):
            if not self._collect(ALL_WAIT_S) and not together:
                break
        return self._open > 0

    def _ask(self, env: BatchedEnvironment, view: SeatView, slot: int, seat: int) -> None:
        at, name = (slot, seat), self._seats[seat]
        mask = None if view.mask is None else view.mask[slot]
        position = _position(env, slot)
        counted = isinstance(self._spec.seats[name].action, Categorical)
        question = Question(
            self._game(slot),
            int(self._moves[at]),
            name,
            {leaf: x[slot] for leaf, x in view.observation.items()},
            mask,
            position,
            legal_names(self._spec.id, position, mask) if counted else {},
            tuple(self._since[at]),
            float(self._rewards[at]),
        )
        self._since[at], self._rewards[at], self._asked[at] = [], 0.0, True
        self._open[slot] += 1
        player: Any = self._members[int(self._sitting[at])].player
        self._futures[at] = future = player.ask(question)
        future.add_done_callback(lambda done: self._done.put((at, done)))

    def _collect(self, wait_s: float) -> bool:
        """Take in what was answered, waiting so long for the first; whether there was any."""
        found = False
        while True:
            try:
                at, future = self._done.get(timeout=0.0 if found else wait_s)
            except queue.Empty:
                return found
            if self._futures.get(at) is future:  # else its game is over
                del self._futures[at]
                self._answers[at] = future.result()
                self._open[at[0]] -= 1
                found = True

    def take(self, waiting: np.ndarray) -> dict[At, PlayerAnswer]:
        """The answers of all slots that don't wait."""
        found = {at: answer for at, answer in self._answers.items() if not waiting[at[0]]}
        for at in found:
            del self._answers[at]
            self._asked[at] = False
            self._moves[at] += 1
        return found

    def note(self, env: BatchedEnvironment, moved: Moved) -> None:
        """What is about to be done where deferred players sit, for their next questions."""
        if not self._any:
            return
        for slot, seat in np.argwhere(moved.turn & self._deferred.any(-1, keepdims=True)).tolist():
            action, name = moved.actions[seat][slot].copy(), ""
            if isinstance(self._spec.seats[self._seats[seat]].action, Categorical):
                name = action_name(self._spec.id, _position(env, slot), action)
            for other in np.flatnonzero(self._deferred[slot]).tolist():
                self._since[slot, other].append(SeatMove(self._seats[seat], action, name))

    def settle(self, moved: Moved, book: GameBook) -> None:
        """What the step gave; players are told of the games that it closed."""
        if not self._any:
            return
        for slot in np.flatnonzero(moved.reset & self._deferred.any(-1)).tolist():
            self._tell(slot, "truncated" if self._truncated[slot] else "terminated", book)
        self._rewards += moved.reward
        cut = self._truncated | moved.truncated.any(-1)
        self._truncated = cut & ~moved.terminated.any(-1)

    def break_off(self, how: Ending, book: GameBook) -> None:
        """No game goes on; what still comes back is for nobody."""
        if not self._any:
            return
        dropped, self._futures = self._futures, {}
        self._answers.clear()
        for future in dropped.values():
            future.cancel()
        for slot in np.flatnonzero(self._deferred.any(-1)).tolist():
            self._tell(slot, how, book)
        self._asked[:], self._moves[:], self._open[:] = False, 0, 0

    def _tell(self, slot: int, how: Ending, book: GameBook) -> None:
        """Each deferred player that was asked in the slot's game, once."""
        parts: dict[int, list[str]] = {}
        asked = self._deferred[slot] & (self._asked[slot] | (self._moves[slot] > 0))
        for seat in np.flatnonzero(asked).tolist():
            parts.setdefault(int(self._sitting[slot, seat]), []).append(self._seats[seat])
        totals = dict(zip(self._seats, book.totals[slot].tolist(), strict=True))
        resigned = tuple(self._seats[seat] for seat in np.flatnonzero(book.resigned[slot]))
        for number, seats in parts.items():
            over = GameOver(self._game(slot), tuple(seats), totals, how, resigned)
            player: Any = self._members[number].player
            try:
                player.game_over(over)
            except Exception as error:  # noqa: BLE001 others' code; the games go on
                text = self._members[number].text
                logger.warning("player %s failed at the end of a game: %r", text, error)

    def _game(self, slot: int) -> str:
        return f"{self._table}.{slot}.{self._episodes[slot]}"


def _position(env: BatchedEnvironment, slot: int) -> str | None:
    return env.position(slot) if hasattr(env, "position") else None
