"""Kinds of players as anybody could add them: this file, and a line for each in `kinds.KINDS`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rookery.players import Decision, GameOver, PlayerAnswer, Question
from rookery.players.kinds import PlayerKind, Wanted
from rookery.players.member import Member
from rookery.players.options import whole


@dataclass(frozen=True)
class ToyPlayer:
    """The legal action with the highest number, or one of those below it."""

    below: int
    kind: str = "toy"

    def initial_state(self, lanes: int) -> dict[str, Any]:
        return {}

    def act(
        self,
        params: Mapping[str, Any],
        observation: dict[str, Any],
        mask: Any,
        state: dict[str, Any],
        key: Any,
    ) -> Decision:
        action = np.array([np.flatnonzero(row)[-1 - self.below :][0] for row in mask], np.int32)
        return Decision(action, action, np.zeros(len(mask), np.float32), state)


def _make(wanted: Wanted) -> Member:
    return wanted.member(ToyPlayer(wanted.options["below"]))


TOY = PlayerKind(
    "toy:box?below=1",
    "the highest legal action",
    _make,
    (whole("below", "0", "how many of the highest are left out", 0, 3),),
    form="write toy:NAME",
)


@dataclass
class AskedPlayer:
    """Deferred: the first legal action, and a memory of all that it was asked and told."""

    kind: str = "asked"
    asked: list[Question] = field(default_factory=list)
    told: list[GameOver] = field(default_factory=list)

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        self.asked.append(question)
        future: Future[PlayerAnswer] = Future()
        future.set_result(PlayerAnswer(np.flatnonzero(question.mask)[0]))
        return future

    def game_over(self, over: GameOver) -> None:
        self.told.append(over)

    def close(self) -> None:
        pass


made: list[AskedPlayer] = []


def _make_asked(wanted: Wanted) -> Member:
    made.append(AskedPlayer())
    return wanted.member(made[-1])


ASKED = PlayerKind("asked:me", "a deferred toy", _make_asked, outside="nothing")
