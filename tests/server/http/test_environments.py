"""What is told of an environment before it is chosen: its spaces in words, looked at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import pytest

from rookery.control.settings import Allow
from rookery.errors import Forbidden, InputError
from rookery.server.http import environments as describing
from rookery.server.http.environments import Describer, seat_spaces
from rookery.server.sandbox import Sandbox
from rookery.spaces import (
    ActionSpace,
    Categorical,
    Continuous,
    EnvironmentSpec,
    Leaf,
    MultiCategorical,
    SeatSpec,
    spec_to_json,
)

LONE = Leaf("", "box", (4,), "float32")


def text_of(*leaves: Leaf, action: ActionSpace, masked: bool = False) -> str:
    return seat_spaces(SeatSpec(leaves, action, masked)).text


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (LONE, "4 numbers (float32)"),
        (Leaf("", "box", (), "float32", low=0.0, high=1.5), "1 number in [0, 1.5] (float32)"),
        (Leaf("", "box", (3, 3, 2), "bool", low=0.0), "3 x 3 x 2 numbers of at least 0 (bool)"),
        (Leaf("", "image", (210, 160, 3), "uint8"), "an image of 210 x 160 x 3 (uint8)"),
        (Leaf("", "discrete", (), "int32", sizes=(16,)), "one of 16"),
        (Leaf("", "multi_discrete", (2,), "int32", sizes=(3, 5)), "one each of 3 and 5"),
        (Leaf("", "multi_binary", (6,), "int8"), "6 bits"),
    ],
)
def test_what_is_seen_is_said_in_words(leaf: Leaf, words: str) -> None:
    assert text_of(leaf, action=Categorical(2)) == f"sees {words}; plays 2 choices"


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Categorical(2), "2 choices"),
        (MultiCategorical((3, 3, 2)), "one each of 3, 3 and 2 choices"),
        (MultiCategorical((2,) * 9), "one each of 2, 2, 2, 2 and 5 more choices"),
        (Continuous((4,), (-1.0,) * 4, (1.0,) * 4), "4 numbers in [-1, 1]"),
        (
            Continuous((2,), (-1.0, 0.0), (1.0, 5.0)),
            "2 numbers in [-1, 5], each with bounds of its own",
        ),
        (Continuous((3,), (-math.inf,) * 3, (math.inf,) * 3), "3 numbers"),
        (Continuous((1,), (-math.inf,), (2.0,)), "1 number of at most 2"),
    ],
)
def test_what_is_played_is_said_in_words(action: ActionSpace, words: str) -> None:
    assert text_of(LONE, action=action) == f"sees 4 numbers (float32); plays {words}"


def test_a_seat_of_several_parts_is_told_as_data_too() -> None:
    camera = Leaf("camera", "image", (84, 84, 3), "uint8")
    arm = Leaf("arm.angle", "box", (7,), "float32")
    bounds = Continuous((2,), (-1.0, -math.inf), (1.0, math.inf))

    found = seat_spaces(SeatSpec((camera, arm), bounds))

    assert [(part.path, part.shape, part.dtype) for part in found.observation] == [
        ("camera", [84, 84, 3], "uint8"),
        ("arm.angle", [7], "float32"),
    ]
    assert (found.action.kind, found.action.shape) == ("continuous", [2])
    assert (found.action.low, found.action.high) == (None, None)  # JSON has no infinity
    seen = "camera: an image of 84 x 84 x 3 (uint8) and arm.angle: 7 numbers (float32)"
    assert found.text.startswith(f"sees {seen}; plays")


def test_a_masked_choice_and_a_seat_of_many_parts_are_kept_short() -> None:
    leaves = [Leaf(str(i), "discrete", (), "int32", sizes=(i + 2,)) for i in range(6)]
    assert text_of(*leaves, action=Categorical(9), masked=True) == (
        "sees 0: one of 2, 1: one of 3, 2: one of 4, 3: one of 5 and 2 more; "
        "plays 9 choices, the legal ones of them"
    )


# --- looking -------------------------------------------------------------------------------------


class CountingLooker(Sandbox):
    """Looks nowhere, and knows what it was asked."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: list[str] = []

    async def check(self, order: Mapping[str, Any]) -> dict[str, Any]:
        id = order["environment"]["id"]
        self.asked.append(id)
        if id == "Nothing-v0":
            raise InputError("no such environment")
        return spec_to_json(EnvironmentSpec(id, {"player_0": SeatSpec((LONE,), Categorical(2))}))


def ask(describer: Describer, *ids: str) -> list[str]:
    async def each() -> list[str]:
        return [(await describer.spec(id)).id for id in ids]

    return asyncio.run(each())


def test_an_environment_is_looked_at_once_while_its_answer_is_young(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sandbox = CountingLooker()
    describer = Describer(Allow(), sandbox)
    assert ask(describer, "A-v0", "B-v0", "A-v0") == ["A-v0", "B-v0", "A-v0"]
    assert sandbox.asked == ["A-v0", "B-v0"]

    monkeypatch.setattr(describing, "KEPT_S", 0.0)
    ask(describer, "C-v0", "C-v0")
    assert sandbox.asked[2:] == ["C-v0", "C-v0"]


def test_a_bounded_number_of_answers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing, "KEPT", 2)
    sandbox = CountingLooker()
    ask(Describer(Allow(), sandbox), "A-v0", "B-v0", "C-v0", "C-v0", "B-v0", "A-v0")
    assert sandbox.asked == ["A-v0", "B-v0", "C-v0", "A-v0"]


def test_an_error_is_not_kept() -> None:
    sandbox = CountingLooker()
    describer = Describer(Allow(), sandbox)
    for _ in range(2):
        with pytest.raises(InputError, match="no such environment"):
            ask(describer, "Nothing-v0")
    assert sandbox.asked == ["Nothing-v0", "Nothing-v0"]


def test_only_what_the_owner_allowed_is_looked_at() -> None:
    sandbox = CountingLooker()
    with pytest.raises(Forbidden, match=r"allow\.code"):
        ask(Describer(Allow(), sandbox), "os:system")
    assert sandbox.asked == []
    assert ask(Describer(Allow(code=("ours:*",)), sandbox), "ours:Maze") == ["ours:Maze"]
