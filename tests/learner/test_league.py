"""The learner's hand on the league: snapshots, exploiters that begin anew, news to the actors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rookery.checkpoints.policies import load_snapshot
from rookery.checkpoints.store import FileStore
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.learner.deliveries import Delivery
from rookery.learner.league import LeagueState, LearnerLeague
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader, Game
from rookery.messages.frame import Arrays
from rookery.messages.steps import Steps

WIN, LOSS = (1.0, -1.0), (-1.0, 1.0)


def config(**values: Any) -> RunConfig:
    return build({"environment": {"id": "pgx:tic_tac_toe"}, **values})


def arrays(number: int) -> Arrays:
    return {"w": np.full(3, number, np.float32)}


class Life:
    """A learner's life as far as its league sees it."""

    def __init__(self, path: Path, config: RunConfig, state: LeagueState | None = None) -> None:
        self.trained, self.number = 0, 0
        self.begun: list[tuple[str, int]] = []
        self.store = FileStore(path)
        self.state = state or LeagueState()
        self.policies = tuple(config.all_policies)
        self.league = LearnerLeague(config, self.state, self.store, 1, lambda: self.trained)
        self.league.reset = lambda policy, salt: self.begun.append((policy, salt))
        self.pools = self.league.begin(0, {p: arrays(0) for p in self.policies})

    def update(self, *games: Game, steps: int = 100) -> None:
        self.trained += steps
        self.number += 1
        found = {p: arrays(self.number) for p in self.policies}
        news = self.league.note([delivery(games)], self.number, found)
        self.pools = news or self.pools

    @property
    def names(self) -> list[str]:
        return [snapshot.name for snapshot in self.state.league.snapshots]


def delivery(games: tuple[Game, ...]) -> Delivery:
    header = FragmentHeader(
        run="r",
        policy="main",
        actor="0.1",
        sequence=0,
        first_step=0,
        steps=0,
        version=WeightsVersion(1, 0),
        seats=("a", "b"),
        players=("policy",),
        games=games,
    )
    flags = np.zeros((1, 1), bool)
    numbers, small = np.zeros((1, 1), np.float32), np.zeros((1, 1), np.uint8)
    steps = Steps({}, numbers, numbers, *(flags,) * 3, numbers, *(small,) * 3)
    return Delivery((b"",), (Fragment(header, steps),))


def test_the_first_weights_are_the_first_snapshot_and_then_one_every_so_many_steps(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, config(league={"snapshot_every_steps": 250}))
    assert life.names == ["main@0"] and life.pools.pools == {"main": {"main@0": 1.0}}
    for _ in range(9):
        life.update()
    assert life.names == ["main@0", "main@3", "main@6", "main@9"]
    file = life.pools.files["main@6"]
    np.testing.assert_array_equal(load_snapshot(life.store, file)["w"], arrays(6)["w"])


def test_a_policy_that_does_not_learn_is_in_the_league_with_the_only_weights_it_has(
    tmp_path: Path,
) -> None:
    frozen: dict[str, Any] = {"policies": {"teacher": {}, "main": {}}, "train": ["main"]}
    life = Life(tmp_path, config(**frozen, league={"snapshot_every_steps": 100}))
    life.update()
    assert life.names == ["teacher@0", "main@0", "main@1"]
    assert life.pools.pools["teacher"] == {"teacher@0": 1.0}
    life.state.league.drop(["teacher@0"])  # as a run made before left it
    assert life.pools.pools["teacher"] == {"teacher@0": 1.0}
    assert Life(tmp_path, config(**frozen), life.state).pools.pools["teacher"]


def test_an_exploiter_may_learn_alone(tmp_path: Path) -> None:
    target: dict[str, Any] = {"role": "exploiter", "target": "main"}
    life = Life(tmp_path, config(policies={"main": {}, "hunter": target}, train=["hunter"]))
    assert set(life.pools.pools) == {"main", "hunter"}


def test_a_policy_that_beats_its_league_is_frozen_before_its_time(tmp_path: Path) -> None:
    rules = {"snapshot_every_steps": None, "snapshot_win_rate": 0.7}
    life = Life(tmp_path, config(league=rules))
    lost = [Game(("main", "main@0"), LOSS, 9)] * 40
    won = [Game(("main@0", "main"), LOSS, 9)] * 200
    life.update(*lost)
    assert life.names == ["main@0"]
    life.update(*won)
    assert life.names == ["main@0", "main@2"]


def test_no_more_are_kept_than_asked_and_the_first_and_newest_stay(tmp_path: Path) -> None:
    life = Life(tmp_path, config(league={"snapshot_every_steps": 100, "keep": 4}))
    for _ in range(20):
        life.update()
    assert len(life.names) == 4
    assert life.names[0] == "main@0" and life.names[-1] == "main@20"
    assert set(life.pools.pools["main"]) == set(life.names) == set(life.pools.files)


def test_the_files_of_dropped_snapshots_go_and_a_later_learners_stay(tmp_path: Path) -> None:
    life = Life(tmp_path, config(league={"snapshot_every_steps": 100, "keep": 2}))
    for _ in range(20):
        life.update()
    before = set(life.league.files)
    life.update()
    later, stranger = "main-000002-0000000021", "notes"
    for name in (later, stranger):
        life.store.save(name, {"weights.rkry": b""})
    life.league.forget_all_but(before | life.league.files)
    assert set(life.store.names()) == before | life.league.files | {later, stranger}
    assert len(life.store.names()) == 3 + 2
    for file in life.pools.files.values():
        load_snapshot(life.store, file)


def test_games_between_frozen_players_are_rated_and_those_of_the_learner_are_not(
    tmp_path: Path,
) -> None:
    life = Life(tmp_path, config(league={"snapshot_every_steps": 100}))
    life.update()
    life.update(
        Game(("main@1", "main@0"), WIN, 9),
        Game(("main", "main@0"), WIN, 9),
        Game(("main@1", "script:random"), WIN, 9),
    )
    ratings = life.state.league.ratings
    assert life.state.rated_games == 2
    assert ratings.of("main@1").games == 2 and ratings.of("main@0").games == 1
    assert "main" not in ratings.players
    assert life.state.league.payoff.record("main", "main@0").games == 1
    found = life.league.metrics()
    assert found is not None and found.rated_games == 2
    assert found.newest == "main@1"  # main@2 has not been rated: its rating would say nothing
    assert found.rating == ratings.of("main@1").mu


def test_an_exploiter_that_beats_its_target_is_frozen_and_begins_anew(tmp_path: Path) -> None:
    policies = {"main": {}, "hunter": {"role": "exploiter", "target": "main"}}
    life = Life(tmp_path, config(policies=policies, league={"snapshot_every_steps": 10**9}))
    life.update(*[Game(("hunter", "main"), LOSS, 9)] * 50)
    assert life.names == ["main@0", "hunter@0"] and life.begun == []

    life.update(*[Game(("hunter", "main"), WIN, 9)] * 300)

    assert life.names == ["main@0", "hunter@0", "hunter@2"]
    assert life.begun == [("hunter", 1)]
    assert life.state.league.payoff.record("hunter", "main").games == 0  # it has beaten nobody
    life.update()
    assert life.begun == [("hunter", 1)]


def test_an_exploiter_that_finds_nothing_begins_anew_as_well(tmp_path: Path) -> None:
    policies = {"main": {}, "hunter": {"role": "exploiter", "target": "main"}}
    rules = {"snapshot_every_steps": None, "exploiter_max_updates": 3}
    life = Life(tmp_path, config(policies=policies, league=rules))
    for _ in range(7):
        life.update()
    assert life.begun == [("hunter", 1), ("hunter", 2)]
    assert [name for name in life.names if "hunter" in name] == ["hunter@0", "hunter@3", "hunter@6"]


@pytest.mark.parametrize("how", ["uniform", "recency", "pfsp"])
def test_the_news_say_whom_to_draw(tmp_path: Path, how: str) -> None:
    rules = {"snapshot_every_steps": 1600, "opponents": how}
    life = Life(tmp_path, config(league=rules))
    for _ in range(32):  # two snapshots more; the news come with them
        life.update(*[Game(("main", "main@0"), WIN, 9)] * 10)
    weights = life.pools.pools["main"]
    assert set(weights) == {"main@0", "main@16", "main@32"}
    assert sum(weights.values()) == pytest.approx(1.0)
    expected = {"uniform": 1 / 3, "recency": 0.0, "pfsp": 0.0}[how]
    assert (weights["main@0"] == pytest.approx(1 / 3)) == (expected > 0)
    assert weights["main@0"] <= weights["main@32"] + 1e-9
    assert life.pools.rated[0] in ("main@32", "main@16")  # nobody has played them yet


def test_a_league_that_goes_on_says_again_what_it_said_last(tmp_path: Path) -> None:
    rules = config(league={"snapshot_every_steps": 250})
    life = Life(tmp_path, rules)
    for _ in range(40):
        life.update(Game(("main", "main@0"), WIN, 5))
    told = life.pools
    life.update(Game(("main", "main@3"), LOSS, 5))  # changes the weights of the next draw
    again = msgspec.json.decode(msgspec.json.encode(life.state), type=LeagueState)
    assert Life(tmp_path, rules, again).pools == told == life.pools
    for _ in range(16):
        life.update()
    assert life.pools != told
