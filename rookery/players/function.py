"""`script:package.module:function`: a user's own function as a player.

    def choose(observation, mask):      # a lone array, or a dict of arrays by leaf path
        return int(mask.argmax())       # a legal action, counted from 0

Where a seat takes several numbers at a time, or real ones, it returns those. It is called for one
slot at a time and may take its time, so it is a deferred player. A call that doesn't come back
can't be ended from outside: its thread is left behind and the next call has a new one, up to
`MAX_STUCK` of them.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from rookery.config.code import load
from rookery.envs.failures import first_line
from rookery.errors import ConfigError, InputError
from rookery.players import PlayerAnswer, Question
from rookery.players.deferred import OPTIONS, MoveFailed, ThinkingPlayer, run_aside, too_late
from rookery.players.kinds import PlayerKind, Wanted
from rookery.players.member import Member

MAX_STUCK = 8
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def import_function(what: str, target: str) -> Callable[..., Any]:
    """What `module:function` names; `what` is its noun."""
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(f"{what} {target} is not of the form module:function")
    found = load(what, target)
    if not callable(found) or isinstance(found, type):
        raise InputError(f"{what} {target} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


class FunctionThinker:
    """Calls the function in a thread that it can do without."""

    def __init__(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        self._name, self._function = name, function
        self._stuck: list[Future[Any]] = []
        self._closing: Future[None] = Future()
        self._lock = threading.Lock()

    def think(self, question: Question, deadline_s: float) -> PlayerAnswer:
        self._stuck = [call for call in self._stuck if not call.done()]
        if len(self._stuck) >= MAX_STUCK:
            raise MoveFailed(f"has {MAX_STUCK} calls that never came back, and is not called again")
        observation: Any = question.observation
        if list(observation) == [""]:
            observation = observation[""]
        call = run_aside(lambda: self._function(observation, question.mask), self._name)
        wait([call, self._closing], timeout=deadline_s, return_when=FIRST_COMPLETED)
        if not call.done():
            self._stuck.append(call)
            raise MoveFailed("was closed") if self._closing.done() else too_late(deadline_s)
        error = call.exception()
        if error is not None:
            raise MoveFailed(f"raised {type(error).__name__}: {first_line(error)}") from error
        return PlayerAnswer(call.result())

    def close(self) -> None:
        with self._lock:
            if not self._closing.done():
                self._closing.set_result(None)


def _make(wanted: Wanted) -> Member:
    name, pool = wanted.name, wanted.options["pool"]
    function = import_function("script", name.name)
    thinkers = [FunctionThinker(name.base, function) for _ in range(pool)]
    return wanted.member(ThinkingPlayer(wanted, thinkers))


FUNCTION = PlayerKind(
    "script:my_package.rules:choose",
    "your own function of (observation, mask)",
    _make,
    OPTIONS,
    form="write script:NAME, or script:package.module:function for your own",
    takes=lambda name: _FUNCTION.fullmatch(name) is not None,
    hint="or write module:function for your own",
    outside="code",
)
