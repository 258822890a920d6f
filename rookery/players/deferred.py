"""Deferred players: thinkers in threads of their own, a deadline for each move, and a fallback.

    question -> queue -> a serving thread -> thinker.think(question, deadline_s) -> PlayerAnswer
                                             not in time or broken: the fallback decides

One player serves many slots. Each of its serving threads owns one thinker, which answers one
question at a time; the others wait in the queue. The deadline counts from when a thinker begins on
a question, so that a long queue isn't held against it. A thinker must come back by the deadline,
whatever its engine or function does: it is the thinker that kills the one and abandons the other.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from rookery.errors import MaskError, RookeryError
from rookery.players import GameOver, PlayerAnswer, Question
from rookery.players.actions import read_action
from rookery.players.kinds import Wanted
from rookery.players.options import choice, seconds, whole
from rookery.players.scripts.any_game import RandomPlayer

FALLBACKS = ("random", "resign", "stop")
OPTIONS = (
    seconds("deadline", "10", "how long a move may take"),
    choice("fallback", "random", "what plays when a move fails or comes too late", FALLBACKS),
    whole("pool", "1", "how many think at a time", 1, 64),
)
_CLOSE_S = 5.0  # how long `close` waits for its threads; they are daemons, so it need not

logger = logging.getLogger(__name__)
T = TypeVar("T")


class MoveFailed(RookeryError):
    """A deferred player gave no legal move in time."""


class Thinker(Protocol):
    """Finds one move at a time, in the thread that asks."""

    def think(self, question: Question, deadline_s: float) -> PlayerAnswer:
        """Its action is looked at later; MoveFailed where it finds none within the deadline."""
        ...

    def close(self) -> None:
        """From any thread: let go of everything, and make a `think` under way fail soon."""
        ...


class ThinkingPlayer:
    """A DeferredPlayer: a queue before some thinkers, with one deadline and one fallback.

    It is wanted with the `OPTIONS` of such players. Its thinkers keep nothing of a game.
    """

    def __init__(self, wanted: Wanted, thinkers: Sequence[Thinker]) -> None:
        self.name, self.kind = wanted.name.text, wanted.name.kind
        self._space, self._thinkers = wanted.spec.action, tuple(thinkers)
        self._random = RandomPlayer(wanted.spec)
        self._deadline_s: float = wanted.options["deadline"]
        self._fallback: str = wanted.options["fallback"]
        self._questions: queue.SimpleQueue[tuple[Question, Future[PlayerAnswer]] | None]
        self._questions = queue.SimpleQueue()
        self._closed, self._lock = False, threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, args=(thinker,), name=self.name, daemon=True)
            for thinker in self._thinkers
        ]
        for thread in self._threads:
            thread.start()

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        future: Future[PlayerAnswer] = Future()
        with self._lock:
            if not self._closed:
                self._questions.put((question, future))
                return future
        future.set_exception(self._error("was asked after it was closed"))
        return future

    def game_over(self, over: GameOver) -> None:
        """Nothing of it is left here."""

    def close(self) -> None:
        """End its threads and thinkers; a question that still waits fails."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for _ in self._threads:
                self._questions.put(None)
        for thinker in self._thinkers:
            thinker.close()
        for thread in self._threads:
            thread.join(_CLOSE_S)

    def _serve(self, thinker: Thinker) -> None:
        rng = np.random.default_rng()  # only for missed moves, which no seed could repeat
        fails = False
        while (asked := self._questions.get()) is not None:
            question, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                answer = self._answer(thinker, question, rng, quiet=fails)
            except Exception as error:  # noqa: BLE001 it travels on in the Future, to who asked
                future.set_exception(error)
            else:
                fails = answer.decided_by == "fallback"
                future.set_result(answer)

    def _answer(
        self, thinker: Thinker, question: Question, rng: np.random.Generator, quiet: bool
    ) -> PlayerAnswer:
        if question.mask is not None and not question.mask.any():
            raise MaskError(f"player {self.name}: seat {question.seat} has no legal action")
        if self._closed:
            raise self._error("was closed before it moved")
        began = time.monotonic()
        try:
            answer = thinker.think(question, self._deadline_s)
            try:
                action = read_action(self._space, answer.action, question.mask)
            except ValueError as error:
                raise MoveFailed(str(error)) from error
        except MoveFailed as error:
            if self._closed or self._fallback == "stop":
                raise self._error(str(error)) from error
            if not quiet:  # once for a row of failures; how many there are, a game's `missed` says
                logger.warning(
                    "player %s %s; its fallback %r decides", self.name, error, self._fallback
                )
            action, resigned = self._any(question, rng), self._fallback == "resign"
            answer = PlayerAnswer(action, decided_by="fallback", resigned=resigned)
        cost = answer.cost._replace(milliseconds=1e3 * (time.monotonic() - began))
        return replace(answer, action=action, cost=cost)

    def _any(self, question: Question, rng: np.random.Generator) -> np.ndarray:
        seen = {leaf: np.asarray(x)[None] for leaf, x in question.observation.items()}
        mask = None if question.mask is None else question.mask[None]
        found: np.ndarray = self._random.act({}, seen, mask, {}, rng).to_environment[0]
        return found

    def _error(self, what: str) -> MoveFailed:
        return MoveFailed(f"player {self.name} {what}")


def too_late(deadline_s: float) -> MoveFailed:
    return MoveFailed(f"gave no move within its deadline of {deadline_s:g} s")


def run_aside(work: Callable[[], T], name: str) -> Future[T]:
    """Run it in a daemon thread of its own, which may be abandoned: it holds up no exit."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result: Any = work()
        except BaseException as error:  # noqa: BLE001 it travels on in the Future
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
