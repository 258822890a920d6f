"""The playing loop.

    for happening in play(rollout, transport): ...

Whatever is not playing (metrics, deadlines, the order in which an inline run takes turns) consumes
the stream of what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from rookery.messages import LeaguePools, SeatsChanged, WeightsVersion
from rookery.messages.fragment import Episode, Fragment, Game
from rookery.messages.frame import Arrays
from rookery.messages.steps import POLICY, Steps


class Admitted(NamedTuple):
    """Leave to play: the newest of everything that the learner and the controller have said."""

    version: WeightsVersion
    arrays: dict[str, Arrays]  # policy -> weights, all of this version
    pools: LeaguePools | None = None
    seats: SeatsChanged | None = None


class Played(NamedTuple):
    """What one turn of the playing loop brought."""

    steps: dict[str, Steps]  # of each policy that learns
    episodes: dict[str, tuple[Episode, ...]]  # of each of them, ended in it
    games: tuple[Game, ...] = ()  # of several seats, ended in it
    players: tuple[str, ...] = (POLICY,)  # kinds for the numbers in `Steps.player`


class Rollout(Protocol):
    """Plays one fragment's worth of steps with the given weights, going on where it left off."""

    can_save: bool

    def __call__(self, admitted: Admitted) -> Played: ...

    def save(self) -> Arrays: ...

    def restore(self, state: Arrays) -> None: ...

    def restart(self, seed: int) -> None:
        """Begin new episodes; for environments whose state cannot be saved."""
        ...

    def close(self) -> None:
        """End its players, as far as they have to be ended."""
        ...


class Transport(Protocol):
    """The actor's side of the bus."""

    def admit(self) -> Admitted | None:
        """The newest weights, once the learner lets the next fragment be played."""
        ...

    def send(self, played: Played, admitted: Admitted) -> tuple[Fragment, ...]:
        """A fragment of each policy that learns."""
        ...


def play(
    rollout: Rollout, transport: Transport, stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Fragment, ...] | None]:
    """Play fragment after fragment; yields None whenever the learner's credit is waited for."""
    while not stopped():
        admitted = transport.admit()
        if admitted is None:
            yield None
            continue
        played = rollout(admitted)
        yield transport.send(played, admitted)
