"""Players decide for a seat.

A player that can be is a pure function:

    decision = player.act(params, observation, mask, state, key)

`params` are the weights it plays with, `observation` the seat's raw leaves led by the lane axis,
`mask` the legal actions or None, `state` what it carried from the last step (empty for an MLP) and
`key` its randomness: a numpy Generator when it plays step by step, a JAX key when it is compiled.
A player that can't answer at once (an engine, a language model, a person) is a `LatePlayer`: it is
asked, and its slot waits while the others go on.
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


class LatePlayer(Protocol):
    """Answers later; one lane at a time."""

    kind: str

    def ask(self, observation: dict[str, Any], mask: Any) -> Future[Any]: ...
