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

An actor plays its turns in order, so its tickets always stand for the last turns that it was
granted: the arrival of one voids those of the turns before it, which were damaged or lost. Whoever
is late (`learner/lateness.py`) has no ticket that anybody waits for, and gets none before it has
brought all that it owes.
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
    late: list[str] = []  # actors whose grants reserve no place until they have brought all of them
    draining: bool = False  # others are to follow: a batch that was begun is filled up, no more

    @property
    def offers(self) -> dict[str, int]:
        """What to tell the actors: nothing to those away, whose join will void their grants."""
        return {actor: upto for actor, upto in self.upto.items() if actor not in self.away}

    @property
    def outstanding(self) -> int:
        """Fragments that were granted and have not arrived, those of late actors aside."""
        return sum(len(numbers) for numbers in self.tickets.values())

    @property
    def owing(self) -> list[str]:
        """Actors that were granted what has not arrived."""
        return [actor for actor, numbers in self.tickets.items() if numbers or actor in self.late]

    @property
    def waiting(self) -> list[str]:
        """Actors that have joined, and can only wait for a grant."""
        return [a for a in self.tickets if a not in self.away and a not in self.owing]

    def restart(self) -> None:
        """A new generation: what was granted may still arrive, but nobody has joined it yet."""
        self.away = list(self.tickets)

    def join(self, actor: str, next_turn: int) -> None:
        """A new or returning actor; grants of its past are void."""
        self.leave(actor)
        self.upto[actor] = next_turn
        self.tickets[actor] = []

    def has_joined(self, actor: str, next_turn: int) -> bool:
        """Whether a join only says again what is known: nothing came since, and all is owed."""
        if actor not in self.tickets or actor in self.away:
            return False
        return actor in self.late or self.upto[actor] - len(self.tickets[actor]) == next_turn

    def leave(self, actor: str) -> None:
        self.upto.pop(actor, None)
        self.tickets.pop(actor, None)
        self.away = [other for other in self.away if other != actor]
        self.late = [other for other in self.late if other != actor]

    def granted_at(self, actor: str, turn: int) -> int | None:
        """The number of the weights that a turn was granted for; None: nobody waits for it."""
        tickets = self.tickets.get(actor, [])
        place = len(tickets) - self.upto.get(actor, 0) + turn
        return tickets[place] if 0 <= place < len(tickets) else None

    def arrive(self, actor: str, turn: int) -> bool:
        """A turn is here, or known to be gone; True if a ticket stood for it, which is now used."""
        after = self.upto.get(actor, 0) - turn - 1  # granted turns that are still to come
        if after < 0:
            return False
        if after == 0 and actor in self.late:
            self.late.remove(actor)
        used = max(0, len(self.tickets[actor]) - after)
        del self.tickets[actor][:used]
        return used > 0

    def forfeit(self, actor: str) -> bool:
        """A turn is gone and nobody knows which: the oldest that its actor owes."""
        if actor in self.late:
            self.late.remove(actor)
        elif self.tickets.get(actor):
            del self.tickets[actor][0]
        else:
            return False
        return True

    def pass_over(self, actor: str) -> None:
        """Nobody waits for what this actor owes any more."""
        self.tickets[actor] = []
        self.late.append(actor)

    def resize(self, fragments_per_batch: int, max_lag: int) -> None:
        """Go on with other batches and another bound; only where `Inbox.fits_as` says so."""
        self.fragments_per_batch, self.max_lag = fragments_per_batch, max_lag
        self.draining = False

    def grant(self, number: int, waiting: int, behind: int = 0) -> bool:
        """Grant what fits beside the `waiting` fragments that have arrived; True if anything.

        `number` is that of the weights which will play, `behind` how many updates were begun since.
        """
        updates = self.max_lag + 1 - behind  # until the deadline of what is granted now
        taken = waiting + self.outstanding
        if self.draining:
            updates = min(updates, 1 if taken else 0)
        room = self.fragments_per_batch * updates - taken
        granted = False
        present = [a for a in self.tickets if a not in self.away and a not in self.late]
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
