"""The league: a run's frozen players, how strong they are, and whom to play next.

Everything here is decided without I/O. Finished games go in (`note`), and so does every snapshot
that is taken (`add`); what to play against (`weights`), whom to rate next (`most_uncertain`) and
the `ladder` come out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from rookery.league.matchmaking import WEIGHINGS, How
from rookery.league.names import greedy, policy_of, weights_of
from rookery.league.payoff import Matrix, Payoff, Score
from rookery.league.ratings import Rating, Ratings
from rookery.league.snapshots import Schedule, Snapshot, thin
from rookery.messages.fragment import Game

__all__ = [
    "League",
    "LadderRow",
    "Standing",
    "Snapshot",
    "Schedule",
    "thin",
    "Rating",
    "Ratings",
    "Payoff",
    "Score",
    "Matrix",
    "How",
]


class LadderRow(msgspec.Struct, frozen=True):
    """One rung: a frozen player that has been rated."""

    rank: int  # 1 is the strongest
    player: str
    mu: float
    sigma: float
    low: float  # 95% of its distribution lies between these
    high: float
    games: int
    wins: int  # over its life, also against players that are gone
    draws: int
    losses: int


class Standing(msgspec.Struct, frozen=True):
    """How a learner does against a pool."""

    win_rate: float  # mean over the opponents: an often played one counts no more
    games: int  # against the opponent it met least


class League(msgspec.Struct):
    """Plain data, part of the checkpoint."""

    snapshots: list[Snapshot] = []
    ratings: Ratings = msgspec.field(default_factory=Ratings)
    payoff: Payoff = msgspec.field(default_factory=Payoff)

    def note(self, games: Iterable[Game]) -> int:
        """Learn from finished games, in their order; how many were passed over.

        Games go on for a while after a snapshot in them was dropped, or was taken back by a restart
        of the learner. They are passed over, or they would bring back a player without weights.
        """
        policies = {snapshot.policy for snapshot in self.snapshots}
        present = {snapshot.name for snapshot in self.snapshots}
        passed_over = 0
        for game in games:
            weights = set(map(weights_of, game.players)) - present
            if any(policy_of(name) in policies for name in weights):
                passed_over += 1
                continue
            self.ratings.note(game)
            self.payoff.note(game)
        return passed_over

    def add(self, snapshot: Snapshot) -> None:
        """Take a snapshot into its policy's pool.

        A restarted learner may use a number again for other weights. Then whatever is known under
        that name is of those it took back, and goes.
        """
        if snapshot in self.snapshots:
            return
        self.drop([snapshot.name])
        self.snapshots.append(snapshot)

    def drop(self, names: Iterable[str]) -> None:
        """Forget these players, and with a snapshot its greedy play, which has no weights left.

        A live policy's name erases its record: an exploiter that begins anew has beaten nobody.
        """
        gone = {player for name in names for player in (name, greedy(name))}
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.name not in gone]
        for player in sorted(gone):
            self.ratings.forget(player)
            self.payoff.forget(player)

    def pool(self, policy: str) -> list[Snapshot]:
        """The policy's snapshots, oldest first."""
        return sorted(
            (snapshot for snapshot in self.snapshots if snapshot.policy == policy),
            key=lambda snapshot: snapshot.number,
        )

    def weights(self, learner_policy: str, pool_policy: str, how: How) -> dict[str, float]:
        """How often the learner should meet each snapshot of the pool: name -> probability."""
        pool = [snapshot.name for snapshot in self.pool(pool_policy)]
        return WEIGHINGS[how](pool, self._win_rates(learner_policy, pool))

    def standing(self, learner_policy: str, pool_policy: str) -> Standing:
        """What a schedule asks: has the learner outgrown the pool, and is that sure?

        Counted by the opponent it met least, so a snapshot just taken has to be beaten as well.
        """
        pool = [snapshot.name for snapshot in self.pool(pool_policy)]
        if not pool:
            return Standing(win_rate=0.5, games=0)
        return Standing(
            win_rate=sum(self._win_rates(learner_policy, pool).values()) / len(pool),
            games=min(self.payoff.record(learner_policy, player).games for player in pool),
        )

    def most_uncertain(self, count: int, exclude: Collection[str] = ()) -> list[str]:
        """Whom to rate next: the widest first, then those with fewer games, then the newest."""
        taken_at = {snapshot.name: snapshot.env_steps for snapshot in self.snapshots}

        def urgency(player: str) -> tuple[float, int, int, str]:
            rating = self.ratings.of(player)
            return -rating.sigma, rating.games, -taken_at.get(weights_of(player), -1), player

        known = taken_at.keys() | self.ratings.players.keys()
        return sorted(known.difference(exclude), key=urgency)[:count]

    def ladder(self) -> list[LadderRow]:
        """Every rated player, the strongest first."""
        by_strength = sorted(
            self.ratings.players.items(), key=lambda entry: (-entry[1].mu, entry[0])
        )
        return [
            _rung(rank, player, rating)
            for rank, (player, rating) in enumerate(by_strength, start=1)
        ]

    def _win_rates(self, learner: str, pool: Iterable[str]) -> dict[str, float]:
        return {player: self.payoff.win_rate(learner, player) for player in pool}


def _rung(rank: int, player: str, rating: Rating) -> LadderRow:
    low, high = rating.interval
    return LadderRow(
        rank=rank,
        player=player,
        mu=rating.mu,
        sigma=rating.sigma,
        low=low,
        high=high,
        games=rating.games,
        wins=rating.wins,
        draws=rating.draws,
        losses=rating.losses,
    )
