"""Admission control: the credits that bound how old a trained fragment can be.

With F fragments per batch and a bound of K versions, a fragment played with weights number v may be
trained at any update from v to v + K: v + K is its deadline. Credits are granted so that the set of
fragments that were granted or have arrived can always be trained in time:

    for every update m >= now:   fragments with a deadline <= m   <=   F * (m - now + 1)

What is granted is a delivery: one turn of an actor's playing loop, a fragment for each policy that
learns; those are trained together and count as one here.

Grants at update `now` all have the deadline now + K, so it is enough that the whole set never has
more than F * (K + 1) members, and that an update takes the earliest deadlines first and waits when
taking it would leave the rest without room. An actor waits, nothing is discarded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec


class CreditBook(msgspec.Struct):
    """Who may play how much. Plain data, part of the checkpoint."""

    fragments_per_batch: int
    max_lag: int
    upto: dict[str, int] = {}  # actor -> it may play deliveries below this
    tickets: dict[str, list[int]] = {}  # actor -> number of the weights each grant was made at
    away: list[str] = []  # actors of an earlier generation that have not joined this one yet

    @property
    def offers(self) -> dict[str, int]:
        """What to tell the actors: nothing to those away, whose join will void their grants."""
        return {actor: upto for actor, upto in self.upto.items() if actor not in self.away}

    @property
    def outstanding(self) -> int:
        """Fragments that were granted and have not arrived."""
        return sum(len(numbers) for numbers in self.tickets.values())

    def restart(self) -> None:
        """A new generation: what was granted may still arrive, but nobody has joined it yet."""
        self.away = list(self.tickets)

    def join(self, actor: str, next_turn: int) -> None:
        """A new or returning actor; grants of its past are void."""
        self.leave(actor)
        self.upto[actor] = next_turn
        self.tickets[actor] = []

    def leave(self, actor: str) -> None:
        self.upto.pop(actor, None)
        self.tickets.pop(actor, None)
        self.away = [other for other in self.away if other != actor]

    def arrive(self, actor: str, delivery: int) -> bool:
        """A delivery is here; True if it was granted by this book, whose grant is now used."""
        if not self.tickets.get(actor) or delivery >= self.upto[actor]:
            return False
        self.tickets[actor].pop(0)
        return True

    def grant(self, number: int, waiting: int, behind: int = 0) -> bool:
        """Grant what fits beside the `waiting` fragments that have arrived; True if anything.

        `number` is that of the weights which will play, `behind` how many updates were begun since.
        """
        updates = self.max_lag + 1 - behind  # until the deadline of what is granted now
        room = self.fragments_per_batch * updates - waiting - self.outstanding
        granted = False
        present = [actor for actor in self.tickets if actor not in self.away]
        while room > 0 and present:
            actor = min(present, key=lambda a: len(self.tickets[a]))  # first of the fewest
            present.remove(actor)
            present.append(actor)  # and whoever was served last comes last: nobody starves
            self.tickets[actor] = [*self.tickets.pop(actor), number]
            self.upto[actor] += 1
            room -= 1
            granted = True
        return granted

    def deadlines(self) -> Iterable[int]:
        """Deadlines of the fragments that have not arrived."""
        for numbers in self.tickets.values():
            for number in numbers:
                yield number + self.max_lag

    def fits(self, now: int, deadlines: Sequence[int]) -> bool:
        """Whether fragments with these deadlines can all be trained from update `now` on."""
        for count, deadline in enumerate(sorted(deadlines), start=1):
            if count > self.fragments_per_batch * (deadline - now + 1):
                return False
        return True

    def may_train(self, now: int, left_waiting: Iterable[int]) -> bool:
        """Whether an update now leaves room for every other fragment in the updates after it."""
        return self.fits(now + 1, [*left_waiting, *self.deadlines()])
