"""A run's ladder: its league as the newest checkpoint has it, and the matches played since.

A match names players by their run, a league by their policy: here a run's own snapshots go by the
league's names, so that both speak of one player.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rookery.checkpoints.policies import newest_manifest_of
from rookery.control.home import Home
from rookery.errors import InputError
from rookery.league import League
from rookery.league.ratings import Z_95
from rookery.messages import MatchPlayed
from rookery.messages.fragment import Game


def ladder(home: Home, run: str) -> dict[str, Any]:
    """Every rated player, the strongest first, and who beat whom: `rookery ladder --json`."""
    league = _league(home, run)
    policy = home.config(home.state(run)).learning[0]
    for match in home.state(run).matches:
        for game in games_of(match, run, policy):
            league.ratings.note(game)
            league.payoff.note(game)
    matrix = league.payoff.matrix()
    return {
        "run": run,
        "players": [
            {**msgspec.to_builtins(row), "uncertainty": Z_95 * row.sigma} for row in league.ladder()
        ],
        "payoff": {
            "players": list(matrix.players),
            "records": [
                [record and msgspec.structs.asdict(record) for record in row]
                for row in matrix.records
            ],
        },
    }


def _league(home: Home, run: str) -> League:
    """The checkpoint's own, read for us alone; an empty one where seats meet without a league."""
    kept = newest_manifest_of(home.files(run)).league
    if kept is not None:
        return kept.league
    if len(home.spec(home.state(run)).seats) == 1:
        raise InputError(f"run {run} has no league: its environment has one seat")
    return League()


def games_of(match: MatchPlayed, run: str, policy: str) -> Iterator[Game]:
    """The games behind a match's counts.

    Ratings depend on the order of games, which the counts don't tell: results are spread evenly,
    so that none of them has the last word.
    """
    a, b = (_league_name(player, run, policy) for player in match.players)
    results = ((1.0, -1.0), match.wins), ((0.0, 0.0), match.draws), ((-1.0, 1.0), match.losses)
    spread = [((i + 0.5) / count, totals) for totals, count in results for i in range(count)]
    for _, totals in sorted(spread):
        yield Game((a, b), totals, 0)


def _league_name(player: str, run: str, policy: str) -> str:
    own = player.removeprefix(f"{run}@")
    return player if own == player else f"{policy}@{own}"


def ladder_text(found: Mapping[str, Any], payoff: bool = False) -> str:
    """What `rookery ladder` prints."""
    if not found["players"]:
        return f"nobody is rated yet: rookery match ENVIRONMENT {found['run']} script:random"
    names = [row["player"] for row in found["players"]]
    width = max(map(len, [*names, "PLAYER"]))
    lines = [f"{'RANK':>4}  {'PLAYER':{width}}  {'RATING':>13}  {'GAMES':>7}  W / D / L"]
    for row in found["players"]:
        rating = f"{row['mu']:.2f} ± {row['uncertainty']:.2f}"
        lines.append(
            f"{row['rank']:4}  {row['player']:{width}}  {rating:>13}  {row['games']:7,}"
            f"  {row['wins']} / {row['draws']} / {row['losses']}"
        )
    if payoff:
        lines += ["", *_payoff_lines(found["payoff"], names)]
    return "\n".join(lines)


def _payoff_lines(payoff: Mapping[str, Any], ranked: list[str]) -> list[str]:
    """Points of each row's player against each column's, columns by the rows' numbers."""
    at = {player: i for i, player in enumerate(payoff["players"])}
    order = [p for p in ranked if p in at] + [p for p in payoff["players"] if p not in ranked]
    width = max(map(len, order), default=0)
    lines = ["points of the row against the column", f"{'':{width + 5}}" + _cells(order)]
    for number, player in enumerate(order, start=1):
        records = [payoff["records"][at[player]][at[other]] for other in order]
        lines.append(f"{number:3}  {player:{width}}" + "".join(map(_share, records)))
    return lines


def _cells(order: list[str]) -> str:
    return "".join(f"{number:6}" for number in range(1, len(order) + 1))


def _share(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return f"{'-':>6}"
    weight = record["wins"] + record["draws"] + record["losses"]
    return f"{(record['wins'] + record['draws'] / 2) / weight:6.2f}"
