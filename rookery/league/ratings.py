"""How strong each frozen player is, as a normal distribution that every game sharpens.

The maths is openskill's Plackett-Luce model (Weng and Lin 2011, algorithm 4), which ranks any
number of players and knows draws. Only frozen players are rated: the rating of one that learns
would describe nobody. Ratings depend on the order of the games, and on nothing but the numbers
kept here, so a saved league goes on exactly as if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import msgspec
from openskill.models import PlackettLuce

from rookery.league.names import is_frozen
from rookery.league.outcomes import outcomes
from rookery.messages.fragment import Game

MU = 25.0
SIGMA = MU / 3
# Noise added before each game, so that sigma has a floor and a rating can always still move. A
# tenth of the library's default: our players are frozen, only what we know of their rivals moves.
# Between equals it holds sigma near 0.6, reached after some 3000 games.
TAU = MU / 3000
Z_95 = 1.96


class Rating(msgspec.Struct, frozen=True):
    """What is known of one player. The tally is over all games rated, against each opponent in it:
    in a game of two it adds up to `games`."""

    mu: float = MU
    sigma: float = SIGMA
    games: int = 0
    wins: int = 0
    draws: int = 0
    losses: int = 0

    @property
    def ordinal(self) -> float:
        """A strength it almost surely has: few games count against a player."""
        return self.mu - 3 * self.sigma

    @property
    def interval(self) -> tuple[float, float]:
        """Where its strength is, with 95% probability."""
        return self.mu - Z_95 * self.sigma, self.mu + Z_95 * self.sigma


UNRATED = Rating()


@cache
def _model() -> PlackettLuce:
    return PlackettLuce(mu=MU, sigma=SIGMA, tau=TAU)


class Ratings(msgspec.Struct):
    """Plain data, part of the checkpoint."""

    players: dict[str, Rating] = {}

    def of(self, player: str) -> Rating:
        return self.players.get(player, UNRATED)

    def note(self, game: Game) -> bool:
        """Learn from a game; False if it says nothing of frozen players alone."""
        if not all(map(is_frozen, game.players)):
            return False
        means = outcomes(game)
        if not means:
            return False
        self._update(means)
        return True

    def rate_many(self, games: Iterable[Game]) -> int:
        """Note games in their order; how many of them counted."""
        return sum(map(self.note, games))

    def forget(self, player: str) -> None:
        self.players.pop(player, None)

    def _update(self, means: Mapping[str, float]) -> None:
        model = _model()
        places = sorted(means.values(), reverse=True)
        before = [self.of(player) for player in means]
        ranks = [places.index(mean) for mean in means.values()]  # 0 is best, equals share one
        rated = model.rate(
            [[model.rating(mu=rating.mu, sigma=rating.sigma)] for rating in before],
            ranks=list(ranks),
        )
        for (player, mean), old, above, [new] in zip(
            means.items(), before, ranks, rated, strict=True
        ):
            level = places.count(mean)  # itself among them
            self.players[player] = Rating(
                mu=new.mu,
                sigma=new.sigma,
                games=old.games + 1,
                wins=old.wins + len(places) - above - level,
                draws=old.draws + level - 1,
                losses=old.losses + above,
            )
