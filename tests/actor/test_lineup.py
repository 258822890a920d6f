"""Who sits where: drawn by weight, changed only between games, and everybody gets a turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rookery.actor.loop import Admitted
from rookery.actor.rating_lineup import RatingLineup
from rookery.actor.training_lineup import TrainingLineup
from rookery.errors import CheckpointGone
from rookery.messages import LeaguePools, SeatsChanged, WeightsVersion
from rookery.messages.frame import Arrays
from rookery.players.member import Member
from rookery.players.scripts.any_game import RandomPlayer
from rookery.players.seat_map import SeatMap
from rookery.spaces import Categorical, SeatSpec

PLAYER = RandomPlayer(SeatSpec((), Categorical(2)))


NOBODY = np.zeros((0, 2), np.int32)  # sits in a game


def load(file: str) -> Arrays:
    if "gone" in file:
        raise CheckpointGone(file)
    return {"file": np.frombuffer(file.encode(), np.uint8)}


def admitted(weights: dict[str, float], seats: SeatsChanged | None = None) -> Admitted:
    files = {name: f"file of {name}" for name in weights}
    pools = LeaguePools(pools={"main": weights}, rated=tuple(weights), files=files)
    return Admitted(WeightsVersion(1, 0), {}, pools, seats)


def reseat(changed: SeatsChanged, known: Sequence[Member]) -> tuple[SeatMap, list[Member]]:
    seats, texts = ("a", "b"), {member.text for member in known}
    return SeatMap(seats, {s: [(changed.seats[s], 1.0)] for s in seats}), [
        Member(t, PLAYER, t) for t in dict.fromkeys(changed.seats.values()) if t not in texts
    ]


def training_cast(
    places: int = 4, games_per_draw: int = 10, seed: int = 0, blocks: int = 2
) -> TrainingLineup:
    seat_map = SeatMap(
        ("a", "b"),
        {"a": [("main", 1.0)], "b": [("league:main", 0.75), ("script:random", 0.25)]},
    )
    members = [
        Member("main", PLAYER, "main", policy="main"),
        *(Member("league:main", PLAYER) for _ in range(places)),
        Member("script:random", PLAYER, "script:random"),
    ]
    rng = np.random.default_rng(seed)
    return TrainingLineup(seat_map, members, games_per_draw, load, rng, reseat, blocks)


class Slots:
    """Games of random length in a few slots, seated by a lineup; every change is looked at."""

    def __init__(self, lineup: Any, count: int, seed: int = 1) -> None:
        self.lineup, self.rng = lineup, np.random.default_rng(seed)
        self.sitting = lineup.seat(np.arange(count))
        lineup.began(self.sitting)
        self.met: Counter[str] = Counter()
        self.names = self._names()

    def _names(self) -> list[list[str]]:
        return [[self.lineup.members[n].name for n in row] for row in self.sitting.tolist()]

    def round(self, news: Admitted) -> None:
        """A fragment: the lineup may change its members, some games end, others begin."""
        self.lineup.refresh(news, self.sitting)
        assert self._names() == self.names, "somebody changed in the middle of a game"
        for slot, row in enumerate(self.sitting[:, 1] - 1 if self.lineup.blocks > 1 else ()):
            block = row // (4 // self.lineup.blocks)  # places are members 1 to 4
            assert row >= 4 or block == slot % self.lineup.blocks, "a place of another block"
        over = np.flatnonzero(self.rng.random(len(self.sitting)) < 0.4)
        for slot in over:
            self.met.update(set(self.names[slot]))
        self.sitting[over] = self.lineup.seat(over)
        self.lineup.began(self.sitting[over])
        self.names = self._names()


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_nobody_changes_in_a_game_and_snapshots_are_met_by_their_weights(blocks: int) -> None:
    lineup = training_cast(blocks=blocks)
    weights = {"main@1": 0.2, "main@2": 0.3, "main@3": 0.5}
    lineup.refresh(admitted(weights), np.zeros((0, 2), np.int32))
    slots = Slots(lineup, 8)
    for _ in range(6000):
        slots.round(admitted(weights))
    games = slots.met["main"]
    assert abs(slots.met["script:random"] / games - 0.25) < 0.02
    for name, weight in weights.items():
        assert abs(slots.met[name] / games - 0.75 * weight) < 0.04, (name, slots.met)


def test_every_place_is_filled_again_even_when_all_have_played_enough_at_once() -> None:
    lineup = training_cast(games_per_draw=1)
    lineup.refresh(admitted({"main@0": 1.0}), np.zeros((0, 2), np.int32))
    slots = Slots(lineup, 16)
    for _ in range(50):
        slots.round(admitted({"main@1": 1.0}))
    assert {m.name for m in lineup.members if m.text == "league:main"} == {"main@1"}


def test_saved_and_restored_it_goes_on_as_if_nothing_had_happened() -> None:
    news = admitted({"main@1": 0.5, "main@2": 0.5})
    first = training_cast()
    first.refresh(news, np.zeros((0, 2), np.int32))
    first.began(first.seat(np.arange(20)))
    second = training_cast(seed=9)
    second.restore(first.save())

    for lineup in (first, second):
        lineup.refresh(news, np.zeros((0, 2), np.int32))
    assert [m.name for m in first.members] == [m.name for m in second.members]
    for mine, theirs in zip(first.members, second.members, strict=True):
        assert {n: a.tobytes() for n, a in mine.arrays.items()} == {
            n: a.tobytes() for n, a in theirs.arrays.items()
        }
    np.testing.assert_array_equal(first.seat(np.arange(100)), second.seat(np.arange(100)))


def test_changed_seats_hold_from_the_next_episode_on_and_survive_a_restore() -> None:
    lineup = training_cast()
    lineup.refresh(admitted({"main@1": 1.0}), np.zeros((0, 2), np.int32))
    before = lineup.seat(np.arange(4))
    change = SeatsChanged(revision=1, seats={"a": "script:first-legal", "b": "main"})

    assert lineup.refresh(admitted({"main@1": 1.0}, change), before)
    assert not lineup.refresh(admitted({"main@1": 1.0}, change), before)  # the same news again

    after = [[lineup.members[n].name for n in row] for row in lineup.seat(np.arange(3)).tolist()]
    assert after == [["script:first-legal", "main"]] * 3
    again = training_cast()
    again.restore(lineup.save())
    assert [m.text for m in again.members] == [m.text for m in lineup.members]
    np.testing.assert_array_equal(again.seat(np.arange(5)), lineup.seat(np.arange(5)))


def test_whose_snapshot_is_gone_stays_until_newer_pools_come() -> None:
    lineup = training_cast(games_per_draw=1)
    lineup.refresh(admitted({"main@0": 1.0}), NOBODY)
    lineup.began(lineup.seat(np.arange(64)))  # all have played enough
    lineup.refresh(admitted({"gone": 1.0}), NOBODY)
    assert {m.name for m in lineup.members if m.text == "league:main"} == {"main@0"}
    lineup.refresh(admitted({"main@2": 1.0}), NOBODY)
    assert {m.name for m in lineup.members if m.text == "league:main"} == {"main@2"}


def test_a_first_snapshot_that_is_gone_is_an_error() -> None:
    with pytest.raises(CheckpointGone):
        training_cast().refresh(admitted({"gone": 1.0}), NOBODY)


class Engine:
    """A deferred player that only counts how many of it are open."""

    kind, open = "engine", 0

    def __init__(self) -> None:
        Engine.open += 1

    def ask(self, question: Any) -> Any:
        raise AssertionError("nobody asks")

    def close(self) -> None:
        Engine.open -= 1


def engine_reseat(changed: SeatsChanged, known: Sequence[Member]) -> tuple[SeatMap, list[Member]]:
    seat_map, fresh = reseat(changed, known)
    for member in fresh:
        member.player = Engine()  # type: ignore[assignment]
    return seat_map, fresh


def test_replaced_engines_are_closed_after_their_last_game_and_made_anew_when_named_again() -> None:
    Engine.open = 0
    only_main = SeatMap(("a", "b"), {s: [("main", 1.0)] for s in ("a", "b")})
    members = [Member("main", PLAYER, "main", policy="main")]
    rng = np.random.default_rng(0)
    lineup = TrainingLineup(only_main, members, 10, load, rng, engine_reseat)

    def change(revision: int, name: str) -> Admitted:
        return admitted({}, SeatsChanged(revision=revision, seats={"a": "main", "b": name}))

    lineup.refresh(change(1, "engine:x?level=0"), NOBODY)
    playing = lineup.seat(np.arange(2))
    for level in range(1, 7):
        lineup.refresh(change(1 + level, f"engine:x?level={level}"), playing)
    assert Engine.open == 2, "the one in a game and the one that is named"
    lineup.refresh(change(8, "engine:x?level=0"), playing)
    assert Engine.open == 1, "it is still in its game, so it was not closed and is not made anew"
    lineup.refresh(change(9, "engine:x?level=3"), NOBODY)
    assert Engine.open == 1
    (sits,) = {lineup.members[n].name for n in lineup.seat(np.arange(9))[:, 1].tolist()}
    assert sits == "engine:x?level=3"
    assert not any(lineup.members[n].closed for n in lineup.seat(np.arange(9)).ravel().tolist())


@pytest.mark.parametrize("references", [0, 1])
def test_rating_games_are_of_two_and_everybody_gets_rated(references: int) -> None:
    members = [Member("league:main", PLAYER) for _ in range(4)]
    members += [Member("script:random", PLAYER, "script:random")] * references
    lineup = RatingLineup(2, members, 8, load, np.random.default_rng(0), ["main"])
    names = [f"main@{i}" for i in range(9)]
    files = {name: name for name in ["other@3", *names]}  # of another network: not to be seated
    met: Counter[str] = Counter()

    def news() -> Admitted:  # the least met are the least certain
        order = sorted(names, key=lambda name: met[name])
        pools = LeaguePools(pools={}, rated=("other@3", *order[:4]), files=files)
        return Admitted(WeightsVersion(1, 0), {}, pools)

    lineup.refresh(news(), np.zeros((0, 2), np.int32))
    slots = Slots(lineup, 12)
    for _ in range(300):
        slots.round(news())
        met = slots.met
    assert all(a != b for a, b in lineup.seat(np.arange(200)).tolist())
    assert min(met[name] for name in names) > 40, met
    assert references == (met["script:random"] > 0)
    assert not met["other@3"]
