"""Players by name: what each needs of a seat, what can be compiled, and the list of kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest

from rookery.players.factory import compilable, kind_of
from rookery.players.kinds import KINDS, find_kind
from rookery.players.names import PlayerName
from rookery.players.options import read_options
from rookery.spaces import Categorical, Continuous, Leaf, SeatSpec

CARTPOLE = SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))
PENDULUM = SeatSpec((Leaf("", "box", (3,), "float32"),), Continuous((1,), (-2.0,), (2.0,)))


def test_every_example_is_a_name_of_its_kind_with_defaults_that_it_takes() -> None:
    for key in KINDS:
        kind = find_kind(key)
        name = PlayerName.parse(kind.example)
        assert kind_of(name) is kind and name.kind == key.partition(":")[0]
        assert read_options(name, kind.options).keys() == {option.name for option in kind.options}
        set_by_default = [option for option in kind.options if option.default]
        assert all(option.read(option.default) is not None for option in set_by_default)


@pytest.mark.parametrize(
    ("text", "can"),
    [
        ("script:random", True),
        ("script:first-legal", True),
        ("script:perfect", True),
        ("script:minimax", True),
        ("script:minimax?depth=4", True),
        ("script:minimax?depth=5", False),
        ("script:a:b", False),
        ("engine:stockfish", False),
        ("onnx:x", False),
        ("main", True),
        ("league:main", True),
        ("snapshot:run@3", True),
    ],
)
def test_what_can_be_compiled(text: str, can: bool) -> None:
    assert compilable(PlayerName.parse(text)) == can


def test_the_games_are_made_for_their_boards(
    made: Callable[..., Any], tic_tac_toe: SeatSpec, connect_four: SeatSpec
) -> None:
    assert made("script:perfect", tic_tac_toe, xp=jnp).xp is jnp
    assert made("script:minimax?depth=3", connect_four).depth == 3
    assert made("script:minimax", connect_four).depth == 2


@pytest.mark.parametrize(
    ("text", "seat", "says"),
    [
        (
            "script:perfect",
            CARTPOLE,
            "script:perfect plays tic-tac-toe only: environment some:environment has "
            "(4,) observations and 2 actions, not a (3, 3, 2) board and 9 actions",
        ),
        ("script:minimax", PENDULUM, "real actions of shape (1,), not a (6, 7, 2) board"),
        ("script:first-legal", PENDULUM, "actions that can be counted"),
        ("script:randm", CARTPOLE, "did you mean random"),
        ("script:minimax?depth=7", CARTPOLE, "takes a whole number from 1 to 6"),
        ("script:minimax?depth=two", CARTPOLE, "takes a whole number from 1 to 6"),
        ("script:minimax?deph=2", CARTPOLE, "did you mean depth"),
        ("script:random?depth=2", CARTPOLE, "it takes none"),
        ("main", CARTPOLE, "needs the weights of a run"),
        ("snapshot:run@3", CARTPOLE, "needs the weights of a run"),
        ("league:main", CARTPOLE, "drawn anew for each game"),
    ],
)
def test_what_cannot_play_is_refused_in_one_line(
    text: str, seat: SeatSpec, says: str, made: Callable[..., Any], refused: Callable[..., str]
) -> None:
    assert says in refused(made, text, seat)


def test_what_cannot_be_compiled_is_not_made_for_a_compiled_rollout(
    made: Callable[..., Any], refused: Callable[..., str], connect_four: SeatSpec
) -> None:
    line = refused(lambda: made("script:minimax?depth=5", connect_four, xp=jnp))
    assert "can't be part of a compiled rollout" in line
