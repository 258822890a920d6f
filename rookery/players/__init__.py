"""Players decide for a seat.

A player that can be is a pure function:

    decision = player.act(params, observation, mask, state, key)

`params` are the weights it plays with, `observation` the seat's raw leaves led by the lane axis,
`mask` the legal actions or None, `state` what it carried from the last step (empty for an MLP) and
`key` its randomness: a numpy Generator when it plays step by step, a JAX key when it is compiled.
A player that can't answer at once (an engine, a language model, a person) is a `DeferredPlayer`:
it is asked, and its slot waits while the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

MAX_THOUGHT = 4_000  # characters


class Decision(NamedTuple):
    """What a player decided, for every lane."""

    action: Any  # as it is stored: before squashing or clipping
    to_environment: Any  # as the environment takes it
    log_prob: Any  # of `action`; NaN where the player can't tell
    state: Any  # for its next step
    deciders: Sequence[str] | None = None  # by lane: the kind that decided instead; "": itself


class Player(Protocol):
    """Answers at once."""

    @property
    def kind(self) -> str:
        """The glossary's word: policy, snapshot, script ..."""
        ...

    def initial_state(self, lanes: int) -> dict[str, Any]: ...

    def act(
        self,
        params: Mapping[str, Any],
        observation: dict[str, Any],
        mask: Any,
        state: dict[str, Any],
        key: Any,
    ) -> Decision: ...


class SeatMove(NamedTuple):
    """What was done in a seat."""

    seat: str
    action: Any  # an array of the seat's action space
    name: str = ""  # where the environment's actions have names


class Question(NamedTuple):
    """What a deferred player is asked: one seat of one slot."""

    game: str  # an id within the run; the next episode of the slot has another
    move: int  # of this seat in this game, from 0
    seat: str
    observation: dict[str, Any]  # leaf path -> array of this slot alone
    mask: Any  # (actions,) bool, or None
    position: str | None = None  # the game's own notation (chess: FEN), where it has one
    legal: Mapping[int, str] = {}  # legal action -> its name, where the environment has names
    since: tuple[SeatMove, ...] = ()  # all moves since the last question, this seat's own first:
    # if its fallback chose that, the player learns it here
    reward: float = 0.0  # that came to this seat since its last question


class Cost(NamedTuple):
    """What an answer took."""

    tokens: int = 0
    money: float = 0.0  # in whatever its provider bills
    milliseconds: float = 0.0


FREE = Cost()
Decider = Literal["player", "fallback", "stand-in"]


@dataclass(frozen=True)
class PlayerAnswer:
    """What came back."""

    action: Any  # an array of the seat's action space; whole numbers count from 0
    cost: Cost = FREE
    thought: str = ""  # untrusted text, cut to MAX_THOUGHT
    decided_by: Decider = "player"
    resigned: bool = False  # it gave the game up; the action only lets the game end

    def __post_init__(self) -> None:
        object.__setattr__(self, "thought", self.thought[:MAX_THOUGHT])


Ending = Literal["terminated", "truncated", "restarted", "closed"]


class GameOver(NamedTuple):
    """A game that goes no further."""

    game: str  # as in its questions
    seats: tuple[str, ...]  # that the player had been asked for
    totals: Mapping[str, float]  # every seat's rewards
    how: Ending  # restarted and closed: it was broken off
    resigned: tuple[str, ...] = ()  # seats that gave up, and so have lost whatever the totals


class DeferredPlayer(Protocol):
    """Answers later; it may have hundreds of questions at a time, of a seat at most one."""

    @property
    def kind(self) -> str: ...

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        """Never raises; a Future that fails ends the game's run with its error.

        One whose game was broken off is cancelled (`set_running_or_notify_cancel` says so); an
        answer that comes all the same is dropped.
        """
        ...

    def game_over(self, over: GameOver) -> None:
        """Once for each game that it was asked in. Called by the thread that plays, so be quick;
        what it raises is logged and goes no further."""
        ...

    def close(self) -> None: ...
