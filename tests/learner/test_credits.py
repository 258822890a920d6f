"""Credits keep every fragment within its deadline and never leave anyone waiting for nothing."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.learner.credits import CreditBook

# --- by hand -------------------------------------------------------------------------------------


def test_a_new_actor_gets_all_the_room_there_is() -> None:
    book = CreditBook(fragments_per_batch=2, max_lag=1)
    book.join("0.1", 5)

    assert book.grant(number=7, waiting=1)

    assert book.upto == {"0.1": 8} and book.tickets == {"0.1": [7, 7, 7]}
    assert sorted(book.deadlines()) == [8, 8, 8]
    assert not book.grant(number=7, waiting=1)


def test_room_is_shared_evenly() -> None:
    book = CreditBook(2, 2)
    for actor in "abcd":
        book.join(actor, 0)
    book.grant(0, 0)
    assert sorted(len(t) for t in book.tickets.values()) == [1, 1, 2, 2]


def test_nobody_starves_when_there_are_more_actors_than_credits() -> None:
    book = CreditBook(fragments_per_batch=1, max_lag=1)  # two at a time
    for actor in "abc":
        book.join(actor, 0)
    played = {actor: 0 for actor in "abc"}
    for number in range(30):
        book.grant(number, 0)
        playing = [actor for actor in "abc" if book.tickets[actor]]
        actor = min(playing, key=lambda a: book.tickets[a][0])  # who was granted first
        assert book.arrive(actor, played[actor])
        played[actor] += 1
    assert min(played.values()) >= 5, played


def test_older_weights_have_less_time_and_get_fewer_grants() -> None:
    book = CreditBook(fragments_per_batch=2, max_lag=3)
    book.join("0.1", 0)
    book.grant(number=10, waiting=1, behind=2)  # now is 12; the deadline is 13: two updates
    assert book.tickets == {"0.1": [10, 10, 10]}
    assert book.fits(12, [*book.deadlines(), 13])
    assert not book.fits(12, [*book.deadlines(), 13, 13])


def test_nobody_is_granted_anything_when_nobody_is_there() -> None:
    assert not CreditBook(2, 2).grant(0, 0)


def test_only_what_was_granted_counts_as_credited() -> None:
    book = CreditBook(1, 1)
    book.join("0.1", 3)
    book.grant(0, 0)
    assert not book.arrive("1.1", 0), "an actor that never joined"
    assert not book.arrive("0.1", 5), "past what was granted"
    assert book.arrive("0.1", 3)
    assert book.outstanding == 1


def test_who_leaves_or_joins_again_loses_its_grants() -> None:
    book = CreditBook(1, 1)
    book.join("0.1", 0)
    book.grant(0, 0)
    book.join("0.1", 1)
    assert book.outstanding == 0 and book.upto == {"0.1": 1}
    book.grant(0, 0)
    book.leave("0.1")
    assert book.outstanding == 0 and book.upto == {}
    book.leave("0.1")  # twice is once


def test_after_a_restart_nobody_is_offered_anything_before_joining_again() -> None:
    book = CreditBook(1, 1)
    book.join("0.1", 0)
    book.grant(0, 0)
    book.restart()
    assert book.arrive("0.1", 0), "what was granted before still counts"
    assert not book.grant(1, 0) and book.offers == {}
    book.join("0.1", 1)
    assert book.grant(1, 0) and book.offers == {"0.1": 3}


@pytest.mark.parametrize(
    ("now", "deadlines", "fits"),
    [
        (5, [], True),
        (5, [5, 5], True),
        (5, [5, 5, 5], False),
        (5, [5, 5, 6, 6], True),
        (5, [5, 6, 6, 6, 6], False),
        (5, [4], False),
        (5, [9] * 10, True),
        (5, [9] * 11, False),
    ],
)
def test_a_set_fits_when_each_deadline_has_updates_enough(
    now: int, deadlines: list[int], fits: bool
) -> None:
    assert CreditBook(2, 4).fits(now, deadlines) is fits


def test_the_book_of_an_older_checkpoint_goes_on() -> None:
    """Its tickets were a list too, with one too many for a turn that was damaged."""
    old = (
        b'{"fragments_per_batch":1,"max_lag":1,"upto":{"0.1":7},"tickets":{"0.1":[3,3]},"away":[]}'
    )
    book = msgspec.json.decode(old, type=CreditBook)
    assert book.arrive("0.1", 6) and book.outstanding == 0


def test_a_late_actor_is_granted_nothing_until_it_has_brought_all() -> None:
    book = CreditBook(2, 1)
    for actor in "ab":
        book.join(actor, 0)
    book.grant(0, 0)
    book.pass_over("a")
    again = msgspec.json.decode(msgspec.json.encode(book), type=CreditBook)
    again.restart()
    for each in (book, again):
        assert each.outstanding == 2 and each.owing == ["a", "b"] and each.waiting == []
        each.grant(0, 0)
        assert each.upto["a"] == 2
        assert not each.arrive("a", 0) and each.late == ["a"]
        assert not each.arrive("a", 1) and each.late == []
    assert book.offers["a"] == 2, "it is still told of what it was granted"


def test_books_do_not_share_their_pages() -> None:
    first, second = CreditBook(1, 1), CreditBook(1, 1)
    first.join("0.1", 0)
    assert second.upto == {}


# --- simulated -----------------------------------------------------------------------------------


@dataclass
class Actor:
    """Plays what it was granted with the newest weights, at its own pace, in two moves."""

    name: str
    sequence: int = 0
    playing: int | None = None  # number of the weights of the fragment being played


@dataclass
class World:
    """A learner, its actors, and a wire that keeps each actor's order."""

    book: CreditBook
    number: int = 0
    waiting: list[int] = field(default_factory=list)  # deadlines of fragments that have come
    actors: dict[str, Actor] = field(default_factory=dict)
    wire: list[tuple[Any, ...]] = field(default_factory=list)
    born: int = 0
    lag_max: int = 0

    def check(self) -> None:
        everyone = [*self.waiting, *self.book.deadlines()]
        assert self.book.fits(self.number, everyone), "someone cannot be trained in time"
        room = self.book.fragments_per_batch * (self.book.max_lag + 1)
        assert len(everyone) <= room

    def join(self) -> None:
        self.born += 1
        actor = Actor(f"{self.born}.1")
        self.actors[actor.name] = actor
        self.wire.append(("joined", actor.name, 0))

    def leave(self, actor: Actor) -> None:
        """Killed: what it was playing is lost, what it sent stands."""
        del self.actors[actor.name]
        self.wire.append(("left", actor.name))

    def move(self, actor: Actor) -> bool:
        """Begin a fragment, or finish it; False if the actor can only wait."""
        if actor.playing is not None:
            self.wire.append(("fragment", actor.name, actor.sequence, actor.playing))
            actor.sequence += 1
            actor.playing = None
            return True
        if actor.sequence < self.book.offers.get(actor.name, 0):
            actor.playing = self.number
            return True
        return False

    def deliver(self) -> bool:
        if not self.wire:
            return False
        kind, name, *rest = self.wire.pop(0)
        if kind == "joined":
            self.book.join(name, rest[0])
            self.book.grant(self.number, len(self.waiting))
        elif kind == "left":
            self.book.leave(name)
            self.book.grant(self.number, len(self.waiting))
        else:
            sequence, version = rest
            assert self.book.arrive(name, sequence), "played without a credit"
            self.waiting.append(version + self.book.max_lag)
        return True

    def update(self) -> bool:
        """One batch, earliest deadlines first; False if it must wait."""
        self.waiting.sort()
        count = self.book.fragments_per_batch
        batch, rest = self.waiting[:count], self.waiting[count:]
        if len(batch) < count or not self.book.may_train(self.number, rest):
            return False
        for deadline in batch:
            lag = self.number - (deadline - self.book.max_lag)
            assert 0 <= lag <= self.book.max_lag, f"lag {lag}"
            self.lag_max = max(self.lag_max, lag)
        self.waiting = rest
        self.number += 1
        self.book.grant(self.number, len(self.waiting))
        return True

    def restart(self, checkpoint: World) -> None:
        """The learner goes on from an older book; every living actor joins again.

        Whatever was played since is abandoned, so the pending set and the number are the old ones.
        """
        self.book = msgspec.msgpack.decode(msgspec.msgpack.encode(checkpoint.book), type=CreditBook)
        self.book.restart()
        self.number, self.waiting = checkpoint.number, list(checkpoint.waiting)
        self.wire = []
        for name in list(self.book.tickets):
            if name not in self.actors:
                self.wire.append(("left", name))
        for actor in self.actors.values():
            actor.sequence += actor.playing is not None  # sent, and dropped as abandoned
            actor.playing = None
            self.wire.append(("joined", actor.name, actor.sequence))

    def settle(self) -> None:
        """With everyone at work, updates must go on: nobody waits for something impossible."""
        if not self.actors:
            self.join()
        goal = self.number + 3 * (self.book.max_lag + 2)
        while self.number < goal:
            moved = [self.deliver()]
            moved += [self.move(actor) for actor in self.actors.values()]
            moved += [self.update()]
            self.check()
            assert any(moved), "everyone waits for someone else"


MOVES = ["play"] * 8 + ["deliver"] * 6 + ["update"] * 5 + ["join", "leave", "save", "restart"]


@settings(max_examples=300, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 5),
    st.integers(0, 6),
    st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 7)), max_size=120),
)
def test_lag_is_bounded_and_nobody_waits_for_ever(
    actors: int, fragments_per_batch: int, max_lag: int, moves: list[tuple[str, int]]
) -> None:
    world = World(CreditBook(fragments_per_batch, max_lag))
    for _ in range(actors):
        world.join()
    checkpoint = copy.deepcopy(world)

    for move, which in moves:
        living = list(world.actors.values())
        match move:
            case "join" if len(living) < 8:
                world.join()
            case "leave" if living:
                world.leave(living[which % len(living)])
            case "play" if living:
                world.move(living[which % len(living)])
            case "deliver":
                world.deliver()
            case "update":
                world.update()
            case "save":
                checkpoint = copy.deepcopy(world)
            case "restart":
                world.restart(checkpoint)
        world.check()

    world.settle()
    assert world.lag_max <= max_lag


def test_the_bound_is_reached_by_actors_that_are_fast() -> None:
    """The room is used: with a slow learner fragments do get as old as they may."""
    world = World(CreditBook(1, 3))
    world.join()
    world.deliver()
    actor = world.actors["1.1"]
    for _ in range(20):
        while world.move(actor):
            pass
        while world.deliver():
            pass
        world.update()
    assert world.lag_max == 3


def test_with_a_bound_of_zero_every_batch_is_of_the_newest_weights() -> None:
    world = World(CreditBook(2, 0))
    for _ in range(3):
        world.join()
    world.settle()
    assert world.lag_max == 0 and world.number >= 6
