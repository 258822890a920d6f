"""A user's function as a player: its deadline, its fallbacks, and all that it may do wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rookery.errors import MaskError, RookeryError
from rookery.players import PlayerAnswer, Question
from rookery.players.actions import read_action
from rookery.players.function import MAX_STUCK
from rookery.spaces import Categorical, Continuous, Leaf, MultiCategorical, SeatSpec

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

def real(observation, mask):
    return [3.5, 5.0]

def one_real(observation, mask):
    return 2.5

def not_a_number(observation, mask):
    return [float("nan")]

def several(observation, mask):
    return np.array([2, 3])
"""

SEAT = SeatSpec((Leaf("", "box", (1,), "float32"),), Categorical(4), masked=True)
MASK = np.array([True, False, True, False])


def question(stuck: bool = False, **leaves: Any) -> Question:
    return Question("game", 0, "player_0", leaves or {"": np.array([float(stuck)])}, MASK)


def moved(asked: Future[PlayerAnswer], action: int) -> bool:
    answer = asked.result(10)
    assert answer.cost.milliseconds > 0
    return answer.decided_by == "player" and answer.action == action


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
    """A deferred player by its name, closed at the end."""
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
    assert moved(player.ask(question()), 2)
    assert moved(player.ask(question(eye=1, ear=2)), 2)
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
    assert all(answer.decided_by == "fallback" and not answer.resigned for answer in answers)
    assert {int(answer.action) for answer in answers} == {0, 2}
    assert [says in message for message in caplog.messages] == [True]  # said once, not 30 times

    stopping = asked(f"script:my_rules:{function}?fallback=stop")
    with pytest.raises(RookeryError, match=says) as caught:
        stopping.ask(question()).result(10)
    assert f"script:my_rules:{function}" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_late_move_is_random(asked: Callable[..., Any]) -> None:
    answer = asked("script:my_rules:slow?deadline=0.05").ask(question(stuck=True)).result(10)
    assert answer.decided_by == "fallback" and not answer.resigned and answer.action in (0, 2)


def test_a_deferred_player_can_resign(asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=0.05&fallback=resign")
    answer = player.ask(question(stuck=True)).result(10)
    assert answer.decided_by == "fallback" and answer.resigned and answer.action in (0, 2)


def test_a_deferred_player_can_stop_the_run(asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=0.05&fallback=stop")
    with pytest.raises(RookeryError, match=r"my_rules:slow.* within its deadline of 0\.05 s"):
        player.ask(question(stuck=True)).result(10)


def test_a_stuck_move_holds_up_no_other(asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=0.1")
    stuck, free = player.ask(question(stuck=True)), player.ask(question())
    assert moved(free, 0)
    assert stuck.result(0).decided_by == "fallback"


def test_a_pool_thinks_at_the_same_time(rules: Any, asked: Callable[..., Any]) -> None:
    player = asked("script:my_rules:slow?deadline=60&pool=2")
    waiting = player.ask(question(stuck=True))
    assert moved(player.ask(question()), 0)
    assert not waiting.done()
    rules.gate.set()
    assert moved(waiting, 0)


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
    none = Question("game", 0, "player_0", {"": np.zeros(1)}, np.zeros(4, bool))
    with pytest.raises(MaskError, match="player_0"):
        asked("script:my_rules:last").ask(none).result(10)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("script:no_such_module:f", "there is no module 'no_such_module'"),
        ("script:broken_rules:choose", "raised SyntaxError"),
        ("script:needy_rules:choose", "needs the module 'surely_not_installed'"),
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


@pytest.mark.parametrize(
    ("space", "mask", "function", "action"),
    [
        (Continuous((2,), (0.0, 0.0), (1.0, 9.0)), None, "real", [1.0, 5.0]),  # cut to the bounds
        (Continuous((1,), (0.0,), (9.0,)), None, "one_real", [2.5]),
        (MultiCategorical((3, 4)), None, "several", [2, 3]),
        (MultiCategorical((3, 4)), np.array([0, 0, 1, 0, 0, 0, 1], bool), "several", [2, 3]),
    ],
)
def test_any_space_can_be_answered(
    space: Any, mask: Any, function: str, action: list[float], made: Callable[..., Any]
) -> None:
    player = made(f"script:my_rules:{function}?fallback=stop", SeatSpec(SEAT.observation, space))
    try:
        answer = player.ask(Question("game", 0, "a", {"": np.zeros(1)}, mask)).result(10)
    finally:
        player.close()
    assert answer.action.tolist() == action and answer.decided_by == "player"


@pytest.mark.parametrize(
    ("space", "mask", "function", "says"),
    [
        (Continuous((3,), (0.0,) * 3, (1.0,) * 3), None, "real", "finite numbers of shape (3,)"),
        (Continuous((2,), (0.0,) * 2, (1.0,) * 2), None, "text", "returned a str"),
        (Continuous((1,), (0.0,), (1.0,)), None, "not_a_number", "finite numbers"),
        (MultiCategorical((3, 4, 2)), None, "several", "not 3 numbers of actions"),
        (MultiCategorical((3, 3)), None, "several", "chose action 3, which is not legal"),
        (MultiCategorical((3, 4)), np.ones(7, bool), "real", "returned a float"),
        (MultiCategorical((3, 4)), np.arange(7) < 6, "several", "chose action 3"),
    ],
)
def test_what_does_not_fit_its_space_goes_to_the_fallback(
    space: Any,
    mask: Any,
    function: str,
    says: str,
    made: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    player = made(f"script:my_rules:{function}", SeatSpec(SEAT.observation, space))
    try:
        answer = player.ask(Question("game", 0, "a", {"": np.zeros(1)}, mask)).result(10)
    finally:
        player.close()
    assert answer.decided_by == "fallback" and says in caplog.text
    assert answer.action.tolist() == read_action(space, answer.action, mask).tolist()
