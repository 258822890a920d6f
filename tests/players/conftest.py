"""Seats of the games that the players know, without their environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rookery.players import DeferredPlayer, Player
from rookery.players.factory import PlayerFactory
from rookery.spaces import Categorical, Leaf, SeatSpec

Refusal = Callable[..., str]


def _board(shape: tuple[int, ...], actions: int) -> SeatSpec:
    return SeatSpec((Leaf("", "box", shape, "bool"),), Categorical(actions), masked=True)


@pytest.fixture(scope="session")
def tic_tac_toe() -> SeatSpec:
    return _board((3, 3, 2), 9)


@pytest.fixture(scope="session")
def connect_four() -> SeatSpec:
    return _board((6, 7, 2), 7)


@pytest.fixture(scope="session")
def chess() -> SeatSpec:
    return _board((8, 8, 111), 4672)


@pytest.fixture(scope="session")
def made() -> Callable[..., Player | DeferredPlayer]:
    """A player of the factory, by its name."""

    def make(
        text: str, seat: SeatSpec, environment: str = "some:environment", **options: Any
    ) -> Player | DeferredPlayer:
        return PlayerFactory(environment, **options).member(text, "player_0", seat).player

    return make


@pytest.fixture(scope="session")
def refused() -> Refusal:
    """The one line of the InputError that a call must raise."""
    from rookery.errors import InputError

    def refuse(call: Callable[..., object], *arguments: object) -> str:
        with pytest.raises(InputError) as caught:
            call(*arguments)
        line = str(caught.value)
        assert line and len(line.splitlines()) == 1
        return line

    return refuse
