"""A user's function as a player: its deadline, its fallbacks, and all that it may do wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rookery.errors import MaskError, RookeryError
from rookery.players import PlayerAnswer, Question
from rookery.players.function import MAX_STUCK
from rookery.spaces import Categorical, Continuous, Leaf, SeatSpec

RULES = """
import threading
import numpy as np

gate, seen = threading.Event(), []
number = 3

def last(observation, mask):
    seen.append(observation)
    return np.flatnonzero(mask)[-1]

def slow(observation, mask):
    if observation[0]:
        gate.wait()
    return 0

def raises(observation, mask):
    raise ValueError("no idea\\nat all")

def times_out(observation, mask):
    raise TimeoutError("its own")

def text(observation, mask):
    return "two"

def true(observation, mask):
    return True

def illegal(observation, mask):
    return 1
"""

SEAT = SeatSpec((Leaf("", "box", (1,), "float32"),), Categorical(4), masked=True)
MASK = np.array([True, False, True, False])


def question(stuck: bool = False, **leaves: Any) -> Question:
    return Question("player_0", leaves or {"": np.array([float(stuck)])}, MASK)


@pytest.fixture(autouse=True)
def rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module of the user's; whatever got stuck in it is let go at the end."""
    (tmp_path / "my_rules.py").write_text(RULES)
    (tmp_path / "broken_rules.py").write_text("def choose(:\n")
    (tmp_path / "needy_rules.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_rules

    yield my_rules
    my_rules.gate.set()
    for name in ("my_rules", "broken_rules", "needy_rules"):
        sys.modules.pop(name, None)


@pytest.fixture
def asked(made: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A late player by its name, closed at the end."""
    players: list[Any] = []

    def make(text: str) -> Any:
        players.append(made(text, SEAT))
        return players[-1]

    yield make
    for player in players:
        player.close()


def test_it_is_called_with_a_lone_array_or_a_dict(rules: Any, asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:last")
    assert player.kind == "script"
    assert player.ask(question()).result(10) == PlayerAnswer(2)
    assert player.ask(question(eye=1, ear=2)).result(10) == PlayerAnswer(2)
    assert rules.seen[0].shape == (1,)
    assert rules.seen[1] == {"eye": 1, "ear": 2}


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("raises", "raised ValueError: no idea"),
        ("times_out", "raised TimeoutError: its own"),
        ("text", "returned a str"),
        ("true", "returned a bool"),
        ("illegal", "chose action 1, which is not legal"),
    ],
)
def test_a_broken_move_goes_to_the_fallback(
    function: str, says: str, asked: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    player = asked(f"script:my_rules:{function}")
    answers = [player.ask(question()).result(10) for _ in range(30)]
    assert all(answer.missed and not answer.resigned for answer in answers)
    assert {answer.action for answer in answers} == {0, 2}
    assert [says in message for message in caplog.messages] == [True]  # said once, not 30 times

    stopping = asked(f"script:my_rules:{function}?fallback=stop")
    with pytest.raises(RookeryError, match=says) as caught:
        stopping.ask(question()).result(10)
    assert f"script:my_rules:{function}" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_late_move_is_random(asked: Callable[..., Any]) -> None:
    answer = asked("script:my_rules:slow?deadline=0.05").ask(question(stuck=True)).result(10)
    assert answer.missed and not answer.resigned and answer.action in (0, 2)


def test_a_late_player_can_resign(asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=0.05&fallback=resign")
    answer = player.ask(question(stuck=True)).result(10)
    assert answer.missed and answer.resigned and answer.action in (0, 2)


def test_a_late_player_can_stop_the_run(asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=0.05&fallback=stop")
    with pytest.raises(RookeryError, match=r"my_rules:slow.* within its deadline of 0\.05 s"):
        player.ask(question(stuck=True)).result(10)


def test_a_stuck_move_holds_up_no_other(asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=0.1")
    stuck, free = player.ask(question(stuck=True)), player.ask(question())
    assert free.result(10) == PlayerAnswer(0)
    assert stuck.result(0).missed


def test_a_pool_thinks_at_the_same_time(rules: Any, asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=60&pool=2")
    waiting = player.ask(question(stuck=True))
    assert player.ask(question()).result(10) == PlayerAnswer(0)
    assert not waiting.done()
    rules.gate.set()
    assert waiting.result(10) == PlayerAnswer(0)


def test_what_is_left_behind_is_bounded(rules: Any, asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=0.01&fallback=stop")
    for _ in range(MAX_STUCK):
        with pytest.raises(RookeryError, match="deadline"):
            player.ask(question(stuck=True)).result(10)
    with pytest.raises(RookeryError, match="never came back"):
        player.ask(question()).result(10)
    rules.gate.set()


def test_closing_fails_what_waits_and_what_comes_after(asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=600")
    stuck, waiting = player.ask(question(stuck=True)), player.ask(question())
    player.close()
    player.close()
    for future in (stuck, waiting, player.ask(question())):
        with pytest.raises(RookeryError, match="closed"):
            future.result(10)


def test_no_legal_action_is_an_error_and_not_a_move(asked: Callable[..., Any]) -> None:
    none = Question("player_0", {"": np.zeros(1)}, np.zeros(4, bool))
    with pytest.raises(MaskError, match="player_0"):
        asked("script:my_rules:last").ask(none).result(10)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("script:no_such_module:f", "No module named 'no_such_module'"),
        ("script:broken_rules:choose", "raised SyntaxError"),
        ("script:needy_rules:choose", "No module named 'surely_not_installed'"),
        ("script:my_rules:lasst", "did you mean last"),
        ("script:my_rules:number", "is a int, not a function"),
        ("script:my_rules:last?deadline=0", "takes seconds, above 0"),
        ("script:my_rules:last?deadline=nan", "takes seconds, above 0"),
        ("script:my_rules:last?fallback=draw", "takes random or resign or stop"),
        ("script:my_rules:last?dedline=1", "did you mean deadline"),
    ],
)
def test_a_bad_function_is_refused_in_one_line(
    text: str, says: str, made: Callable[..., Any], refused: Callable[..., str]
) -> None:
    assert says in refused(made, text, SEAT)


def test_real_actions_are_refused(made: Callable[..., Any], refused: Callable[..., str]) -> None:
    seat = SeatSpec(SEAT.observation, Continuous((1,), (0.0,), (1.0,)))
    assert "real actions of shape (1,)" in refused(made, "script:my_rules:last", seat)
