"""The factory: players by their names, for training, rating games, matches, evaluation, watching.

    factory = PlayerFactory("pgx:connect_four", weights)
    member = factory.member("script:minimax?depth=2", "player_0", seat_spec)

How each kind is made is in its own file (`kinds`). Those that play with the weights of a run get
them from a function that whoever has runs brings along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rookery.errors import InputError, UnknownName
from rookery.players.kinds import KINDS, PlayerKind, Wanted, find_kind, listed
from rookery.players.member import LoadWeights, Member, PolicyWeights
from rookery.players.names import PlayerName
from rookery.players.options import read_options
from rookery.spaces import SeatSpec

if TYPE_CHECKING:
    from rookery.players.seat_map import Seating


def no_weights(name: PlayerName, seat: str, spec: SeatSpec) -> PolicyWeights:
    raise InputError(f"player {name} is a {name.kind}: it needs the weights of a run to play")


@dataclass(frozen=True)
class PlayerFactory:
    """Makes players for the seats of one environment."""

    environment_id: str
    weights: LoadWeights = no_weights
    xp: Any = np  # jax.numpy for a compiled rollout
    greedy: bool = False  # policies play their likeliest action
    places: int = 0  # of each league; 0: nobody is drawn here

    def members(self, text: str, seat: str, spec: SeatSpec) -> list[Member]:
        """The player, checked against its seat; of a league as many as it has places."""
        name = PlayerName.parse(text)
        kind = kind_of(name)
        options = read_options(name, kind.options)
        if self.xp is not np and not kind.compilable(options):
            raise InputError(f"player {name} can't be part of a compiled rollout")
        if kind.drawn and not self.places:
            raise InputError(
                f"{name} is drawn anew for each game: name one snapshot of it, like RUN@340"
            )
        offered = (self.environment_id, self.xp, self.greedy, self.weights)
        wanted = Wanted(name, options, seat, spec, *offered)
        return [kind.make(wanted) for _ in range(self.places if kind.drawn else 1)]

    def member(self, text: str, seat: str, spec: SeatSpec) -> Member:
        """One player, where nobody is drawn."""
        (found,) = self.members(text, seat, spec)
        return found

    def seated(
        self, seating: Seating, texts: Iterable[str], known: Sequence[Member] = ()
    ) -> list[Member]:
        """Members for all seats where these players may sit, but for those that are known."""
        found: list[Member] = []
        try:
            for text in texts:
                for spec, seats in seating.spaces_of(text).items():
                    if any(member.text == text and member.seats & seats for member in known):
                        continue
                    for member in self.members(text, seating.map.seats[min(seats)], spec):
                        member.seats = seats
                        found.append(member)
        except BaseException:
            close_members(found)
            raise
        return found


def close_members(members: Iterable[Member]) -> None:
    for member in members:
        member.close()


def compilable(name: PlayerName) -> bool:
    """Can it be a JAX function, and so part of a compiled rollout?"""
    kind = kind_of(name)
    return kind.compilable(read_options(name, kind.options))


def kind_of(name: PlayerName) -> PlayerKind:
    """Its own line of `KINDS`, or that of its kind."""
    key = f"{name.kind}:{name.name}"
    if key in KINDS:
        return find_kind(key)
    kind = find_kind(name.kind)
    if not kind.takes(name.name):
        raise UnknownName(name.kind, name.name, listed(name.kind), kind.hint)
    return kind
