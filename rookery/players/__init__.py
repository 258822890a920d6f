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

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol


class Decision(NamedTuple):
    """What a player decided, for every lane."""

    action: Any  # as it is stored: before squashing or clipping
    to_environment: Any  # as the environment takes it
    log_prob: Any  # of `action`; NaN where the player can't tell
    state: Any  # for its next step


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


class Question(NamedTuple):
    """What a late player is asked: one seat of one slot."""

    seat: str
    observation: dict[str, Any]  # leaf path -> array of this slot alone
    mask: Any  # (actions,) bool, or None
    position: str | None = None  # the game's own notation (chess: FEN), where it has one


class PlayerAnswer(NamedTuple):
    """What came back, in the environment's counting from 0."""

    action: int
    missed: bool = False  # the deadline passed or the player broke: its fallback chose
    resigned: bool = False  # it gave the game up; the action only lets the game end


class DeferredPlayer(Protocol):
    """Answers later; one slot at a time."""

    @property
    def kind(self) -> str: ...

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        """Never raises; a Future that fails ends the game's run with its error."""
        ...

    def close(self) -> None: ...
