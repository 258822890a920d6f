"""A member: one player that may be seated, with the weights that it plays with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from rookery.algorithms.networks import Network
from rookery.messages.frame import Arrays
from rookery.players import DeferredPlayer, Player
from rookery.spaces import SeatSpec

if TYPE_CHECKING:
    from rookery.players.names import PlayerName


@dataclass
class Member:
    """One player of a lineup."""

    text: str  # as the seat map names it: "main", "league:main", "script:random"
    player: Player | DeferredPlayer
    name: str = ""  # who it is now: "main", "main@340"; "": a league's place not yet filled
    arrays: Arrays = field(default_factory=dict)  # a snapshot's; a policy's come with each rollout
    policy: str = ""  # the live policy that it is, if it is one
    file: str = ""  # where a snapshot's weights are
    seats: frozenset[int] = frozenset()  # the seats whose spaces it was made for; empty: all
    closed: bool = False  # it can't be asked any more

    @property
    def deferred(self) -> bool:
        return hasattr(self.player, "ask")

    def close(self) -> None:
        """End what a deferred player has started."""
        self.closed = True
        if hasattr(self.player, "close"):
            self.player.close()


class PolicyWeights(NamedTuple):
    """What a policy, a snapshot or a place of a league plays with."""

    name: str  # who it is: "main", "RUN@340"; "": nobody yet
    network: Network
    arrays: Arrays
    policy: str = ""  # the live policy whose weights come with each rollout


LoadWeights = Callable[["PlayerName", str, SeatSpec], PolicyWeights]
"""(name, seat, its spaces) -> what it plays with: whoever knows runs says where that is."""
