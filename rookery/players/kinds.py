"""Every kind of player there is, a line each, and what the file of a kind says of it.

A new kind is one file with a `PlayerKind` in it, and one line in `KINDS`. A file is imported when a
name of its kind is read or all are listed, so it must be light: what is heavy (JAX, an engine's
library) is imported when a player is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rookery.config.kinds import load_kind
from rookery.players.member import LoadWeights, Member
from rookery.spaces import SeatSpec

if TYPE_CHECKING:
    from rookery.players import DeferredPlayer, Player
    from rookery.players.names import PlayerName
    from rookery.players.options import PlayerOption

KINDS = {  # a kind, or one name of a kind -> where its PlayerKind is
    "policy": "rookery.players.policy:POLICY",
    "league": "rookery.players.policy:LEAGUE",
    "snapshot": "rookery.players.policy:SNAPSHOT",
    "script:random": "rookery.players.scripts.any_game:RANDOM",
    "script:first-legal": "rookery.players.scripts.any_game:FIRST_LEGAL",
    "script:perfect": "rookery.players.scripts.tic_tac_toe:PERFECT",
    "script:minimax": "rookery.players.scripts.connect_four:MINIMAX",
    "script": "rookery.players.function:FUNCTION",
    "engine": "rookery.players.engine:ENGINE",
    "onnx": "rookery.players.onnx:ONNX",
}

Outside = Literal["nothing", "code", "binaries", "files", "not said"]
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Wanted:
    """One player that is to be made for a seat, and what the factory offers for it."""

    name: PlayerName
    options: Mapping[str, Any]  # all that the kind has, read
    seat: str
    spec: SeatSpec
    environment_id: str
    xp: Any  # numpy, or jax.numpy for a player inside a compiled rollout
    greedy: bool  # a policy plays its likeliest action
    weights: LoadWeights

    def member(self, player: Player | DeferredPlayer) -> Member:
        """Of a player that is who its name says."""
        return Member(self.name.text, player, self.name.text)


def is_word(name: str) -> bool:
    return _WORD.fullmatch(name) is not None


def never(options: Mapping[str, Any]) -> bool:
    return False


def always(options: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True)
class PlayerKind:
    """What there is to know of a kind: a line of `rookery players`, and how one is made."""

    example: str
    description: str
    make: Callable[[Wanted], Member]
    options: tuple[PlayerOption, ...] = ()
    form: str = ""  # how it is written: "write engine:NAME"
    takes: Callable[[str], bool] = is_word  # what may stand after the colon
    hint: str = ""  # for a name that is neither of its form nor in KINDS
    encoded: bool = False  # what stands after the colon is percent-encoded
    compilable: Callable[[Mapping[str, Any]], bool] = never  # as a JAX function, by its options
    drawn: bool = False  # anew for some games: a lineup has places for it
    outside: Outside = "not said"  # what it names outside a run; unsaid: not for the network


def find_kind(key: str) -> PlayerKind:
    """The kind behind one line of `KINDS`."""
    found: PlayerKind = load_kind(KINDS, key)
    return found


def words() -> list[str]:
    """What may stand before the colon."""
    return list(dict.fromkeys(key.partition(":")[0] for key in KINDS))


def listed(word: str) -> list[str]:
    """The names of a kind that have lines of their own."""
    return [key.partition(":")[2] for key in KINDS if key.startswith(f"{word}:")]
