"""Games of a match, kept in their run's directory so that they can be watched again.

    keep(directory, taped("4f2a", ways))    # directory: the run's own
    kept_matches(directory)                 # newest first
    game = kept_game(directory, "4f2a.3")   # the third game of match 4f2a

A game is where it began (a seed and a slot) and what was done in it. Only the first game of a slot
begins at its seed, so only such games are kept: a few of each outcome, both ways round.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rookery.control.home import Home
from rookery.control.models import KeptGame, KeptMatch, KeptMatches
from rookery.envs import Options
from rookery.errors import UnknownName
from rookery.evaluation.match import PlayedGame, Ways, begins
from rookery.league.names import policy_of
from rookery.messages import new_id
from rookery.players.actions import blank_actions
from rookery.spaces import EnvironmentSpec

FOLDER = "games"
MOST_MATCHES = 20  # of a run, the newest
MOST_GAMES = 16  # of a match
MOST_MOVES = 2000  # of a game: longer ones are not kept
MOST_BYTES = 2 << 20  # of a match

Move = tuple[int, Any]  # number of the seat, and its action: a number, or several


class TapedGame(msgspec.Struct, frozen=True):
    """What it takes to play a game again."""

    seed: int
    slots: int  # of the environment that it was played in
    slot: int  # in which
    players: tuple[str, ...]  # by seat
    totals: tuple[float, ...]
    moves: tuple[Move, ...]  # in their order; of seats that act at once, by number


class TapedMatch(msgspec.Struct, frozen=True):
    """A file of the folder."""

    id: str
    time_s: float
    a: str
    b: str
    games: tuple[TapedGame, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TapedMatch).decode


# --- keeping -------------------------------------------------------------------------------------


def keeper(home: Home, environment: str, options: Options) -> Callable[[Ways], None]:
    """Keeps a match's games for each of its runs that plays in just such an environment."""

    def tape(ways: Ways) -> None:
        runs = dict.fromkeys(policy_of(name) for name in ways.names.values())
        match = taped(new_id(), ways)
        for run in (run for run in runs if run is not None):
            world = home.config(home.state(run)).environment
            if (world.id, world.kwargs) == (environment, dict(options)):
                keep(home.run_dir(run), match)

    return tape


def keep(directory: Path, match: TapedMatch) -> None:
    """Write it down as a whole, and let the oldest ones go."""
    content = _encode(match)
    if not match.games or len(content) > MOST_BYTES:
        return
    folder = directory / FOLDER
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = folder / f"{match.id}.part"
    unfinished.write_bytes(content)
    os.replace(unfinished, folder / f"{match.id}.json")
    for old in _files(directory)[MOST_MATCHES:]:
        old.unlink(missing_ok=True)


def taped(id: str, match: Ways) -> TapedMatch:
    """Some games of each outcome, both ways round."""
    kinds: dict[tuple[int, bool, bool], list[TapedGame]] = {}
    for way, played in enumerate(match.played):
        different = {each.moves: each for each in reversed(played) if _can_be_kept(each)}
        for each in reversed(different.values()):
            totals = each.game.totals
            kind = kinds.setdefault((way, totals[0] > totals[1], totals[0] < totals[1]), [])
            if len(kind) < MOST_GAMES:
                kind.append(_taped(match, way, each))
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*kinds.values()))
    games = tuple(itertools.islice((game for game in in_turn if game is not None), MOST_GAMES))
    return TapedMatch(id, time.time(), match.names["a"], match.names["b"], games)


def _can_be_kept(played: PlayedGame) -> bool:
    return played.first and played.game.length <= MOST_MOVES


def _taped(match: Ways, way: int, played: PlayedGame) -> TapedGame:
    return TapedGame(
        begins(match.seed, way),
        match.slots,
        played.slot,
        tuple(match.names[label] for label in played.game.players),
        played.game.totals,
        tuple(read_moves(match.spec, played.moves)),
    )


def read_moves(spec: EnvironmentSpec, moves: bytes) -> Iterator[Move]:
    """`PlayedGame.moves` as plain data."""
    blanks = [blank_actions(seat, 1)[0] for seat in spec.seats.values()]
    at = 0
    while at < len(moves):
        seat = int.from_bytes(moves[at : at + 2], "big")
        blank = np.asarray(blanks[seat])
        at += 2
        action = np.frombuffer(moves, blank.dtype, blank.size, at).reshape(blank.shape)
        at += blank.nbytes
        yield seat, action.tolist()


# --- looking -------------------------------------------------------------------------------------


def kept_matches(directory: Path) -> KeptMatches:
    found = [match for path in _files(directory) if (match := _read(path)) is not None]
    return KeptMatches(matches=[_told(match) for match in found])


def kept_game(directory: Path, name: str) -> TapedGame:
    """By its name in the list."""
    for path in _files(directory):
        match = _read(path)
        for number, game in enumerate(match.games if match else (), 1):
            if name == f"{path.stem}.{number}":
                return game
    raise UnknownName("game", name[:100], (), "only those of the newest matches are kept")


def _told(match: TapedMatch) -> KeptMatch:
    games = [
        KeptGame(
            game=f"{match.id}.{number}",
            players=list(game.players),
            totals=list(game.totals),
            moves=len(game.moves),
        )
        for number, game in enumerate(match.games, 1)
    ]
    return KeptMatch(match=match.id, time_s=match.time_s, a=match.a, b=match.b, games=games)


def _files(directory: Path) -> list[Path]:
    """Newest first."""
    found = [path for path in (directory / FOLDER).glob("*.json") if path.is_file()]
    return sorted(found, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def _read(path: Path) -> TapedMatch | None:
    """None for one that is damaged, or of a newer Rookery."""
    try:
        return _decode(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else None
    except (OSError, msgspec.DecodeError):
        return None
