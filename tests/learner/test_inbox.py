"""The inbox admits what may be trained, counts everything, and hands it out in time."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.actor import transport
from rookery.actor.loop import Played
from rookery.actor.transport import ActorTransport, message_of
from rookery.actor.walk_in import Lane, Row, Seen, WalkInSender
from rookery.bus import EARLIEST, Outgoing
from rookery.bus.memory import MemoryBus
from rookery.config.models import LearnerConfig
from rookery.control.balance import balance
from rookery.errors import InputError, StalenessError
from rookery.learner.credits import CreditBook
from rookery.learner.deliveries import Delivery
from rookery.learner.generations import Branch
from rookery.learner.inbox import ABANDONED, HELD, UNCREDITED, Inbox
from rookery.learner.ledger import DAMAGED, LOST, TRAINED, Ledger
from rookery.learner.scaling import Scaling
from rookery.learner.transport import LearnerTransport
from rookery.learner.walk_ins import LATE, MISFIT, OTHERS, WalkIns
from rookery.messages import (
    EXPERIENCES,
    ActorId,
    ActorJoined,
    ActorLeft,
    WeightsVersion,
    encode_json,
)
from rookery.messages.fragment import Fragment, FragmentHeader, decode_fragment
from rookery.messages.steps import LONG_AGO, Steps
from rookery.messages.weights import Weights

STEPS = 3


def steps(valid: int = STEPS, behind: int = 0) -> Steps:
    flags = np.zeros((STEPS, 1), bool)
    numbers = np.zeros((STEPS, 1), np.float32)
    indices = np.zeros((STEPS, 1), np.uint8)
    return Steps(
        observation={"": np.zeros((STEPS + 1, 1, 1), np.float32)},
        action=np.zeros((STEPS, 1), np.int32),
        reward=numbers,
        terminated=flags,
        truncated=flags,
        valid=np.arange(STEPS)[:, None] < valid,
        log_prob=numbers,
        seat=indices,
        player=indices,
        behind=np.array([[behind], [0], [0]], np.uint8),
    )


def fragment(
    actor: str,
    sequence: int,
    version: tuple[int, int],
    parts: int = 1,
    behind: int = 0,
    rows: Steps | None = None,
) -> Outgoing:
    made = steps(behind=behind) if rows is None else rows
    header = FragmentHeader(
        run="r",
        policy="abc"[sequence % parts] if parts > 1 else "main",
        actor=actor,
        sequence=sequence,
        first_step=sequence * STEPS,
        steps=STEPS,
        version=WeightsVersion(*version),
        seats=("player_0",),
        players=("policy", "script"),
        part=sequence % parts,
        parts=parts,
    )
    return message_of(Fragment(header, made))


def lane(numbers: Sequence[int], **told: Any) -> Lane:
    """Rows that were decided with these weights."""
    seen = Seen({"": np.zeros(1, np.float32)})
    rows = [Row(seen, np.int32(0), 1.0, number, **{"log_prob": -0.5, **told}) for number in numbers]
    return Lane(rows, seen)


def joined(actor: str, generation: int, next_turn: int = 0) -> Outgoing:
    record = ActorJoined(actor=actor, generation=generation, next_turn=next_turn)
    return Outgoing(EXPERIENCES, encode_json(record), actor, {"kind": "joined", "steps": "0"})


def left(actor: str) -> Outgoing:
    payload = encode_json(ActorLeft(actor=actor))
    return Outgoing(EXPERIENCES, payload, actor, {"kind": "left", "steps": "0"})


def inbox_on(
    bus: MemoryBus,
    count: int = 1,
    max_lag: int = 1,
    starts: dict[int, int] | None = None,
    corrects: bool = False,
    places: int = 0,
    book: CreditBook | None = None,
    ledger: Ledger | None = None,
    pending: Sequence[tuple[bytes, Fragment]] = (),
    wait_s: float = 0.0,
    policies: Sequence[str] = ("main",),
    clock: Callable[[], float] = time.monotonic,
) -> Inbox:
    return Inbox(
        bus,
        book or CreditBook(count, max_lag),
        ledger or Ledger(),
        Branch(starts or {1: 0}),
        EARLIEST,
        pending,
        wait_s,
        WalkIns({policy: steps(valid=0) for policy in policies}, places, corrects),
        clock=clock,
    )


def damaged(message: Outgoing, **headers: str) -> Outgoing:
    """A bit is flipped on the way; perhaps what the headers say is wrong as well."""
    flipped = message.payload[:-1] + bytes([message.payload[-1] ^ 1])
    return message._replace(payload=flipped, headers={**message.headers, **headers})


def exact(bus: MemoryBus, inbox: Inbox) -> bool:
    return balance(bus, inbox.ledger.summary(inbox.pending_steps, inbox.position)).exact


def sequences(batch: list[Delivery] | None) -> list[tuple[str, int]]:
    headers = [fragment.header for delivery in batch or [] for fragment in delivery.fragments]
    return [(header.actor, header.sequence) for header in headers]


# --- one thing at a time -------------------------------------------------------------------------


def test_a_joined_actor_gets_credits_and_its_fragment_is_trained() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus)
    bus.publish([joined("0.1", 1)])
    assert inbox.receive(0), "the set of actors changed"
    inbox.book.grant(0, 0)

    bus.publish([fragment("0.1", 0, (1, 0))])
    assert not inbox.receive(0)
    assert inbox.pending_steps == STEPS
    batch = inbox.batch(0)

    assert sequences(batch) == [("0.1", 0)]
    assert inbox.pending == [] and inbox.batch(0) is None
    inbox.settle(batch or [])
    assert inbox.ledger.trained == STEPS
    assert inbox.ledger.outcomes == {"0.1": {TRAINED: [(0, 0)]}}


def test_a_join_for_another_generation_is_not_for_this_learner() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, starts={1: 0, 2: 4})
    bus.publish([joined("0.1", 1)])
    assert not inbox.receive(4)
    assert inbox.book.tickets == {}


def test_the_earliest_deadline_is_trained_first() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, count=2, max_lag=3)
    bus.publish(
        [fragment("0.1", 0, (1, 2)), fragment("1.1", 0, (1, 0)), fragment("2.1", 0, (1, 1))]
    )
    inbox.receive(2)
    assert sequences(inbox.batch(2)) == [("1.1", 0), ("2.1", 0)]


def test_a_batch_waits_for_a_granted_fragment_that_would_be_too_old_after_it() -> None:
    """Two old credits of a slow actor are due in this very update; fresher fragments must wait."""
    bus = MemoryBus()
    book = CreditBook(2, 1, {"slow": 2, "fast": 2}, {"slow": [0, 0], "fast": [1, 1]})
    inbox = inbox_on(bus, book=book)
    bus.publish([fragment("fast", 0, (1, 1)), fragment("fast", 1, (1, 1))])
    inbox.receive(1)
    assert inbox.batch(1) is None

    bus.publish([fragment("slow", 0, (1, 0)), fragment("slow", 1, (1, 0))])
    inbox.receive(1)

    assert sequences(inbox.batch(1)) == [("slow", 0), ("slow", 1)]
    assert sequences(inbox.batch(2)) == [("fast", 0), ("fast", 1)]


def test_a_batch_at_hand_does_not_wait_for_what_may_come_after_it() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, wait_s=60.0)
    bus.publish([fragment("0.1", 0, (1, 0)), fragment("0.1", 1, (1, 0))])
    inbox.receive(0)
    assert sequences(inbox.batch(0)) == [("0.1", 0)]
    began = time.monotonic()
    inbox.receive(1)
    assert time.monotonic() - began < 30.0
    assert sequences(inbox.batch(1)) == [("0.1", 1)]


def test_a_batch_does_not_wait_for_an_actor_that_left() -> None:
    bus = MemoryBus()
    book = CreditBook(2, 1, {"slow": 2, "fast": 2}, {"slow": [0, 0], "fast": [1, 1]})
    inbox = inbox_on(bus, book=book)
    bus.publish([fragment("fast", 0, (1, 1)), fragment("fast", 1, (1, 1)), left("slow")])
    inbox.receive(1)
    assert sequences(inbox.batch(1)) == [("fast", 0), ("fast", 1)]


def test_a_fragment_that_comes_twice_is_ignored_and_counted() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus)
    bus.publish([fragment("0.1", 0, (1, 0)), fragment("0.1", 0, (1, 0))])
    inbox.receive(0)
    assert len(inbox.pending) == 1
    assert (inbox.ledger.duplicates, inbox.ledger.seen) == (1, {"0.1": STEPS})


def test_a_missing_fragment_is_counted() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, max_lag=5)
    bus.publish([fragment("0.1", 0, (1, 0)), fragment("0.1", 3, (1, 0))])
    inbox.receive(0)
    assert inbox.ledger.gaps == 2


def test_what_nobody_granted_is_taken_only_where_there_is_room() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, count=1, max_lag=1)
    bus.publish([fragment("0.1", sequence, (1, 0)) for sequence in range(4)])
    inbox.receive(0)
    assert [t.fragments[0].header.sequence for t in inbox.pending] == [0, 1]
    assert inbox.ledger.dropped == {UNCREDITED: 2 * STEPS}


def test_an_actor_that_joins_again_has_only_its_new_credits() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, count=1, max_lag=1)
    bus.publish([joined("0.1", 1)])
    inbox.receive(0)
    inbox.book.grant(0, 0)
    bus.publish([fragment("0.1", 0, (1, 0)), joined("0.1", 1, 2)])
    assert inbox.receive(0)
    assert inbox.book.outstanding == 0 and inbox.book.upto == {"0.1": 2}


def test_an_actor_that_left_gives_its_credits_back_and_its_fragments_stand() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, count=1, max_lag=1)
    bus.publish([joined("0.1", 1)])
    inbox.receive(0)
    inbox.book.grant(0, 0)
    bus.publish([fragment("0.1", 0, (1, 0)), left("0.1")])
    assert inbox.receive(0)
    assert inbox.book.outstanding == 0
    assert sequences(inbox.batch(0)) == [("0.1", 0)]


def test_a_fragment_past_the_bound_is_a_staleness_error_that_names_it() -> None:
    bus = MemoryBus()
    stale = fragment("0.1", 7, (1, 0)).payload
    inbox = inbox_on(bus, max_lag=1, pending=[(stale, decode_fragment(stale))])
    with pytest.raises(
        StalenessError, match=r"fragment 7 of actor 0\.1 is 2 versions old.*bound is 1"
    ):
        inbox.batch(2)


def test_a_fragment_from_the_future_is_a_staleness_error() -> None:
    bus = MemoryBus()
    ahead = fragment("0.1", 7, (1, 9)).payload
    inbox = inbox_on(bus, max_lag=1, pending=[(ahead, decode_fragment(ahead))])
    with pytest.raises(StalenessError):
        inbox.batch(2)


def test_a_turn_of_two_policies_is_trained_only_when_both_its_fragments_are_here() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, policies="ab")
    bus.publish([joined("0.1", 1)])
    inbox.receive(0)
    inbox.book.grant(0, 0)
    bus.publish([fragment("0.1", 0, (1, 0), parts=2)])
    inbox.receive(0)
    assert inbox.batch(0) is None and inbox.pending_steps == STEPS
    # as a checkpoint would keep it
    again = inbox_on(MemoryBus(), policies="ab", pending=inbox.received)
    assert again.batch(0) is None and again.pending_steps == STEPS

    bus.publish([fragment("0.1", 1, (1, 0), parts=2)])
    inbox.receive(0)

    batch = inbox.batch(0)
    assert sequences(batch) == [("0.1", 0), ("0.1", 1)]
    inbox.settle(batch or [])
    assert inbox.ledger.trained == 2 * STEPS and inbox.book.outstanding == 1


def test_half_a_turn_of_an_actor_that_left_is_dropped_and_counted() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus)
    bus.publish([joined("0.1", 1), fragment("0.1", 0, (1, 0), parts=2), left("0.1")])
    inbox.receive(0)
    assert inbox.pending_steps == 0 and inbox.ledger.dropped == {ABANDONED: STEPS}


@pytest.mark.parametrize(("behind", "kept"), [(0, 3), (2, 3), (3, 2)])
def test_a_step_held_for_too_long_is_dropped_and_counted(behind: int, kept: int) -> None:
    """Twice the bound and one: with a bound of 1 and a fragment of lag 1, 2 more."""
    bus = MemoryBus()
    inbox = inbox_on(bus, max_lag=1)
    bus.publish([fragment("0.1", 0, (1, 3), behind=behind)])
    inbox.receive(4)
    batch = inbox.batch(4)
    assert batch is not None
    inbox.settle(batch)
    assert int(batch[0].fragments[0].steps.valid.sum()) == kept == inbox.ledger.trained
    assert inbox.ledger.dropped.get(HELD, 0) == STEPS - kept


def test_the_largest_lag_is_remembered() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, max_lag=3)
    bus.publish([fragment("0.1", 0, (1, 0))])
    inbox.receive(0)
    found = inbox.batch(2)
    assert found is not None and inbox.lag(found[0], 2) == 2 and inbox.lag_max == 2


# --- damaged, repeated, replaced -----------------------------------------------------------------


def granted(bus: MemoryBus, inbox: Inbox, *actors: str, now: int = 0) -> None:
    """These join, and get all the room there is."""
    bus.publish([joined(actor, inbox.generation) for actor in actors])
    assert inbox.receive(now)
    inbox.book.grant(now, inbox.places_taken)


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, DAMAGED),
        ({"sequence": "x"}, LOST),
        ({"sequence": "9"}, LOST),
        ({"steps": "9" * 5000}, LOST),
        ({"steps_total": "-1"}, LOST),
    ],
)
def test_a_damaged_fragment_returns_its_credit_and_its_steps_are_counted(
    headers: dict[str, str], reason: str
) -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, count=1, max_lag=1)
    granted(bus, inbox, "0.1")
    bus.publish([damaged(fragment("0.1", n, (1, 0)), **headers) for n in range(2)])
    assert inbox.receive(0), "a credit is due: nothing else would wake anybody"
    assert inbox.book.outstanding == 0 and inbox.ledger.damaged == 2
    assert inbox.book.grant(0, inbox.places_taken)

    bus.publish([fragment("0.1", 2, (1, 0))])
    inbox.receive(0)

    assert sequences(inbox.batch(0)) == [("0.1", 2)]
    assert inbox.ledger.dropped == {reason: 2 * STEPS} and exact(bus, inbox)


def test_a_damaged_word_that_is_no_fragment_costs_no_credit() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus)
    granted(bus, inbox, "0.1")
    bus.publish([damaged(joined("0.1", 1)), Outgoing(EXPERIENCES, b"x", "0.1")])
    assert not inbox.receive(0)
    assert inbox.book.outstanding == 2 and inbox.ledger.damaged == 2


def test_the_credit_of_a_turn_that_never_came_returns_with_the_next_one() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, max_lag=2)
    granted(bus, inbox, "0.1")
    bus.publish([fragment("0.1", 2, (1, 0))])
    inbox.receive(0)
    assert inbox.book.outstanding == 0 and inbox.ledger.dropped == {LOST: 2 * STEPS}


@pytest.mark.parametrize("lost", range(3))
@pytest.mark.parametrize("headers", [{}, {"sequence": "x"}])
def test_a_turn_that_lost_a_part_never_mixes_with_the_next(
    lost: int, headers: dict[str, str]
) -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, policies="abc")
    granted(bus, inbox, "0.1")
    sent = [fragment("0.1", n, (1, 0), parts=3) for n in range(6)]
    sent[lost] = damaged(sent[lost], **headers)
    bus.publish(sent)
    inbox.receive(0)
    assert sequences(inbox.batch(0)) == [("0.1", n) for n in (3, 4, 5)]
    assert inbox.book.outstanding == 0 and exact(bus, inbox)
    assert sum(inbox.ledger.dropped.values()) == 3 * STEPS
    assert inbox.pending == [] and inbox.pending_steps == 3 * STEPS


def test_a_checkpoint_that_holds_half_a_turn_before_a_whole_one_can_be_resumed() -> None:
    found = [fragment("0.1", n, (1, 0), parts=2).payload for n in (0, 2, 3)]
    ledger = Ledger(seen={"0.1": 3 * STEPS})
    inbox = inbox_on(
        MemoryBus(), pending=[(each, decode_fragment(each)) for each in found], ledger=ledger
    )
    assert sequences(inbox.batch(0)) == [("0.1", 2), ("0.1", 3)]
    assert ledger.dropped == {DAMAGED: STEPS}


def test_a_part_that_comes_twice_does_not_use_up_the_credit_of_its_turn() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, policies="ab")
    granted(bus, inbox, "0.1")
    first, second = (fragment("0.1", n, (1, 0), parts=2) for n in range(2))
    bus.publish([first, first])
    inbox.receive(0)
    assert inbox.book.outstanding == 2
    bus.publish([second, second])
    inbox.receive(0)
    assert inbox.book.outstanding == 1 and inbox.ledger.duplicates == 2
    assert sequences(inbox.batch(0)) == [("0.1", 0), ("0.1", 1)]


def test_an_actor_with_a_name_that_was_used_before_keeps_nobody_waiting() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, count=2, ledger=Ledger(next_sequence={"7.1": 50}, seen={"7.1": 150}))
    granted(bus, inbox, "7.1", "0.1")
    assert inbox.book.outstanding == 4
    bus.publish([fragment(actor, n, (1, 0)) for actor in ("7.1", "0.1") for n in range(2)])
    assert inbox.receive(0), "what was counted before gives its credits back"
    assert sequences(inbox.batch(0)) == [("0.1", 0), ("0.1", 1)]
    assert inbox.book.grant(1, inbox.places_taken) and inbox.ledger.duplicates == 2


def test_a_later_life_takes_the_credits_of_the_one_before_it() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus)
    granted(bus, inbox, "0.1", "10.1")
    bus.publish([joined("0.2", 1), joined("0.1", 1)])
    inbox.receive(0)
    assert list(inbox.book.upto) == ["10.1", "0.2"]


@pytest.mark.parametrize("fault", ["damage", "lose"])
def test_an_actor_that_the_learner_did_not_hear_joins_again(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(count=1, max_lag=1, corrects=False)
    run.start_actor()
    (life,) = run.actors
    run.bus.faults.append(fault)
    for _ in range(2):
        assert not run.play(life), "nobody has heard that it joined"
        run.learn()
    assert run.inbox.book.upto == {} and run.bus.end(EXPERIENCES) == (int(fault == "damage"),)
    monkeypatch.setattr(transport, "AGAIN_S", 0.0)
    run.goes_on_with([life])


def test_a_joined_that_is_said_again_takes_nothing_back() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus)
    granted(bus, inbox, "0.1")
    bus.publish([joined("0.1", 1)])
    assert inbox.receive(0) and inbox.asked_again
    assert inbox.book.tickets == {"0.1": [0, 0]} and inbox.book.upto == {"0.1": 2}


def test_an_actor_that_was_replaced_plays_no_more() -> None:
    run = Run(count=1, max_lag=1, corrects=False)
    run.start_actor()
    (life,) = run.actors
    run.play(life)  # joins
    run.learn()  # grants
    run.start_actor(ActorId(1, 2))
    run.play(run.actors[1])
    run.learn()
    assert not run.play(life) and life.transport.replaced
    assert not run.play(life), "and does not join again"
    run.learn()
    assert run.play(run.actors[1]) and not run.actors[1].transport.replaced
    assert list(run.inbox.book.upto) == ["1.2"]


# --- late ----------------------------------------------------------------------------------------


class Seconds:
    """A clock that goes by a step with each look at it."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def stalled(corrects: bool, places: int = 0) -> tuple[MemoryBus, Inbox, Seconds]:
    """`fast` has brought all that it was granted, which cannot be trained before `slow` came."""
    bus, clock = MemoryBus(), Seconds()
    inbox = inbox_on(bus, count=2, max_lag=1, corrects=corrects, places=places, clock=clock)
    granted(bus, inbox, "slow", "fast")
    bus.publish([fragment("fast", n, (1, 0)) for n in range(2)])
    inbox.receive(0)
    inbox.settle(inbox.batch(0) or [])
    inbox.book.grant(1, inbox.places_taken)
    bus.publish([fragment("fast", n, (1, 1)) for n in range(2, 4)])
    inbox.receive(1)
    assert inbox.batch(1) is None and inbox.book.waiting == ["fast"]
    return bus, inbox, clock


def pass_time(inbox: Inbox, clock: Seconds, seconds: int, now: int) -> bool:
    """Looks at the bus, several a second."""
    due = False
    for _ in range(4 * seconds):
        clock.now += 0.25
        due |= inbox.receive(now)
    return due


def test_nobody_waits_for_an_actor_that_is_late() -> None:
    _, inbox, clock = stalled(corrects=False)
    assert not inbox.receive(1), "not before its time"
    assert pass_time(inbox, clock, 2, 1), "credits are due"
    assert inbox.book.late == ["slow"] and inbox.book.outstanding == 0
    assert sequences(inbox.batch(1)) == [("fast", 2), ("fast", 3)]
    inbox.book.grant(2, inbox.places_taken)
    assert inbox.book.tickets == {"slow": [], "fast": [2] * 4}


def test_what_comes_late_is_dropped_and_counted_and_its_actor_plays_on() -> None:
    bus, inbox, clock = stalled(corrects=False)
    pass_time(inbox, clock, 2, 1)
    inbox.settle(inbox.batch(1) or [])
    inbox.book.grant(2, inbox.places_taken)
    bus.publish([fragment("slow", 0, (1, 0))])
    assert not inbox.receive(2) and inbox.book.late == ["slow"], "it owes one more"
    bus.publish([fragment("slow", 1, (1, 0))])
    assert inbox.receive(2), "it may be granted something again"
    assert inbox.book.late == [] and inbox.ledger.dropped == {LATE: 2 * STEPS}
    assert exact(bus, inbox)


def test_what_comes_late_but_within_the_bound_is_trained_where_there_is_room() -> None:
    bus, inbox, clock = stalled(corrects=False)
    pass_time(inbox, clock, 2, 1)
    inbox.batch(1)
    bus.publish([fragment("slow", n, (1, 1)) for n in range(2)])  # it began them just now
    inbox.receive(2)
    assert sequences(inbox.batch(2)) == [("slow", 0), ("slow", 1)] and inbox.lag_max == 1


def test_where_age_is_corrected_a_place_is_kept_for_what_comes_late() -> None:
    bus, inbox, clock = stalled(corrects=True)
    pass_time(inbox, clock, 2, 1)
    inbox.settle(inbox.batch(1) or [])
    inbox.book.grant(5, inbox.places_taken)
    assert inbox.book.outstanding == 3
    bus.publish([fragment("slow", 0, (1, 0)), fragment("fast", 4, (1, 5))])
    inbox.receive(5)
    again = inbox_on(MemoryBus(), 2, 1, {1: 0, 2: 5}, corrects=True, pending=inbox.received)
    for each in (inbox, again):
        batch = each.batch(5)
        assert sequences(batch) == [("slow", 0), ("fast", 4)]
        assert each.lag_max == 0, "the bound is not about it"


def test_a_silence_that_all_share_is_not_lateness() -> None:
    bus, clock = MemoryBus(), Seconds()
    inbox = inbox_on(bus, count=2, max_lag=1, clock=clock)
    granted(bus, inbox, "a", "b")
    assert not pass_time(inbox, clock, 100, 0) and inbox.book.late == []


def test_nobody_is_late_while_the_run_is_paused_or_the_learner_does_not_look() -> None:
    _, inbox, clock = stalled(corrects=False)
    inbox.orders = msgspec.structs.replace(inbox.orders, revision=1, paused=True)
    assert not pass_time(inbox, clock, 100, 1)
    _, inbox, clock = stalled(corrects=False)
    clock.now += 1000.0  # it compiled, or the machine slept
    assert not inbox.receive(1) and inbox.book.late == []


def test_an_actor_that_is_known_to_be_slow_is_passed_over_at_once() -> None:
    bus, inbox, clock = stalled(corrects=False)
    for turn in range(2):
        clock.now += 0.9
        bus.publish([fragment("slow", turn, (1, 0))])
        inbox.receive(1)
    batch = inbox.batch(1)
    assert sequences(batch) == [("slow", 0), ("slow", 1)], "not late, but slow"
    inbox.settle(batch or [])
    inbox.settle(inbox.batch(2) or [])
    inbox.book.grant(3, inbox.places_taken)
    bus.publish([fragment("fast", n, (1, 3)) for n in (4, 5)])
    inbox.receive(3)
    inbox.settle(inbox.batch(3) or [])
    inbox.book.grant(4, inbox.places_taken)
    bus.publish([fragment("fast", n, (1, 4)) for n in (6, 7)])
    inbox.receive(4)
    assert inbox.batch(4) is None
    assert inbox.receive(4) and inbox.book.late == ["slow"]
    assert sequences(inbox.batch(4)) == [("fast", 6), ("fast", 7)]


# --- after a learner restart ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "number", "ours"),
    [
        ((1, 3), 3, True),
        ((1, 4), 4, True),
        ((1, 5), 4, False),
        ((2, 6), 6, True),
        ((2, 9), 6, False),
        ((3, 8), 8, True),
    ],
)
def test_a_branch_knows_which_weights_are_its_ancestors(
    version: tuple[int, int], number: int, ours: bool
) -> None:
    branch = Branch({1: 0, 2: 4, 3: 6})  # 2 went on from update 4 of 1, 3 from update 6 of 2
    assert branch.number_on_branch(WeightsVersion(*version)) == number
    assert branch.contains(WeightsVersion(*version)) is ours


def test_weights_of_a_generation_that_was_skipped_leave_at_the_next_start() -> None:
    branch = Branch({1: 0, 4: 5})  # generations 2 and 3 died without a checkpoint
    assert branch.number_on_branch(WeightsVersion(2, 9)) == 5
    assert branch.number_on_branch(WeightsVersion(2, 3)) == 3


def test_ppo_drops_what_was_played_with_weights_that_were_taken_back() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, max_lag=2, starts={1: 0, 2: 4})
    bus.publish([fragment("0.1", 0, (1, 4)), fragment("0.1", 1, (1, 5))])
    inbox.receive(4)
    assert [t.fragments[0].header.sequence for t in inbox.pending] == [0]
    assert inbox.ledger.dropped == {ABANDONED: STEPS}
    assert inbox.ledger.outcomes == {"0.1": {ABANDONED: [(1, 1)]}}


def test_impala_trains_them_within_the_bound() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus, count=1, max_lag=1, starts={1: 0, 2: 4}, corrects=True)
    bus.publish([fragment("0.1", s, (1, 6)) for s in range(4)])
    inbox.receive(4)
    assert [t.fragments[0].header.sequence for t in inbox.pending] == [0, 1]
    assert inbox.ledger.dropped == {ABANDONED: 2 * STEPS}
    for now in (4, 5):
        assert inbox.batch(now) is not None
    assert inbox.lag_max == 1  # counted from where their weights left our history


def test_an_inline_learner_drops_all_that_lies_on_the_bus() -> None:
    bus = MemoryBus()
    inbox = inbox_on(bus)
    bus.publish([joined("0.1", 1), fragment("0.1", 0, (1, 0)), fragment("0.1", 1, (1, 0))])
    inbox.abandon_all()
    assert inbox.pending == [] and inbox.ledger.dropped == {ABANDONED: 2 * STEPS}
    assert inbox.position == bus.end(EXPERIENCES)


# --- everyone at once: real posts on a real bus --------------------------------------------------


@dataclass
class Saved:
    """What a checkpoint keeps of the learner's book-keeping."""

    generation: int
    number: int
    ancestry: dict[int, int]
    position: tuple[int, ...] | str
    book: bytes
    ledger: bytes
    pending: list[bytes]


@dataclass
class Life:
    """One actor process: its transport and the fragment it is playing."""

    transport: ActorTransport
    playing: Weights | None = None


class BadBus(MemoryBus):
    """Does something to the next messages that somebody waits for, one each."""

    def __init__(self) -> None:
        super().__init__()
        self.faults: list[str] = []
        self.kinds = ["fragment", "joined", "weights", "credits"]
        self.unseen = False  # whether the balance has to wait for an actor's next word

    def publish(self, messages: Sequence[Outgoing], timeout_s: float | None = None) -> None:
        super().publish([m for message in messages for m in self._sent(message)], timeout_s)

    def _sent(self, message: Outgoing) -> list[Outgoing]:
        kind = message.headers.get("kind")
        if kind not in self.kinds or not self.faults:
            return [message]
        fault = self.faults.pop()
        self.unseen |= kind == "fragment" and fault in ("lose", "blur")
        match fault:
            case "repeat":
                return [message, message]
            case "lose":
                return []
            case "blur":
                return [damaged(message, sequence="x")]
        return [damaged(message)]


@dataclass
class Run:
    count: int
    max_lag: int
    corrects: bool
    places: int = 0  # for walk-ins
    bus: BadBus = field(default_factory=BadBus)
    clock: Seconds = field(default_factory=lambda: Seconds(0.05))
    wanted: int = 0  # actors, as ordered
    was_late: set[str] = field(default_factory=set)
    actors: list[Life] = field(default_factory=list)
    generation: int = 0
    born: int = 0

    def __post_init__(self) -> None:
        book, ledger = CreditBook(self.count, self.max_lag), Ledger()
        self.saved = Saved(0, 0, {}, EARLIEST, _pack(book), _pack(ledger), [])
        self.senders = [WalkInSender(self.bus, "r", name, ["player_0"]) for name in ("x", "y")]
        self.start_learner()

    def start_learner(self) -> None:
        saved, self.generation = copy.deepcopy(self.saved), self.generation + 1
        ancestry = {**saved.ancestry, self.generation: saved.number}
        self.inbox = Inbox(
            self.bus,
            msgspec.msgpack.decode(saved.book, type=CreditBook),
            msgspec.msgpack.decode(saved.ledger, type=Ledger),
            Branch(ancestry),
            saved.position,
            [(payload, decode_fragment(payload)) for payload in saved.pending],
            0.0,
            WalkIns({"main": steps(valid=0)}, self.places, self.corrects),
            clock=self.clock,
        )
        self.transport = LearnerTransport(
            self.bus, "r", self.inbox, self.generation, saved.number, clock=self.clock
        )
        self.transport.announce({"main": {}})
        config = LearnerConfig(max_policy_lag_versions=self.max_lag, follows_actors=True)
        grant = self.transport.grant
        self.scaling = Scaling(self.inbox, config, self.corrects, lambda fragments: None, grant)
        self.order(self.wanted)
        self.begun: list[list[Delivery]] = []

    def order(self, actors: int) -> None:
        self.wanted = actors
        self.inbox.orders = msgspec.structs.replace(self.inbox.orders, actors=actors)

    def save(self) -> None:
        inbox = self.inbox
        self.saved = Saved(
            self.generation,
            self.transport.number,
            dict(inbox.branch.starts),
            inbox.position,
            _pack(inbox.book),
            _pack(inbox.ledger),
            [payload for payload, _ in inbox.received],
        )
        self.bus.retain(EXPERIENCES, inbox.position)

    def start_actor(self, actor: ActorId | None = None) -> None:
        self.born += 1
        actor = actor or ActorId(self.born, 1)
        made = ActorTransport(self.bus, "r", ["main"], ["main"], actor, ["player_0"], 0.0)
        self.actors.append(Life(made))

    def kill(self, life: Life) -> None:
        self.actors.remove(life)
        actor = str(life.transport.actor)
        newest = self.bus.newest_headers(EXPERIENCES).get(actor, {})
        headers = {"kind": "left", "steps": "0", "steps_total": newest.get("steps_total", "0")}
        payload = encode_json(ActorLeft(actor=actor))
        self.bus.publish([Outgoing(EXPERIENCES, payload, actor, headers)])

    def play(self, life: Life, valid: int = STEPS) -> bool:
        if life.playing is None:
            life.playing = life.transport.admit()
            return life.playing is not None
        life.transport.send(Played({"main": steps(valid)}, {"main": ()}), life.playing)
        life.playing = None
        return True

    def walk_in(self, which: int) -> None:
        """Somebody sends a row or a few, of weights that may be old."""
        now = self.transport.number
        numbers = [max(0, now - which % 5 - (which % 2) * t) for t in range(1 + which % STEPS)]
        version = WeightsVersion(self.generation, numbers[0])
        self.senders[which % 2].send("main", [lane(numbers)], version)

    def learn(self) -> bool:
        """Finish every update that was begun, and one more; True if there was any."""
        self.begin()
        finished = [self.finish() for _ in list(self.begun)]
        return bool(finished)

    def begin(self) -> None:
        """Begin an update if there is a batch, perhaps before the last one is finished."""
        now = self.transport.number + len(self.begun)
        if self.inbox.receive(now) or self.transport.is_silent:
            self.transport.grant()
        self.was_late |= set(self.inbox.book.late)
        if self.scaling.holds(now, len(self.begun)):
            return
        batch = self.inbox.batch(now)
        if batch is None:
            return
        for chosen in batch:
            assert chosen.fragments[0].steps.valid.shape == (STEPS, 1)
            late = chosen.fragments[0].header.actor in self.was_late
            corrected = self.corrects and (chosen.walk_in or late)
            assert corrected or 0 <= self.inbox.lag(chosen, now) <= self.inbox.book.max_lag
            if not self.corrects:
                assert self.inbox.branch.contains(chosen.version)
        self.begun.append(batch)

    def finish(self) -> None:
        self.inbox.settle(self.begun.pop(0))
        self.transport.publish({"main": {}})

    def check(self) -> None:
        inbox, book = self.inbox, self.inbox.book
        summary = inbox.ledger.summary(inbox.pending_steps, inbox.position)
        found = balance(self.bus, summary)
        assert found.exact or self.bus.unseen, found
        for actor, numbers in book.tickets.items():
            assert not (numbers and actor in book.late)
            assert len(numbers) <= book.upto[actor]
        for actor, outcomes in inbox.ledger.outcomes.items():
            settled = [n for each in outcomes.values() for a, b in each for n in range(a, b + 1)]
            assert len(settled) == len(set(settled)), f"overlap of {actor}"
        waiting = [fragment.header for _, fragment in inbox.received]
        for sender, outcomes in inbox.ledger.walk_ins.items():
            pending = sum(header.steps for header in waiting if header.actor == sender)
            assert inbox.ledger.seen[sender] == sum(outcomes.values()) + pending
        assert len(inbox.pending) <= book.fragments_per_batch * (book.max_lag + 1)
        now = self.transport.number + len(self.begun)
        waiting = [inbox._deadline(delivery) for delivery in inbox.pending]
        assert book.fits(now, [*waiting, *book.deadlines()]), "someone cannot be trained in time"

    def settle(self) -> None:
        """From any state training goes on: first without one that is frozen, then with everyone."""
        self.bus.faults.clear()
        for _ in range(2 - len(self.actors)):
            self.start_actor()
        self.goes_on_with(self.actors[1:])
        self.goes_on_with(self.actors)
        book = self.inbox.book
        assert self.scaling.wanted() == (book.fragments_per_batch, book.max_lag)
        for life in list(self.actors):
            self.kill(life)
        for which in range(2):
            self.walk_in(which)
        while self.inbox.unread():
            self.learn()
        self.bus.unseen = False
        self.check()

    def goes_on_with(self, playing: Sequence[Life]) -> None:
        goal = self.transport.number + self.inbox.book.max_lag + 3
        for _ in range(100 + 40 * (self.inbox.book.max_lag + 2) * 8):
            for life in playing:
                self.play(life)
            self.clock.now += 0.9
            self.learn()
            self.check()
            if self.transport.number >= goal:
                return
        raise AssertionError(f"only {self.transport.number} updates: everyone waits")


def _pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


MOVES = ["play"] * 10 + ["learn"] * 4 + ["begin"] * 4 + ["finish"] * 3 + ["walk in"] * 4
MOVES += ["join", "kill", "save", "save", "crash", "time", "time"] + ["scale"] * 3
FAULTS = ["damage", "repeat", "lose", "blur"]


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from(MOVES + FAULTS), st.integers(0, 7)), max_size=100),
)
def test_through_every_fault_lag_is_bounded_the_balance_exact_and_training_goes_on(
    actors: int,
    count: int,
    max_lag: int,
    corrects: bool,
    places: int,
    moves: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "AGAIN_S", 0.0)
        live_through(Run(count, max_lag, corrects, min(places, count * max_lag)), actors, moves)


def live_through(run: Run, actors: int, moves: list[tuple[str, int]]) -> None:
    for _ in range(actors):
        run.start_actor()

    for move, which in moves:
        match move:
            case "play" if run.actors:
                run.play(run.actors[which % len(run.actors)], valid=which % (STEPS + 1))
            case "learn":
                run.learn()
            case "begin" if len(run.begun) < 2:
                run.begin()
            case "finish" if run.begun:
                run.finish()
            case "walk in":
                run.walk_in(which)
            case "join" if len(run.actors) < 8:
                run.start_actor()
            case "kill" if run.actors:
                run.kill(run.actors[which % len(run.actors)])
            case "save":
                run.save()
            case "crash":
                run.start_learner()
            case "time":
                run.clock.now += which
            case "scale":
                run.order(1 + which)
            case "damage" | "repeat" | "lose" | "blur":
                run.bus.faults.append(move)
        run.check()

    run.settle()


@pytest.mark.parametrize("fault", ["damage", "lose"])
@pytest.mark.parametrize("kind", ["weights", "credits"])
@pytest.mark.parametrize("max_lag", [0, 1, 2])
@pytest.mark.parametrize("actors", [1, 2])
def test_whatever_word_of_the_learner_is_not_heard_training_goes_on(
    actors: int, max_lag: int, kind: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "AGAIN_S", 0.0)
    run = Run(count=actors, max_lag=max_lag, corrects=False)
    run.bus.kinds = [kind]
    for _ in range(actors):
        run.start_actor()
    for _ in range(12):  # the first words of all, and those in the middle of it
        run.bus.faults.append(fault)
        run.goes_on_with(run.actors)


def test_whoever_joins_before_the_first_word_is_heard_hears_it_later() -> None:
    run = Run(count=1, max_lag=1, corrects=False)
    run.bus.kinds = ["credits"]
    run.bus.faults.append("damage")
    run.start_learner()  # a generation that nobody hears of
    run.start_actor()
    run.goes_on_with(run.actors)


def test_turns_that_nobody_could_have_played_are_not_trained() -> None:
    """From weights to come, of another shape, or with older weights than they were granted for."""
    bus = MemoryBus()
    inbox = inbox_on(bus, count=2, max_lag=0)
    wider = steps()._replace(observation={"": np.zeros((STEPS + 1, 1, 2), np.float32)})
    bus.publish([fragment("9.1", 0, (1, 7)), fragment("9.1", 1, (1, 0), rows=wider)])
    inbox.receive(0)
    assert inbox.ledger.dropped == {"misfit": 2 * STEPS} and not inbox.pending
    granted(bus, inbox, "0.1", "1.1", now=3)
    bus.publish([fragment("0.1", 0, (1, 2)), fragment("1.1", 0, (1, 3))])
    assert inbox.receive(3), "its credit returned"
    assert [d.version.number for d in inbox.pending] == [3]
    assert inbox.ledger.dropped["uncredited"] == STEPS


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize(("corrects", "shapes"), [(False, (1, 4)), (True, (2, 4))])
def test_batches_follow_the_number_of_actors_up_and_down(
    corrects: bool, shapes: tuple[int, int], ahead: int
) -> None:
    run = Run(count=1, max_lag=2 if corrects else 1, corrects=corrects)

    def train(updates: int) -> int:
        goal = run.transport.number + updates
        for _ in range(50 * updates):
            for life in run.actors:
                run.play(life)
            run.begin()
            if len(run.begun) > ahead or (run.begun and run.inbox.book.draining):
                run.finish()
            run.check()
            if run.transport.number >= goal:
                book = run.inbox.book
                return book.max_lag if corrects else book.fragments_per_batch
        raise AssertionError("everyone waits")

    run.start_actor()
    assert train(5) == shapes[0]
    run.order(4)
    assert train(5) == shapes[0], "three have not joined yet"
    for _ in range(3):
        run.start_actor()
    assert train(8) == shapes[1]
    run.save()
    run.start_learner()
    assert train(8) == shapes[1], "as the checkpoint says"
    run.order(1)
    run.begin()
    run.order(4)  # called off
    assert train(8) == shapes[1]
    run.order(1)
    for life in run.actors[1:]:
        run.kill(life)
    assert train(8) == shapes[0]
    assert set(run.inbox.ledger.dropped) <= {ABANDONED, UNCREDITED}


def test_an_update_before_an_actor_joins_again_does_not_leave_it_waiting_for_ever() -> None:
    """Found by the test above: a credit from between the restart and the join was void."""
    run = Run(count=1, max_lag=0, corrects=False)
    run.start_actor()
    (life,) = run.actors
    run.play(life)  # joins
    run.learn()  # grants
    run.save()
    run.play(life)
    run.play(life)  # sends
    run.start_learner()
    assert run.learn(), "it trains what its last checkpoint had granted"
    run.play(life)  # joins again
    run.settle()


def test_while_an_update_is_computed_its_turn_still_counts_and_is_part_of_a_checkpoint() -> None:
    run = Run(count=1, max_lag=1, corrects=False)
    run.start_actor()
    (life,) = run.actors
    run.play(life)  # joins
    run.begin()  # grants
    run.play(life)
    run.play(life)  # sends
    run.begin()
    run.check()
    assert (run.inbox.pending_steps, run.inbox.ledger.trained) == (STEPS, 0)
    run.save()
    run.start_learner()
    assert run.learn(), "the new learner trains it"
    assert (run.inbox.pending_steps, run.inbox.ledger.trained) == (0, STEPS)
    run.check()


def test_an_actor_plays_with_new_weights_while_the_next_update_is_computed() -> None:
    run = Run(count=1, max_lag=1, corrects=False)
    run.start_actor()
    (life,) = run.actors
    run.play(life)  # joins
    run.begin()  # grants two
    for _ in range(4):
        run.play(life)
    assert not run.play(life), "it has no credit left"
    for _ in range(10):
        run.begin()  # the last batch is trained with lag 1 before its weights' successor is out
        run.begin()
        run.finish()
        assert run.play(life) and run.play(life), "the weights before those now computed"
        assert len(run.begun) == 1
    assert run.inbox.lag_max == 1


@pytest.mark.parametrize("actors", [1, 2, 8])
def test_a_slow_learner_is_not_left_behind(actors: int) -> None:
    """Actors that play whatever they may between two turns of the learner stay within the bound."""
    run = Run(count=1, max_lag=2, corrects=False)
    for _ in range(actors):
        run.start_actor()
    updates = 0
    for _ in range(60):
        for _ in range(10):
            for life in run.actors:
                run.play(life)
        updates += run.learn()
        run.check()
    assert updates > 40
    assert run.inbox.lag_max == 2
    assert run.inbox.ledger.dropped == {}, "without faults nothing is ever dropped"


# --- walk-ins ------------------------------------------------------------------------------------


def walked_in(inbox: Inbox) -> list[int]:
    """Sequence numbers of the walk-ins that wait."""
    return [d.fragments[0].header.sequence for d in inbox.pending if d.walk_in]


def sender_on(bus: MemoryBus) -> WalkInSender:
    return WalkInSender(bus, "r", "lab", ["player_0"])


def test_a_walk_in_is_trained_where_there_is_room_and_is_as_large_as_a_granted_fragment() -> None:
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, count=1, max_lag=1), sender_on(bus)
    sender.send("main", [lane([0, 0])], WeightsVersion(1, 0))
    assert not inbox.receive(0), "it joins nobody"
    assert inbox.book == CreditBook(1, 1), "and needs no credit"
    batch = inbox.batch(0)
    assert batch is not None
    (found,) = batch[0].fragments
    assert found.steps.valid[:, 0].tolist() == [True, True, False]
    inbox.settle(batch)
    assert inbox.ledger.trained == 2
    assert inbox.ledger.walk_ins == {sender.sender: {TRAINED: 2}}
    assert inbox.ledger.outcomes == {}


def test_a_walk_in_never_takes_the_place_of_a_credit() -> None:
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, count=1, max_lag=1), sender_on(bus)
    bus.publish([joined("0.1", 1)])
    inbox.receive(0)
    inbox.book.grant(0, inbox.places_taken)
    assert inbox.book.outstanding == 2
    sender.send("main", [lane([0])], WeightsVersion(1, 0))
    inbox.receive(0)
    assert walked_in(inbox) == [] and inbox.ledger.dropped == {UNCREDITED: 1}


def test_places_that_are_kept_free_are_for_walk_ins_alone() -> None:
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, count=2, max_lag=1, places=1), sender_on(bus)
    bus.publish([joined("0.1", 1)])
    inbox.receive(0)
    inbox.book.grant(0, inbox.places_taken)
    assert inbox.book.outstanding == 3
    for _ in range(2):
        sender.send("main", [lane([0])], WeightsVersion(1, 0))
    inbox.receive(0)
    assert walked_in(inbox) == [0] and inbox.ledger.dropped == {UNCREDITED: 1}
    assert not inbox.book.grant(0, inbox.places_taken), "one that waits is in its own place"


@pytest.mark.parametrize(("places", "share"), [(0, 0.0), (1, 0.5)])
@pytest.mark.parametrize("corrects", [False, True])
def test_a_flood_of_walk_ins_gets_only_the_room_that_is_free(
    corrects: bool, places: int, share: float
) -> None:
    run = Run(count=1, max_lag=1, corrects=corrects, places=places)
    run.start_actor()
    (life,) = run.actors
    run.play(life)  # joins
    run.learn()  # is granted what there is
    updates = 0
    for _ in range(200):
        for which in range(20):
            run.walk_in(2 * which)
        run.play(life)
        updates += run.learn()
        run.check()
    ((first, last),) = run.inbox.ledger.outcomes[str(life.transport.actor)][TRAINED]
    credited = last - first + 1
    assert credited >= 98, "every fragment that the actor could play in this time"
    assert abs((updates - credited) - share * updates) <= 2
    assert run.inbox.ledger.dropped[UNCREDITED] > 0


@pytest.mark.parametrize("corrects", [False, True])
def test_a_walk_in_beyond_the_bound_is_trained_only_if_its_age_is_corrected(corrects: bool) -> None:
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, max_lag=1, corrects=corrects), sender_on(bus)
    sender.send("main", [lane([0, 0])], WeightsVersion(1, 0))
    inbox.receive(900)
    batch = inbox.batch(901)
    if corrects:
        assert batch is not None and inbox.lag(batch[0], 901) == 901
        inbox.settle(batch)
        assert (inbox.ledger.trained, inbox.ledger.dropped) == (2, {})
        assert inbox.lag_max == 0, "the bound is not about it"
    else:
        assert batch is None and inbox.ledger.dropped == {LATE: 2}


@pytest.mark.parametrize("corrects", [False, True])
def test_of_a_walk_in_only_the_rows_beyond_the_bound_are_dropped(corrects: bool) -> None:
    """Its rows say their weights one by one; a version from long ago is 255 behind or more."""
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, max_lag=400, corrects=corrects), sender_on(bus)
    sent = sender.send("main", [lane([1000, 800, 200])], WeightsVersion(1, 1000))
    assert sent.steps.behind[:, 0].tolist() == [0, 200, LONG_AGO]
    inbox.receive(1000)
    batch = inbox.batch(1050)
    assert batch is not None
    inbox.settle(batch)
    kept = batch[0].fragments[0].steps.valid[:, 0].tolist()
    assert kept == [True, True, corrects]
    assert inbox.ledger.dropped == ({} if corrects else {LATE: 1})
    assert inbox.ledger.trained == sum(kept)


def test_rows_that_the_policy_did_not_decide_count_as_dropped() -> None:
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, max_lag=3), sender_on(bus)
    own, other = lane([0]), lane([0, 0], player="human")
    mixed = Lane([*own.rows, *other.rows], own.after)
    sent = sender.send("main", [mixed], WeightsVersion(1, 0))
    assert sent.header.players == ("policy", "human")
    assert np.isnan(sent.steps.log_prob[1:]).all(), "what another says of its odds is not believed"
    sender.send("main", [other], WeightsVersion(1, 0))
    inbox.receive(0)
    batch = inbox.batch(0)
    inbox.settle(batch or [])
    assert sequences(batch) == [(sender.sender, 0)]
    assert (inbox.ledger.trained, inbox.ledger.dropped) == (1, {OTHERS: 4})


MISFITS: dict[str, Any] = {
    "too many rows": ([lane([0] * (STEPS + 1))], "main", 0),
    "too many lanes": ([lane([0]), lane([0])], "main", 0),
    "another policy": ([lane([0])], "other", 0),
    "weights to come": ([lane([9])], "main", 9),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_walk_in_that_does_not_fit_the_run_is_dropped_and_counted(case: str) -> None:
    lanes, policy, number = MISFITS[case]
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, max_lag=3), sender_on(bus)
    sent = sender.send(policy, lanes, WeightsVersion(1, number))
    inbox.receive(0)
    assert inbox.pending == [] and inbox.ledger.dropped == {MISFIT: sent.header.steps}


def test_a_walk_in_of_other_spaces_is_dropped_and_counted() -> None:
    bus = MemoryBus()
    inbox, sender = inbox_on(bus), sender_on(bus)
    wide = Seen({"": np.zeros(2, np.float32)})
    rows = Lane([Row(wide, np.int32(0), 1.0, 0, -0.5)], wide)
    sender.send("main", [rows], WeightsVersion(1, 0))
    inbox.receive(0)
    assert inbox.ledger.dropped == {MISFIT: 1}


def test_a_walk_in_leaves_other_policies_as_they_are() -> None:
    bus = MemoryBus()
    blank = steps(valid=0)
    walk_ins = WalkIns({"main": blank, "b": blank})
    inbox = Inbox(bus, CreditBook(1, 1), Ledger(), Branch({1: 0}), EARLIEST, (), 0.0, walk_ins)
    sender = sender_on(bus)
    sender.send("b", [lane([0])], WeightsVersion(1, 0))
    inbox.receive(0)
    batch = inbox.batch(0)
    assert batch is not None
    found = {f.header.policy: int(f.steps.valid.sum()) for f in batch[0].fragments}
    assert found == {"b": 1, "main": 0}
    inbox.settle(batch)
    assert inbox.ledger.walk_ins == {sender.sender: {TRAINED: 1}}


def test_walk_ins_are_counted_once_and_gaps_in_them_show() -> None:
    bus = MemoryBus()
    inbox, sender = inbox_on(bus, max_lag=5), sender_on(bus)
    sent = sender.send("main", [lane([0])], WeightsVersion(1, 0))
    bus.publish([message_of(sent)])  # twice
    header = msgspec.structs.replace(sent.header, sequence=2, first_step=3)
    bus.publish([message_of(Fragment(header, sent.steps))])
    inbox.receive(0)
    ledger = inbox.ledger
    assert (ledger.duplicates, ledger.gaps, ledger.dropped) == (1, 1, {"lost": 2})
    assert ledger.seen == {sender.sender: 4}
    assert ledger.walk_ins == {sender.sender: {"lost": 2}}


@pytest.mark.parametrize("corrects", [False, True])
def test_a_walk_in_that_waited_over_a_restart_is_still_counted(corrects: bool) -> None:
    run = Run(count=2, max_lag=1, corrects=corrects)
    run.walk_in(0)
    run.learn()
    assert len(run.inbox.pending) == 1
    run.save()
    run.start_learner()
    assert len(run.inbox.pending) == 1
    run.walk_in(2)
    assert run.learn()
    run.check()
    assert sum(run.inbox.ledger.seen.values()) == run.inbox.ledger.trained > 0


@pytest.mark.parametrize("lanes", [[], [Lane([], lane([0]).after)], [lane([0]), lane([0, 0])]])
def test_lanes_that_make_no_table_are_refused_in_one_line(lanes: list[Lane]) -> None:
    with pytest.raises(InputError, match="as many in each"):
        sender_on(MemoryBus()).send("main", lanes, WeightsVersion(1, 0))


def test_a_truncated_row_in_the_middle_of_a_lane_is_refused_in_one_line() -> None:
    cut, after = lane([0], truncated=True), lane([0])
    with pytest.raises(InputError, match="ends its lane"):
        sender_on(MemoryBus()).send(
            "main", [Lane([*cut.rows, *after.rows], after.after)], WeightsVersion(1, 0)
        )
