"""The learner's hand on the league: folds in the games, takes snapshots, tells the actors.

    pools = league.begin(arrays)                   # before the first weights go out
    pools = league.note(deliveries, number, arrays, restart)    # after each update; None: no news

Only games of trained fragments are folded in, in their order, so a resumed league goes on exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from rookery.checkpoints.policies import WEIGHTS_FILE
from rookery.checkpoints.store import CheckpointStore
from rookery.config.models import RunConfig
from rookery.league import League, Schedule, Snapshot, thin
from rookery.league.names import is_live
from rookery.league.roles import exploiter_done
from rookery.league.snapshots import generation_of
from rookery.learner.deliveries import Delivery
from rookery.messages import LeagueMetrics, LeaguePools, WeightsVersion
from rookery.messages.frame import Arrays
from rookery.messages.weights import Weights, WeightsHeader, encode_weights

_NEWS_EVERY = 16  # updates between reports of new weights in a draw
_RATED = 8  # snapshots that are named as least certain
_MIN_GAMES = 32  # that a win rate must rest on


class LeagueState(msgspec.Struct):
    """What a checkpoint keeps of it."""

    league: League = msgspec.field(default_factory=League)
    rated_games: int = 0
    begun: dict[str, int] = {}  # exploiter -> the update at which it last began anew
    beginnings: int = 0  # how often any exploiter has
    news: LeaguePools | None = None  # what the actors were told last


class LearnerLeague:
    def __init__(
        self,
        config: RunConfig,
        state: LeagueState,
        store: CheckpointStore,
        generation: int,
        trained: Callable[[], int],
    ) -> None:
        self.state, self._config, self._store = state, config, store
        self._generation, self._trained = generation, trained
        self.reset: Callable[[str, int], None] = lambda policy, salt: None  # set at wiring
        rules = config.league
        self._schedule = Schedule(
            every_updates=rules.snapshot_every_steps or 0,  # the clock here is agent steps
            win_rate=rules.snapshot_win_rate,
            min_games=_MIN_GAMES,
        )

    def begin(self, number: int, arrays: Mapping[str, Arrays]) -> LeaguePools:
        """Every policy's first weights are taken in, also of those that will never have others.

        A league that goes on says what it said last, not what it has learnt since: actors that play
        on then draw whom they would have drawn.
        """
        absent = [p for p in self._config.all_policies if not self.state.league.pool(p)]
        for policy in absent:
            self._freeze(policy, number, arrays[policy])
        if absent or self.state.news is None:
            self.state.news = self._pools()
        return self.state.news

    def note(
        self, deliveries: Sequence[Delivery], number: int, arrays: Mapping[str, Arrays]
    ) -> LeaguePools | None:
        """Fold in what was played, freeze whoever is due."""
        games = [
            game
            for delivery in deliveries
            for part in delivery.fragments
            for game in part.header.games
        ]
        self.state.league.note(games)
        self.state.rated_games += sum(not any(map(is_live, game.players)) for game in games)
        changed = [p for p in self._config.learning if self._freeze_if_due(p, number, arrays[p])]
        if not changed and number % _NEWS_EVERY:
            return None
        self.state.news = self._pools()
        return self.state.news

    @property
    def files(self) -> set[str]:
        """The snapshots that a learner which goes on from here needs, and those it tells of."""
        news = self.state.news
        told = news.files.values() if news is not None else ()
        return {*(snapshot.file for snapshot in self.state.league.snapshots), *told}

    def forget_all_but(self, needed: Collection[str]) -> None:
        """Remove snapshots that nobody needs any more; a later learner's are not ours to judge."""
        for file in self._store.names():
            generation = generation_of(file)
            ours = generation is not None and generation <= self._generation
            if ours and file not in needed:
                self._store.delete(file)

    def metrics(self) -> LeagueMetrics | None:
        league = self.state.league
        pool = league.pool(self._config.learning[0])
        if not pool:
            return None
        rated = [each for each in pool if league.ratings.of(each.name).games]
        newest = (rated or pool)[-1].name  # a fresh one has not been rated: nothing is known of it
        rating = league.ratings.of(newest)
        records = {p: league.payoff.record(newest, p) for p in self._config.league.reference}
        return LeagueMetrics(
            snapshots=len(league.snapshots),
            rated_games=self.state.rated_games,
            newest=newest,
            rating=rating.mu,
            uncertainty=rating.sigma,
            points={p: r.win_rate for p, r in records.items() if r.games},
        )

    def _freeze_if_due(self, policy: str, number: int, arrays: Arrays) -> bool:
        config, league = self._config.all_policies[policy], self.state.league
        if config.target is not None:
            record = league.payoff.record(policy, config.target)
            rules = self._config.league
            done = exploiter_done(
                record.win_rate,
                int(record.weight),
                number - self.state.begun.get(policy, 0),
                rules.exploiter_win_rate,
                _MIN_GAMES,
                rules.exploiter_max_updates,
            )
            if done:
                self._freeze(policy, number, arrays)
                self.state.begun[policy] = number
                self.state.beginnings += 1
                self.reset(policy, self.state.beginnings)
                league.drop([policy])  # it begins anew and has beaten nobody
            return done
        standing = league.standing(policy, policy)
        last = league.pool(policy)[-1].env_steps
        due = self._schedule.due(self._trained(), last, standing.win_rate, standing.games)
        if due:
            self._freeze(policy, number, arrays)
        return due

    def _freeze(self, policy: str, number: int, arrays: Arrays) -> None:
        snapshot = Snapshot(policy, self._generation, number, self._trained())
        header = WeightsHeader(
            run="",
            policy=policy,
            version=WeightsVersion(self._generation, number),
            env_steps=snapshot.env_steps,
        )
        if snapshot.file not in self._store.names():
            self._store.save(snapshot.file, {WEIGHTS_FILE: encode_weights(Weights(header, arrays))})
        league = self.state.league
        league.add(snapshot)
        kept = {each.name for each in thin(league.pool(policy), self._config.league.keep)}
        league.drop([each.name for each in league.pool(policy) if each.name not in kept])

    def _pools(self) -> LeaguePools:
        league, how = self.state.league, self._config.league.opponents
        learning, policies = self._config.learning, self._config.all_policies
        main = next((p for p in learning if policies[p].role == "main"), learning[0])
        frozen = dict.fromkeys(snapshot.policy for snapshot in league.snapshots)
        files = {snapshot.name: snapshot.file for snapshot in league.snapshots}
        wanted = league.most_uncertain(_RATED + len(self._config.league.reference))
        return LeaguePools(
            pools={policy: league.weights(main, policy, how) for policy in frozen},
            rated=tuple(name for name in wanted if name in files),
            files=files,
        )
