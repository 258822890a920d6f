"""Who beats whom: wins, draws and losses of every pair that met.

Ratings put all players on one line; games are not always so (rock beats scissors beats paper), and
matchmaking asks about one opponent at a time. Between frozen players the counts are exact. As soon
as one of the two learns, what it did long ago tells little, so each new game fades the older ones.
"""

from __future__ import annotations

from itertools import combinations

import msgspec

from rookery.league.names import is_live
from rookery.league.outcomes import outcomes
from rookery.messages.fragment import Game

PRIOR_GAMES = 2.0  # drawn games that everyone is taken to have played: no rate is 0 or 1 by luck
HALF_LIFE_GAMES = 200.0  # a rate over the last 300 or so is good to 3%, and soon follows the policy


class Score(msgspec.Struct, frozen=True, array_like=True):
    """One player's results against another; fractions where older games have faded."""

    wins: float = 0.0
    draws: float = 0.0
    losses: float = 0.0
    games: int = 0  # ever played: these do not fade

    @property
    def weight(self) -> float:
        """Games that the rate rests on."""
        return self.wins + self.draws + self.losses

    @property
    def win_rate(self) -> float:
        """Points per game, a draw being half a point; 0.5 for those who never met."""
        points = self.wins + 0.5 * self.draws + 0.5 * PRIOR_GAMES
        return points / (self.weight + PRIOR_GAMES)

    @property
    def reversed(self) -> Score:
        """The same games as the other one saw them."""
        return Score(self.losses, self.draws, self.wins, self.games)

    def after(self, mine: float, theirs: float, keep: float) -> Score:
        """With one more game; `keep` is what remains of those before."""
        return Score(
            wins=self.wins * keep + (mine > theirs),
            draws=self.draws * keep + (mine == theirs),
            losses=self.losses * keep + (mine < theirs),
            games=self.games + 1,
        )


UNMET = Score()


class Matrix(msgspec.Struct, frozen=True):
    """The whole payoff for display: records[row][column] is row's, None where they never met."""

    players: tuple[str, ...]
    records: tuple[tuple[Score | None, ...], ...]


class Payoff(msgspec.Struct):
    """Plain data, part of the checkpoint. Each pair is kept once, under the lesser name."""

    pairs: dict[str, dict[str, Score]] = {}
    half_life_games: float = HALF_LIFE_GAMES

    def note(self, game: Game) -> None:
        """Every two players of a game have met in it."""
        means = outcomes(game)
        for first, second in combinations(sorted(means), 2):
            fades = is_live(first) or is_live(second)
            keep = 0.5 ** (1 / self.half_life_games) if fades else 1.0
            row = self.pairs.setdefault(first, {})
            record = row.get(second, UNMET)
            row[second] = record.after(means[first], means[second], keep)

    def record(self, player: str, opponent: str) -> Score:
        """The player's results against the opponent."""
        if player < opponent:
            return self.pairs.get(player, {}).get(opponent, UNMET)
        return self.pairs.get(opponent, {}).get(player, UNMET).reversed

    def win_rate(self, player: str, opponent: str) -> float:
        return self.record(player, opponent).win_rate

    def forget(self, player: str) -> None:
        """Its games never were: it is gone, or its weights began anew."""
        self.pairs.pop(player, None)
        for first in [first for first, row in self.pairs.items() if player in row]:
            del self.pairs[first][player]
            if not self.pairs[first]:
                del self.pairs[first]

    def matrix(self) -> Matrix:
        """Rows and columns by name."""
        met = {name for first, row in self.pairs.items() for name in (first, *row)}
        players = tuple(sorted(met))
        return Matrix(
            players=players,
            records=tuple(
                tuple(self._met(player, opponent) for opponent in players) for player in players
            ),
        )

    def _met(self, player: str, opponent: str) -> Score | None:
        record = self.record(player, opponent)
        return record if record.games else None
