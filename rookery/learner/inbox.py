"""From the bus to batches: receive, admit, count, and hand out fragments by deadline."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

import numpy as np

from rookery.bus import Bus, Position, Record
from rookery.errors import BusError, LearnerFenced, MessageError, StalenessError
from rookery.learner.credits import CreditBook
from rookery.learner.deliveries import Delivery, deliveries_of
from rookery.learner.generations import Branch
from rookery.learner.heartbeats import Heartbeats
from rookery.learner.ledger import Ledger
from rookery.learner.walk_ins import LATE, OTHERS, WalkIns, oldest, younger
from rookery.messages import (
    EXPERIENCES,
    ActorJoined,
    ActorLeft,
    LearnerClaimed,
    LearnerOrders,
    decode_json,
)
from rookery.messages.fragment import Fragment, FragmentHeader, decode_fragment
from rookery.messages.steps import LONG_AGO

logger = logging.getLogger(__name__)

NO_ORDERS = LearnerOrders(revision=0, paused=False, hyperparameters={}, checkpoints=0)
ABANDONED = "abandoned"  # played with weights that a learner restart took back
UNCREDITED = "uncredited"  # no credit of this learner stands for it, and there is no room
LOOK_AGAIN_S = 2.0  # without anything received, before the log is asked whether it lost something
TRAINING_NAP_S = 0.002  # between looks at the bus while an update computes: each costs it 40 us
HELD = "held"  # a step that waited for its seat's next turn for longer than the bound allows


class Inbox:
    """The learner's side of `experiences`."""

    def __init__(
        self,
        bus: Bus,
        book: CreditBook,
        ledger: Ledger,
        branch: Branch,
        position: Position | str,
        received: Sequence[tuple[bytes, Fragment]],
        wait_s: float,
        walk_ins: WalkIns,
        orders: LearnerOrders = NO_ORDERS,
        trusted: Callable[[Record], bool] = lambda record: True,
    ) -> None:
        self.orders = orders  # the newest
        self._trusted = trusted  # of a record that nobody but a controller may write
        self.book, self.ledger, self.branch = book, ledger, branch
        self.book.restart()
        self.generation = max(branch.starts)
        self.pending, self._partial = deliveries_of(received, branch.starts[self.generation])
        self.training: list[Delivery] = []  # handed out for updates that are not finished
        self.bytes_read = 0
        self._look_again = time.monotonic() + LOOK_AGAIN_S
        self.lag_max = 0
        self.heartbeats = Heartbeats(lambda: bus.trouble is not None)
        self._bus = bus
        self._subscription = bus.subscribe(EXPERIENCES, position)
        self._wait_s = wait_s
        self._walk_ins = walk_ins

    @property
    def position(self) -> Position:
        return self._subscription.position()

    def unread(self) -> int | None:
        """How many messages wait on the bus; None while it cannot be asked."""
        try:
            return None if self._bus.trouble is not None else self._subscription.lag()
        except BusError:
            return None

    @property
    def updates_begun(self) -> int:
        """Updates that deliveries were handed out for and that are not finished."""
        return len(self.training) // self.book.fragments_per_batch

    @property
    def pending_steps(self) -> int:
        return sum(fragment.header.steps for _, fragment in self.received)

    @property
    def received(self) -> list[tuple[bytes, Fragment]]:
        """Every fragment that is not trained yet, those of unfinished deliveries too."""
        whole = [
            pair
            for delivery in [*self.training, *self.pending]
            for pair in zip(delivery.payloads, delivery.fragments, strict=False)  # as they came
        ]
        return whole + [pair for parts in self._partial.values() for pair in parts]

    @property
    def places_taken(self) -> int:
        """Places that no credit can have: of what waits, and those kept free for walk-ins."""
        return len(self.pending) + self._walk_ins.kept_free(self.pending)

    def receive(self, now: int, wait_s: float | None = None) -> bool:
        """Take in what has come; True if the set of actors changed, so that credits are due."""
        changed = False
        for actor in self.heartbeats.silent():  # it may come back, and joins again then
            self._leave(actor)
            changed = True
        records = self._subscription.poll(self._patience_s(now) if wait_s is None else wait_s)
        if self._may_have_lost(bool(records)) and self._subscription.overtaken():
            for actor in list(self.book.upto):  # their grants may stand for what is gone
                self._leave(actor)
            changed = True
        for record in records:
            try:
                changed |= self._take(record, now)
            except MessageError as error:
                self._skip(record, error)
        return changed

    def batch(self, now: int) -> list[Delivery] | None:
        """F deliveries for update `now`, earliest deadline first; None while it has to wait."""
        if not self._can_train(now):
            return None
        count = self.book.fragments_per_batch
        chosen = self.pending[:count]
        for delivery in chosen:
            self._check_lag(delivery, now)
        del self.pending[:count]
        batch = [self._trainable(delivery, now) for delivery in chosen]
        self.training += batch
        return batch

    def _patience_s(self, now: int) -> float:
        """What is at hand is trained at once, whatever else may come."""
        if self._can_train(now):
            return 0.0
        if self.training:
            time.sleep(TRAINING_NAP_S)
            return 0.0
        return self._wait_s

    def _can_train(self, now: int) -> bool:
        """Whether a batch is at hand that leaves everyone else in time; sorts by deadline."""
        count = self.book.fragments_per_batch
        if self.orders.paused or len(self.pending) < count:
            return False
        self.pending.sort(key=self._deadline)  # stable: arrival breaks ties
        rest = [self._deadline(delivery) for delivery in self.pending[count:]]
        return self.book.may_train(now, rest)

    def lag(self, delivery: Delivery, now: int) -> int:
        return now - self.branch.number_on_branch(delivery.version)

    def settle(self, deliveries: Sequence[Delivery]) -> None:
        """These were trained: the first that were handed out."""
        del self.training[: len(deliveries)]
        for delivery in deliveries:
            for fragment in delivery.fragments:
                header, steps = fragment
                if delivery.walk_in and not header.steps:
                    continue  # of a policy that it did not bring
                valid = np.count_nonzero(steps.valid)
                used = np.count_nonzero(self._walk_ins.used(fragment))
                self.ledger.train(header.actor, header.sequence, int(used))
                overdue = LATE if delivery.walk_in else HELD
                for count, reason in ((header.steps - valid, overdue), (valid - used, OTHERS)):
                    if count:
                        self.ledger.drop_some(int(count), reason, header.actor)

    def _trainable(self, delivery: Delivery, now: int) -> Delivery:
        """Without steps that are too old: a held one may be older than its fragment by more than
        the bound, but not than twice the bound and one; and whole, if it is a walk-in."""
        bound = self.book.max_lag if delivery.walk_in else 2 * self.book.max_lag + 1
        bound = min(bound - self.lag(delivery, now), LONG_AGO - 1)
        if self._is_corrected(delivery):
            bound = LONG_AGO
        if any(oldest(fragment) > bound for fragment in delivery.fragments):
            kept = tuple(younger(fragment, bound) for fragment in delivery.fragments)
            delivery = dataclasses.replace(delivery, fragments=kept)
        return self._walk_ins.whole(delivery) if delivery.walk_in else delivery

    def abandon_all(self) -> None:
        """Drop whatever is on the bus: an inline actor is about to play it again."""
        while records := self._subscription.poll(0.0):
            for record in records:
                if record.headers.get("kind") == "fragment":
                    try:
                        self._drop(decode_fragment(record.payload), ABANDONED)
                    except MessageError as error:
                        self._skip(record, error)

    def _take(self, record: Record, now: int) -> bool:
        kind = record.headers.get("kind")
        if kind == "joined":
            joined = decode_json(record.payload, ActorJoined)
            if joined.generation != self.generation:
                return False  # meant for a learner before this one
            self.book.join(joined.actor, joined.next_turn)
            self.heartbeats.expect(joined.actor, joined.heartbeat_s)
            return True
        if kind == "orders":
            self._take_orders(record)
            return False
        self.heartbeats.heard(record.key)
        if kind == "alive":
            return False
        if kind == "claimed":
            claimed = decode_json(record.payload, LearnerClaimed).generation
            if claimed > self.generation:
                raise LearnerFenced(
                    f"another learner took this run over as generation {claimed}; this one was "
                    f"{self.generation}"
                )
            return False
        if kind == "left":
            self._leave(decode_json(record.payload, ActorLeft).actor)
            return True
        self.bytes_read += len(record.payload)
        self._collect(record.payload, decode_fragment(record.payload), now)
        return False

    def _take_orders(self, record: Record) -> None:
        orders = decode_json(record.payload, LearnerOrders)
        if not self._trusted(record):
            logger.warning("orders that are not signed were ignored")
        elif orders.revision > self.orders.revision:
            self.orders = orders

    def _skip(self, record: Record, error: MessageError) -> None:
        self.ledger.damaged += 1
        logger.warning("%s offset %d: skipped: %s", record.topic, record.offset, error)

    def _may_have_lost(self, received: bool) -> bool:
        """Once in a while: experience that is awaited for long may be gone."""
        now = time.monotonic()
        if not received and now < self._look_again:
            return False
        self._look_again = now + LOOK_AGAIN_S
        return not received

    def _leave(self, actor: str) -> None:
        self.book.leave(actor)
        self.heartbeats.forget(actor)
        for _, fragment in self._partial.pop(actor, ()):
            self._settle_drop([fragment], ABANDONED)

    def _collect(self, payload: bytes, fragment: Fragment, now: int) -> None:
        header = fragment.header
        if not self._arrived(header):
            return
        parts = [*self._partial.get(header.actor, ()), (payload, fragment)]
        whole, rest = deliveries_of(parts, now)
        self._partial.pop(header.actor, None)
        self._partial |= rest
        for delivery in whole:
            self._admit(delivery, now)

    def _admit(self, delivery: Delivery, now: int) -> None:
        reason = self._refusal(delivery, now)
        if reason:
            self._settle_drop(delivery.fragments, reason)
        else:
            self.pending.append(delivery)

    def _refusal(self, delivery: Delivery, now: int) -> str:
        """Why it is not trained; empty: it is."""
        header = delivery.fragments[-1].header
        credited = self.book.arrive(header.actor, header.sequence // header.parts)
        if delivery.walk_in:
            lag = self.lag(delivery, now)
            if refusal := self._walk_ins.refusal(delivery, lag, self.book.max_lag):
                return refusal
        on_branch = self.branch.contains(delivery.version)
        fits = (credited and on_branch) or self._fits_beside(delivery, now)
        if on_branch:
            return "" if fits else UNCREDITED
        return "" if fits and self._walk_ins.corrects else ABANDONED

    def _is_corrected(self, delivery: Delivery) -> bool:
        """Whether no bound holds for its age: a walk-in for algorithms that correct for it."""
        return delivery.walk_in and self._walk_ins.corrects

    def _fits_beside(self, delivery: Delivery, now: int) -> bool:
        """Whether a delivery that no credit stands for can be trained without harm to others."""
        waiting = [self._deadline(other) for other in self.pending]
        everyone = [*waiting, *self.book.deadlines(), self._deadline(delivery)]
        return self.book.fits(now, everyone)

    def _drop(self, fragment: Fragment, reason: str) -> None:
        header = fragment.header
        if self._arrived(header):
            self._settle_drop([fragment], reason)

    def _arrived(self, header: FragmentHeader) -> bool:
        return self.ledger.receive(header.actor, header.sequence, header.steps, header.first_step)

    def _settle_drop(self, fragments: Sequence[Fragment], reason: str) -> None:
        for fragment in fragments:
            header = fragment.header
            self.ledger.drop(header.actor, header.sequence, header.steps, reason)

    def _deadline(self, delivery: Delivery) -> int:
        number = self.branch.number_on_branch(delivery.version)
        if self._is_corrected(delivery):
            number = max(number, delivery.came)
        return number + self.book.max_lag

    def _check_lag(self, delivery: Delivery, now: int) -> None:
        if self._is_corrected(delivery):
            return
        lag = self.lag(delivery, now)
        if not 0 <= lag <= self.book.max_lag:
            header = delivery.fragments[0].header
            raise StalenessError(
                f"fragment {header.sequence} of actor {header.actor} is "
                f"{lag} versions old at update {now}; the bound is {self.book.max_lag}"
            )
        self.lag_max = max(self.lag_max, lag)
