"""Matches: two fixed players meet for a number of games, both ways round.

    result = play_match(home, "pgx:connect_four", "last", "script:random", games=200)

Half of the games have the first player in the first seat, the other half the second one; with more
than two seats they alternate. Each way round is played at a table of its own, where every slot has
a fixed number of games to play: taking the first to finish instead would favour short games.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rookery import seeds
from rookery.actor.lineup import FixedLineup
from rookery.actor.rollouts.table import Table
from rookery.checkpoints.policies import frozen_weights
from rookery.control.evaluations import check_match
from rookery.control.home import Home
from rookery.envs import NO_OPTIONS, BatchedEnvironment, Options
from rookery.envs.registry import describe, make
from rookery.errors import InputError, RookeryError
from rookery.league.intervals import wilson
from rookery.league.names import greedy, policy_of
from rookery.league.outcomes import outcomes
from rookery.messages import MatchPlayed
from rookery.messages.fragment import Game
from rookery.players.factory import PlayerFactory, close_members
from rookery.players.member import Member
from rookery.spaces import EnvironmentSpec, SeatSpec

MAX_SLOTS = 128
DEFERRED_SLOTS = 4  # with a player that thinks: more would only wait for it
MOST_STEPS = 10_000  # of an episode or a game, where the environment itself has no limit


# --- the two sides -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Side:
    """One of the two players, made once for each kind of seat."""

    name: str  # as results and ladders call it: "RUN@340/greedy", "script:random"
    run: str | None  # whose weights it plays with
    members: Mapping[SeatSpec, Member]

    @property
    def deferred(self) -> bool:
        return any(member.deferred for member in self.members.values())

    def close(self) -> None:
        close_members(self.members.values())


def make_side(home: Home, label: str, text: str, spec: EnvironmentSpec, sampled: bool) -> Side:
    """The player that a text names; it must fit every seat, as it will take them all.

    `label` tells its games apart from the other side's, which may be the same player.
    """
    factory = PlayerFactory(spec.id, frozen_weights(home.find_files), greedy=not sampled)
    members: dict[SeatSpec, Member] = {}
    try:
        for seat, seat_spec in spec.seats.items():
            if seat_spec not in members:
                members[seat_spec] = factory.member(text, seat, seat_spec)
    except BaseException:
        close_members(members.values())
        raise
    name = next(iter(members.values())).name
    run = policy_of(name)
    for member in members.values():
        member.name = label
    return Side(name if sampled or run is None else greedy(name), run, members)


# --- playing -------------------------------------------------------------------------------------


def match_lineup(spec: EnvironmentSpec, first: Side, second: Side) -> FixedLineup:
    """Two sides who alternate over the seats, the same in every game."""
    seats = enumerate(spec.seats.values())
    return FixedLineup([(first, second)[number % 2].members[seat] for number, seat in seats])


class PlayedGame(NamedTuple):
    """A game that counts, and all that was done in it."""

    game: Game
    moves: bytes  # seat and action, in their order
    sights: int = 0  # a digest of what was seen before each of them
    slot: int = 0
    first: bool = False  # of its slot: it began at the environment's seed
    cut: bool = False  # it did not end by itself within MOST_STEPS


def play_games(
    env: BatchedEnvironment, lineup: FixedLineup, games: int, seed: int, rng: np.random.Generator
) -> list[PlayedGame]:
    """Exactly `games`, a fixed number in each slot; what a slot plays beyond its own is dropped.

    A game that need not end is cut at MOST_STEPS; what its slot still has to play then comes after
    its end, or after a reset of all of them once nobody else plays.
    """
    most = MOST_STEPS if env.spec.max_episode_steps is None else np.inf
    table = Table(env, lineup, rng, seed, name=str(seed))
    quota = np.full(env.slots, games // env.slots)
    quota[: games % env.slots] += 1
    moves, sights = [bytearray() for _ in range(env.slots)], [0] * env.slots
    first, cut = np.ones(env.slots, np.bool_), np.zeros(env.slots, np.bool_)
    found: list[PlayedGame] = []
    table.begin()
    while quota.any():
        if not quota[~cut].any():
            seed += 1
            table.restart(seed)
            moves, sights = [bytearray() for _ in range(env.slots)], [0] * env.slots
            first[:] = cut[:] = False
        begun = table.book.lengths > 0  # only such games are in the book when they are over
        views = list(table.views.values())
        moved = table.step({})
        for seat, actions in enumerate(moved.actions):
            for slot in np.flatnonzero(moved.turn[:, seat] & ~moved.reset).tolist():
                moves[slot] += seat.to_bytes(2, "big") + actions[slot].tobytes()
                for leaf in views[seat].observation.values():
                    sights[slot] = zlib.crc32(leaf[slot].tobytes(), sights[slot])
        late = quota.astype(bool) & ~cut & (table.book.lengths >= most)
        table.book.close(np.flatnonzero(late), table.sitting[late].tolist())
        ended = [*np.flatnonzero(moved.reset & begun).tolist(), *np.flatnonzero(late).tolist()]
        over, _ = table.book.take()
        for slot, game in zip(ended, over, strict=True):
            if quota[slot] and not cut[slot]:
                quota[slot] -= 1
                seen = (bytes(moves[slot]), sights[slot])
                kept = PlayedGame(game, *seen, slot, bool(first[slot]), bool(late[slot]))
                found.append(kept)
            moves[slot].clear()
            sights[slot], first[slot], cut[slot] = 0, False, late[slot]
    table.close()
    return found


# --- results -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """How one side did over some games."""

    wins: int
    draws: int
    losses: int
    distinct: int  # games that tell something of their own

    @property
    def games(self) -> int:
        return self.wins + self.draws + self.losses

    @property
    def points(self) -> float:
        """Per game, a draw being half a point."""
        return (self.wins + self.draws / 2) / self.games if self.games else 0.5

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval as if only the distinct games had been played.

        A game that repeats another tells nothing new, so the share of points stands as it was
        measured and rests on no more games than there were different ones.
        """
        return wilson(self.points * self.distinct, self.distinct)

    def row(self) -> dict[str, Any]:
        return {
            "games": self.games,
            "wins": self.wins,
            "draws": self.draws,
            "losses": self.losses,
            "points": self.points,
            "interval": list(self.interval),
            "distinct": self.distinct,
        }


def tally(played: Sequence[PlayedGame], label: str, dealt: bool) -> Tally:
    """The results of the side with that label; `dealt`: in an environment that deals."""
    counts = {"wins": 0, "draws": 0, "losses": 0}
    for game in (each.game for each in played):
        means = outcomes(game)
        if label not in means:
            raise RookeryError(f"a game ended with rewards that are no numbers: {game.totals}")
        mine = means.pop(label)
        (theirs,) = means.values()
        counts["draws" if mine == theirs else "wins" if mine > theirs else "losses"] += 1
    return Tally(**counts, distinct=len(played if dealt else _distinct(played)))


def deals(played: Sequence[PlayedGame]) -> bool:
    """Whether chance of the environment's own showed: the same moves were other games.

    Then each game is a draw by itself, like a deal of cards, however often its moves come again.
    """
    looks: dict[Any, Any] = {}
    return any(looks.setdefault(_moves(p), _look(p)) != _look(p) for p in played)


def _moves(played: PlayedGame) -> Any:
    return played.game.players, played.moves


def _look(played: PlayedGame) -> Any:
    return played.game.totals, played.sights


def _distinct(played: Sequence[PlayedGame]) -> list[PlayedGame]:
    """One of each: games that are the same move by move, between the same seats."""
    return list({_moves(p): p for p in played}.values())


def play_match(
    home: Home,
    environment: str,
    a: str,
    b: str,
    games: int = 100,
    seed: int = 0,
    sampled: bool = False,
    options: Options = NO_OPTIONS,
    tape: Callable[[Ways], None] | None = None,
) -> dict[str, Any]:
    """Play, record it for the ladders of the runs involved, and tell; `rookery match --json`.

    `tape` is shown all that was played before it is summed up.
    """
    if games < 1:
        raise InputError(f"a match of {games} games: play at least 1")
    if seed < 0:
        raise InputError(f"seed {seed} is below 0")
    began = time.monotonic()
    spec = describe(environment, options)
    check_match(environment, len(spec.seats))
    with ExitStack() as closing:
        sides = []
        for label, text in (("a", a), ("b", b)):
            sides.append(make_side(home, label, text, spec, sampled))
            closing.callback(sides[-1].close)
        slots = DEFERRED_SLOTS if any(side.deferred for side in sides) else MAX_SLOTS
        env = make(environment, min((games + 1) // 2, slots), options)
        closing.callback(env.close)
        ways = _both_ways(env, sides[0], sides[1], games, seed)
        if tape is not None:
            tape(Ways(spec, env.slots, seed, {"a": sides[0].name, "b": sides[1].name}, ways))
    result = {
        "environment": environment,
        "a": sides[0].name,
        "b": sides[1].name,
        "seed": seed,
        **_summary(ways, next(iter(spec.seats))),
        "cut_at": MOST_STEPS if spec.max_episode_steps is None else None,
        "seconds": round(time.monotonic() - began, 3),
    }
    together = [played for way in ways for played in way]
    dealt = deals(together)
    _record(home, sides, tally(together if dealt else _distinct(together), "a", dealt))
    return result


def _both_ways(
    env: BatchedEnvironment, a: Side, b: Side, games: int, seed: int
) -> list[list[PlayedGame]]:
    """The games with `a` in the first seat, then those with `b` there: one fewer if odd."""
    found = []
    for way, (first, second) in enumerate(((a, b), (b, a))):
        count = (games + 1 - way) // 2
        rng = seeds.generator(seed, "match", way, 1)
        lineup = match_lineup(env.spec, first, second)
        begin = begins(seed, way)
        found.append(play_games(env, lineup, count, begin, rng) if count else [])
    return found


def begins(seed: int, way: int) -> int:
    """What the environment of one way round begins with."""
    return seeds.number(seed, "match", way, 0)


class Ways(NamedTuple):
    """All that was played in a match."""

    spec: EnvironmentSpec
    slots: int
    seed: int
    names: Mapping[str, str]  # of the two sides, by their labels
    played: Sequence[Sequence[PlayedGame]]  # each way round


def _summary(ways: Sequence[Sequence[PlayedGame]], first_seat: str) -> dict[str, Any]:
    together = [played for way in ways for played in way]
    dealt = deals(together)
    missed = {"a": 0, "b": 0}
    for game in (each.game for each in together):
        for label, count in zip(game.players, game.missed, strict=False):  # empty: none
            missed[label] += count
    tallies = [tally(way, "a", dealt) for way in ways]
    return {
        **tally(together, "a", dealt).row(),
        "first_seat": first_seat,
        "a_first": tallies[0].row(),
        "b_first": tallies[1].row(),
        "repeats": all(t.distinct <= 1 for t in tallies) and len(together) > len(tallies),
        "mean_length": float(np.mean([each.game.length for each in together])),
        "cut": sum(each.cut for each in together),
        "missed": missed,
    }


def _record(home: Home, sides: Sequence[Side], distinct: Tally) -> None:
    """For the ladder of each run that took part; a player against itself rates nobody.

    Only distinct games: a repeated one would make a rating surer than it is.
    """
    a, b = sides
    if a.name == b.name:
        return
    for run in dict.fromkeys(side.run for side in sides if side.run is not None):
        home.record(
            MatchPlayed(
                run=run,
                players=(a.name, b.name),
                wins=distinct.wins,
                draws=distinct.draws,
                losses=distinct.losses,
            )
        )


def match_text(result: Mapping[str, Any]) -> str:
    """What `rookery match` prints."""
    lines = [
        f"{result['a']} against {result['b']} in {result['environment']}",
        f"{result['games']} games, {result['distinct']} distinct, {result['seconds']:.1f} s",
        "",
        f"{'':16}{'games':>6}{'wins':>7}{'draws':>7}{'losses':>7}{'points':>8}   95% interval",
    ]
    rows = {
        "all": result,
        f"as {result['first_seat']}": result["a_first"],
        "the other way": result["b_first"],
    }
    for name, row in rows.items():
        low, high = row["interval"]
        lines.append(
            f"{name:16}{row['games']:6}{row['wins']:7}{row['draws']:7}{row['losses']:7}"
            f"{row['points']:8.3f}   {low:.3f} to {high:.3f}"
        )
    missed = result["missed"]
    lines += ["", f"mean length {result['mean_length']:.1f} steps; wins are of {result['a']}"]
    if result["cut"]:
        lines.append(
            f"{result['cut']} games did not end: cut at {result['cut_at']:,} steps, they count as "
            "they stood"
        )
    if any(missed.values()):
        lines.append(f"missed deadlines: {missed['a']} of the first, {missed['b']} of the second")
    if result["repeats"]:
        lines.append(
            "each way round every game was the same, move by move: more of them tell nothing more"
        )
    elif result["distinct"] < result["games"]:
        lines.append(f"the intervals rest on the {result['distinct']} distinct games")
    return "\n".join(lines)
