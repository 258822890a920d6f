"""The inbox admits what may be trained, counts everything, and hands it out in time."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.actor.loop import Played
from rookery.actor.transport import ActorTransport, message_of
from rookery.actor.walk_in import Lane, Row, Seen, WalkInSender
from rookery.bus import EARLIEST, Outgoing
from rookery.bus.memory import MemoryBus
from rookery.control.balance import balance
from rookery.errors import InputError, StalenessError
from rookery.learner.credits import CreditBook
from rookery.learner.deliveries import Delivery
from rookery.learner.generations import Branch
from rookery.learner.inbox import ABANDONED, HELD, UNCREDITED, Inbox
from rookery.learner.ledger import TRAINED, Ledger
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
        policy="main",
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
) -> Inbox:
    return Inbox(
        bus,
        book or CreditBook(count, max_lag),
        ledger or Ledger(),
        Branch(starts or {1: 0}),
        EARLIEST,
        pending,
        wait_s,
        WalkIns({"main": steps(valid=0)}, places, corrects),
    )


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
    bus.publish([fragment("0.1", 0, (1, 0)), joined("0.1", 1, 1)])
    assert inbox.receive(0)
    assert inbox.book.outstanding == 0 and inbox.book.upto == {"0.1": 1}


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
    inbox = inbox_on(bus)
    bus.publish([joined("0.1", 1)])
    inbox.receive(0)
    inbox.book.grant(0, 0)
    bus.publish([fragment("0.1", 0, (1, 0), parts=2)])
    inbox.receive(0)
    assert inbox.batch(0) is None and inbox.pending_steps == STEPS
    again = inbox_on(MemoryBus(), pending=inbox.received)  # as a checkpoint would keep it
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


@dataclass
class Run:
    count: int
    max_lag: int
    corrects: bool
    places: int = 0  # for walk-ins
    bus: MemoryBus = field(default_factory=MemoryBus)
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
        )
        self.transport = LearnerTransport(self.bus, "r", self.inbox, self.generation, saved.number)
        self.transport.announce({"main": {}})
        self.begun: list[list[Delivery]] = []

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

    def start_actor(self) -> None:
        self.born += 1
        actor = ActorId(self.born, 1)
        transport = ActorTransport(self.bus, "r", ["main"], ["main"], actor, ["player_0"], 0.0)
        self.actors.append(Life(transport))

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
        if self.inbox.receive(now):
            self.transport.grant()
        batch = self.inbox.batch(now)
        if batch is None:
            return
        for chosen in batch:
            assert chosen.fragments[0].steps.valid.shape == (STEPS, 1)
            corrected = self.corrects and chosen.walk_in
            assert corrected or 0 <= self.inbox.lag(chosen, now) <= self.max_lag
            if not self.corrects:
                assert self.inbox.branch.contains(chosen.version)
        self.begun.append(batch)

    def finish(self) -> None:
        self.inbox.settle(self.begun.pop(0))
        self.transport.publish({"main": {}})

    def check(self) -> None:
        inbox = self.inbox
        summary = inbox.ledger.summary(inbox.pending_steps, inbox.position)
        assert (summary.duplicates, summary.gaps) == (0, 0)
        found = balance(self.bus, summary)
        assert found.exact, found
        for actor, outcomes in inbox.ledger.outcomes.items():
            settled = [n for each in outcomes.values() for a, b in each for n in range(a, b + 1)]
            assert len(settled) == len(set(settled)), f"overlap of {actor}"
        waiting = [fragment.header for _, fragment in inbox.received]
        for sender, outcomes in inbox.ledger.walk_ins.items():
            pending = sum(header.steps for header in waiting if header.actor == sender)
            assert inbox.ledger.seen[sender] == sum(outcomes.values()) + pending
        assert len(inbox.pending) <= self.count * (self.max_lag + 1)

    def settle(self) -> None:
        """From any state, with everyone alive, training goes on."""
        if not self.actors:
            self.start_actor()
        updates = 0
        for _ in range(40 * (self.max_lag + 2) * self.count):
            for life in self.actors:
                self.play(life)
            updates += self.learn()
            self.check()
            if updates > self.max_lag + 2:
                return
        raise AssertionError(f"only {updates} updates: everyone waits")


def _pack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


MOVES = ["play"] * 10 + ["learn"] * 4 + ["begin"] * 4 + ["finish"] * 3 + ["walk in"] * 4
MOVES += ["join", "kill", "save", "save", "crash"]


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 4),
    st.booleans(),
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from(MOVES), st.integers(0, 7)), max_size=100),
)
def test_through_every_fault_lag_is_bounded_the_balance_exact_and_training_goes_on(
    actors: int,
    count: int,
    max_lag: int,
    corrects: bool,
    places: int,
    moves: list[tuple[str, int]],
) -> None:
    run = Run(count, max_lag, corrects, min(places, count * max_lag))
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
        run.check()

    run.settle()


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
