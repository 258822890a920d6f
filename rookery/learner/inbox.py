"""From the bus to batches: receive, admit, count, and hand out fragments by deadline."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from rookery.bus import Bus, Position, Record
from rookery.errors import BusError, LearnerFenced, MessageError, StalenessError
from rookery.learner.credits import CreditBook
from rookery.learner.deliveries import Delivery, Part, deliveries_of, turn_of
from rookery.learner.generations import Branch
from rookery.learner.heartbeats import Heartbeats
from rookery.learner.lateness import Lateness
from rookery.learner.ledger import DAMAGED, Ledger
from rookery.learner.walk_ins import LATE, OTHERS, WalkIns, oldest, younger
from rookery.messages import (
    DIVERGED,
    EXPERIENCES,
    ActorJoined,
    ActorLeft,
    LearnerClaimed,
    LearnerOrders,
    decode_json,
    is_later_life,
)
from rookery.messages.fragment import Fragment, FragmentHeader, decode_fragment
from rookery.messages.steps import LONG_AGO

logger = logging.getLogger(__name__)

NO_ORDERS = LearnerOrders(revision=0, paused=False, hyperparameters={}, checkpoints=0)
ABANDONED = "abandoned"  # played with weights that a learner restart took back
UNCREDITED = "uncredited"  # no credit of this learner stands for it, and there is no room
LOOK_AGAIN_S = 2.0  # without anything received, before the log is asked whether it lost something
TRAINING_NAP_S = 0.002  # between looks at the bus while an update computes: each costs it 40 us
BLOCKED_NAP_S = 0.02  # between looks while somebody can only wait for others
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.orders = orders  # the newest
        self._trusted = trusted  # of a record that nobody but a controller may write
        self.book, self.ledger, self.branch = book, ledger, branch
        self.book.restart()
        self.generation = max(branch.starts)
        self.pending, self._partial, broken = deliveries_of(
            received, branch.starts[self.generation]
        )
        self._settle_drop([fragment for _, fragment in broken], DAMAGED)
        self.training: list[Delivery] = []  # handed out for updates that are not finished
        self.asked_again = False  # whether an actor may not have the newest weights
        self.bytes_read = 0
        self._look_again = time.monotonic() + LOOK_AGAIN_S
        self.lag_max = 0
        self.heartbeats = Heartbeats(lambda: bus.trouble is not None)
        self._lateness = Lateness(clock)
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
        """Places that no credit can have: of what waits, and those kept free for what may come.

        That is walk-ins, and late actors if their age is corrected; a batch is always granted.
        """
        book = self.book
        kept = self._walk_ins.kept_free(self.pending) + len(book.late) * self._walk_ins.corrects
        most = 0 if book.draining else book.fragments_per_batch * book.max_lag
        return len(self.pending) + min(kept, most)

    def receive(self, now: int, wait_s: float | None = None) -> bool:
        """Take in what has come; True if credits are due: actors changed, or what was granted is
        not awaited any more."""
        changed = False
        for actor in self.heartbeats.silent():  # it may come back, and joins again then
            self._leave(actor)
            changed = True
        self._look()
        records = self._subscription.poll(self._patience_s(now) if wait_s is None else wait_s)
        self._look()
        if self._may_have_lost(bool(records)) and self._subscription.overtaken():
            for actor in list(self.book.upto):  # their grants may stand for what is gone
                self._leave(actor)
            changed = True
        for record in records:
            try:
                changed |= self._take(record, now)
            except MessageError as error:
                changed |= self._skip(record, error)
        return changed or (not records and self._pass_over_late(now))

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
        if not self._is_blocked(now):
            return self._wait_s
        return 0.0 if self._late() else min(self._wait_s, BLOCKED_NAP_S)

    def _look(self) -> None:
        self._lateness.look(self.book.owing, hears=self._bus.trouble is None)

    def _is_blocked(self, now: int) -> bool:
        """Whether training stands still, and so does somebody who would go on."""
        book = self.book
        stands = not self.orders.paused and not self.training and not self._can_train(now)
        return stands and book.outstanding > 0 and bool(book.waiting)

    def _late(self) -> list[str]:
        """All that are waited for, if every one of them is late."""
        awaited = [actor for actor, numbers in self.book.tickets.items() if numbers]
        return awaited if self._lateness.overdue().issuperset(awaited) else []

    def _pass_over_late(self, now: int) -> bool:
        """Wait no longer for actors that are late, if nothing else is waited for."""
        late = self._late() if self._is_blocked(now) else []
        for actor in late:
            logger.info("actor %s is late: the others go on without it", actor)
            self.book.pass_over(actor)
        return bool(late)

    def fits_as(self, fragments_per_batch: int, max_lag: int, now: int) -> bool:
        """Whether all that waits or was granted could be trained in such batches in time."""
        book = msgspec.structs.replace(
            self.book, fragments_per_batch=fragments_per_batch, max_lag=max_lag
        )
        wider = max(max_lag, self.book.max_lag)  # corrected is only what is so under both bounds
        shorter = wider - max_lag
        waiting = [self._deadline(delivery, wider) - shorter for delivery in self.pending]
        return book.fits(now, [*waiting, *book.deadlines()])

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

    def settle(self, deliveries: Sequence[Delivery], skipped: Sequence[str] = ()) -> None:
        """These were trained, the first that were handed out; not those of `skipped` policies."""
        del self.training[: len(deliveries)]
        for delivery in deliveries:
            for fragment in delivery.fragments:
                header, steps = fragment
                if delivery.walk_in and not header.steps:
                    continue  # of a policy that it did not bring
                valid = np.count_nonzero(steps.valid)
                used = np.count_nonzero(self._walk_ins.used(fragment))
                trained = 0 if header.policy in skipped else used
                self.ledger.train(header.actor, header.sequence, int(trained))
                overdue = LATE if delivery.walk_in else HELD
                for count, reason in (
                    (header.steps - valid, overdue),
                    (valid - used, OTHERS),
                    (used - trained, DIVERGED),
                ):
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
        if kind in ("joined", "left"):
            self.ledger.catch_up(record.key, _count(record.headers.get("steps_total", "")))
        if kind == "joined":
            joined = decode_json(record.payload, ActorJoined)
            if joined.generation != self.generation:
                return False  # meant for a learner before this one
            if any(is_later_life(other, joined.actor) for other in self.book.upto):
                return False  # it was replaced, and will see that
            if self.book.has_joined(joined.actor, joined.next_turn):
                self.asked_again = True  # it has not seen our answer, or not the weights before it
                return True
            for other in list(self.book.upto):
                if is_later_life(joined.actor, other):
                    self._leave(other)
            self._lateness.forget(joined.actor)
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
        return self._collect(record.payload, decode_fragment(record.payload), now)

    def _take_orders(self, record: Record) -> None:
        orders = decode_json(record.payload, LearnerOrders)
        if not self._trusted(record):
            logger.warning("orders that are not signed were ignored")
        elif orders.revision > self.orders.revision:
            self.orders = orders

    def _skip(self, record: Record, error: MessageError) -> bool:
        """Count a damaged message; True if it stood for a credit, which is returned.

        Its headers are believed if they go on where its sender was; otherwise its steps count as
        lost when the next fragment says how many there were.
        """
        self.ledger.damaged += 1
        logger.warning("%s offset %d: skipped: %s", record.topic, record.offset, error)
        actor, headers = record.key, record.headers
        if headers.get("kind") != "fragment":
            return False
        sequence, steps, total = (
            _count(headers.get(name, "")) for name in ("sequence", "steps", "steps_total")
        )
        if not self.ledger.goes_on(actor, sequence, total - steps):
            return self.book.forfeit(actor)
        self.ledger.receive(actor, sequence, steps, total - steps)
        self.ledger.drop(actor, sequence, steps, DAMAGED)
        self._break_off(actor)
        return self._turn_is_gone(actor, sequence // self._walk_ins.parts)

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
        self._lateness.forget(actor)
        self._break_off(actor, ABANDONED)

    def _break_off(self, actor: str, reason: str = DAMAGED) -> None:
        """Nothing more comes of the turn that an actor had sent a part of."""
        parts = self._partial.pop(actor, [])
        self._settle_drop([fragment for _, fragment in parts], reason)

    def _turn_is_gone(self, actor: str, turn: int) -> bool:
        """Whether something is to be granted, now that this turn will not be trained."""
        late = len(self.book.late)
        self._lateness.arrived(actor)
        return self.book.arrive(actor, turn) or len(self.book.late) < late

    def _collect(self, payload: bytes, fragment: Fragment, now: int) -> bool:
        header = fragment.header
        actor, turn = turn_of(header)
        if not self._arrived(header):  # twice; its credit returned with the first, if it was ours
            whole_before = self.ledger.next_sequence[actor] >= (turn + 1) * header.parts
            return whole_before and self._turn_is_gone(actor, turn)
        parts: list[Part] = [*self._partial.pop(actor, ()), (payload, fragment)]
        found = deliveries_of(parts, now)
        self._partial |= found.rest
        self._settle_drop([fragment for _, fragment in found.broken], DAMAGED)
        changed = False
        for _, broken in found.broken:
            changed |= self._turn_is_gone(*turn_of(broken.header))
        for delivery in found.whole:
            changed |= self._admit(delivery, now)
        return changed

    def _admit(self, delivery: Delivery, now: int) -> bool:
        """Take it or drop it; True if its place, or its actor, is free for a grant now."""
        late, granted = len(self.book.late), self.book.outstanding
        reason = self._refusal(delivery, now)
        if not reason:
            self.pending.append(delivery)
            return len(self.book.late) < late
        self._settle_drop(delivery.fragments, reason)
        return len(self.book.late) < late or self.book.outstanding < granted

    def _refusal(self, delivery: Delivery, now: int) -> str:
        """Why it is not trained; empty: it is."""
        actor, turn = turn_of(delivery.fragments[-1].header)
        late, granted_at = actor in self.book.late, self.book.granted_at(actor, turn)
        self.book.arrive(actor, turn)
        self._lateness.arrived(actor)
        lag, max_lag = self.lag(delivery, now), self.book.max_lag
        if refusal := self._walk_ins.refusal(delivery, lag, max_lag):
            return refusal
        if not self.branch.contains(delivery.version):
            fits = self._walk_ins.corrects and self._fits_beside(delivery, now)
            return "" if fits else ABANDONED
        credited = granted_at is not None and granted_at <= now - lag
        in_time = lag <= max_lag or delivery.walk_in or late
        fits = credited or (in_time and self._fits_beside(delivery, now))
        return "" if fits else (LATE if late else UNCREDITED)

    def _is_corrected(self, delivery: Delivery, max_lag: int | None = None) -> bool:
        """Whether no bound holds for its age: a walk-in, or what came later than its bound from an
        actor that was late, for algorithms that correct for it."""
        bound = self.book.max_lag if max_lag is None else max_lag
        beyond = delivery.came - self.branch.number_on_branch(delivery.version) > bound
        return self._walk_ins.corrects and (delivery.walk_in or beyond)

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

    def _deadline(self, delivery: Delivery, max_lag: int | None = None) -> int:
        bound = self.book.max_lag if max_lag is None else max_lag
        number = self.branch.number_on_branch(delivery.version)
        if self._is_corrected(delivery, bound):
            number = max(number, delivery.came)
        return number + bound

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


def _count(text: str) -> int:
    """A number in a header; -1 where there is none that anyone could have counted to."""
    return int(text) if text.isdecimal() and len(text) < 19 else -1
