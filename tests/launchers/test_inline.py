"""An inline run: whoever is listed first, and however it waits, it goes on or stops when asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rookery.actor.transport import ActorTransport
from rookery.config.reading import build
from rookery.control.context import open_context
from rookery.control.create import create_run
from rookery.control.home import Home
from rookery.launchers.inline import take_turns
from rookery.messages import RunEnded
from rookery.worker import WorkerId

TEACHER: dict[str, Any] = {"policies": {"teacher": {}, "main": {}}, "train": ["main"]}
MOST_TURNS = 500


def turns(home: Home, asked_after: int = MOST_TURNS, **values: Any) -> tuple[int, list[int], str]:
    """How many turns a small run took, its exit codes, and what it said at the end."""
    actors = {"envs_per_actor": 4, "rollout_steps": 16}
    game = {"environment": {"id": "pettingzoo:tictactoe_v3"}, "launcher": "inline"}
    config = build({**game, "actors": actors, "stop": {"steps": 400}}, values)
    context = open_context(home, create_run(home, config))
    said: list[str] = []
    object.__setattr__(
        context, "record", lambda *events: said.extend(e.reason for e in events if _ends(e))
    )
    codes: list[int | None] = []
    for code in take_turns(context, WorkerId("inline", 0, 1), lambda: len(codes) >= asked_after):
        codes.append(code)
        assert len(codes) < MOST_TURNS, "it hangs"
    return len(codes), [code for code in codes if code is not None], "; ".join(said)


def _ends(event: object) -> bool:
    return isinstance(event, RunEnded)


def test_a_policy_that_does_not_learn_may_be_listed_first_and_have_a_league(tmp_path: Path) -> None:
    either = {"draw": [{"player": "teacher", "weight": 1}, {"league": "teacher", "weight": 1}]}
    seats = {"player_1": "main", "player_2": either}
    _, codes, said = turns(Home(tmp_path), **TEACHER, seats=seats)
    assert codes == [0] and "steps done" in said


def test_a_run_in_which_nobody_can_go_on_stops_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActorTransport, "admit", lambda self: self._read(0.0))  # joins, no more
    played, codes, said = turns(Home(tmp_path), asked_after=5)
    assert played < 20 and codes == [0] and "asked to stop" in said
