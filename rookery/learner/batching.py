"""From the bus to batches: receive, admit, count, and hand out fragments by deadline."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.bus import Bus, Position, Record
from rookery.codec import Fragment, decode_fragment
from rookery.errors import StalenessError
from rookery.learner.credits import CreditBook
from rookery.learner.ledger import Ledger
from rookery.messages import EXPERIENCES, ActorJoined, ActorLeft, WeightsVersion, decode_json

ABANDONED = "abandoned"  # played with weights that a learner restart took back
UNCREDITED = "uncredited"  # no credit of this learner stands for it, and there is no room


class Branch:
    """Which weights are ancestors of the current ones.

    Every learner start is a generation that goes on from some update; whatever older generations
    did after that point is not part of this history.
    """

    def __init__(self, starts: dict[int, int]) -> None:
        self.starts = starts  # generation -> the update number it began at, our own ancestry only

    def number_on_branch(self, version: WeightsVersion) -> int:
        """The update at which these weights leave our history; theirs if they never do."""
        later = [start for gen, start in self.starts.items() if gen > version.generation]
        return min([version.number, *later])

    def contains(self, version: WeightsVersion) -> bool:
        return self.number_on_branch(version) == version.number


class Inbox:
    """The learner's side of `experiences`."""

    def __init__(
        self,
        bus: Bus,
        book: CreditBook,
        ledger: Ledger,
        branch: Branch,
        position: Position | str,
        pending: Sequence[tuple[bytes, Fragment]],
        wait_s: float,
        trains_abandoned: bool,
    ) -> None:
        self.book, self.ledger, self.branch = book, ledger, branch
        self.book.restart()
        self.generation = max(branch.starts)
        self.pending: list[tuple[bytes, Fragment]] = list(pending)
        self.bytes_read = 0
        self.lag_max = 0
        self._subscription = bus.subscribe(EXPERIENCES, position)
        self._wait_s = wait_s
        self._trains_abandoned = trains_abandoned

    @property
    def position(self) -> Position:
        return self._subscription.position()

    @property
    def pending_steps(self) -> int:
        return sum(fragment.header.steps for _, fragment in self.pending)

    def receive(self, now: int, wait_s: float | None = None) -> bool:
        """Take in what has come; True if the set of actors changed, so that credits are due."""
        changed = False
        for record in self._subscription.poll(self._wait_s if wait_s is None else wait_s):
            changed |= self._take(record, now)
        return changed

    def batch(self, now: int) -> list[Fragment] | None:
        """F fragments for update `now`, earliest deadline first; None while it has to wait."""
        count = self.book.fragments_per_batch
        if len(self.pending) < count:
            return None
        self.pending.sort(key=lambda item: self._deadline(item[1]))  # stable: arrival breaks ties
        rest = [self._deadline(fragment) for _, fragment in self.pending[count:]]
        if not self.book.may_train(now, rest):
            return None
        chosen = [fragment for _, fragment in self.pending[:count]]
        for fragment in chosen:
            self._check_lag(fragment, now)
        del self.pending[:count]
        return chosen

    def lag(self, fragment: Fragment, now: int) -> int:
        return now - self.branch.number_on_branch(fragment.header.version)

    def settle(self, fragments: Sequence[Fragment]) -> None:
        for fragment in fragments:
            header = fragment.header
            self.ledger.train(header.actor, header.sequence, header.steps)

    def abandon_all(self) -> None:
        """Drop whatever is on the bus: an inline actor is about to play it again."""
        while records := self._subscription.poll(0.0):
            for record in records:
                if record.headers.get("kind") == "fragment":
                    self._drop(decode_fragment(record.payload), ABANDONED)

    def _take(self, record: Record, now: int) -> bool:
        kind = record.headers.get("kind")
        if kind == "joined":
            joined = decode_json(record.payload, ActorJoined)
            if joined.generation != self.generation:
                return False  # meant for a learner before this one
            self.book.join(joined.actor, joined.next_sequence)
            return True
        if kind == "left":
            self.book.leave(decode_json(record.payload, ActorLeft).actor)
            return True
        self.bytes_read += len(record.payload)
        self._admit(record.payload, decode_fragment(record.payload), now)
        return False

    def _admit(self, payload: bytes, fragment: Fragment, now: int) -> None:
        header = fragment.header
        if not self.ledger.receive(header.actor, header.sequence, header.steps):
            return
        credited = self.book.arrive(header.actor, header.sequence)
        on_branch = self.branch.contains(header.version)
        if on_branch:
            fits = credited or self._fits_beside(fragment, now)
        else:
            fits = self._trains_abandoned and self._fits_beside(fragment, now)
        if fits:
            self.pending.append((payload, fragment))
        else:
            self._settle_drop(fragment, UNCREDITED if on_branch else ABANDONED)

    def _fits_beside(self, fragment: Fragment, now: int) -> bool:
        """Whether a fragment that no credit stands for can be trained without harm to others."""
        waiting = [self._deadline(other) for _, other in self.pending]
        everyone = [*waiting, *self.book.deadlines(), self._deadline(fragment)]
        return self.book.fits(now, everyone)

    def _drop(self, fragment: Fragment, reason: str) -> None:
        header = fragment.header
        if self.ledger.receive(header.actor, header.sequence, header.steps):
            self._settle_drop(fragment, reason)

    def _settle_drop(self, fragment: Fragment, reason: str) -> None:
        header = fragment.header
        self.ledger.drop(header.actor, header.sequence, header.steps, reason)

    def _deadline(self, fragment: Fragment) -> int:
        return self.branch.number_on_branch(fragment.header.version) + self.book.max_lag

    def _check_lag(self, fragment: Fragment, now: int) -> None:
        lag = self.lag(fragment, now)
        if not 0 <= lag <= self.book.max_lag:
            raise StalenessError(
                f"fragment {fragment.header.sequence} of actor {fragment.header.actor} is "
                f"{lag} versions old at update {now}; the bound is {self.book.max_lag}"
            )
        self.lag_max = max(self.lag_max, lag)
