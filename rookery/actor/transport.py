"""The actor's side of the bus: weights, credits and news come in, fragments go out."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from rookery.actor.fragments import fragments_of
from rookery.actor.incoming_weights import IncomingWeights
from rookery.actor.loop import Admitted, Played
from rookery.bus import EARLIEST, Bus, Outgoing, Record
from rookery.errors import BusFull, MessageError
from rookery.messages import (
    EXPERIENCES,
    MODEL_UPDATES,
    ActorAlive,
    ActorId,
    ActorJoined,
    ActorLeft,
    Credits,
    LeaguePools,
    SeatsChanged,
    WeightsVersion,
    decode_json,
    encode_json,
    is_later_life,
)
from rookery.messages.fragment import Fragment, encode_fragment

logger = logging.getLogger(__name__)

SHORT_WAIT_S = 0.02  # for a credit, during which every word is read at once
NAP_SHARE = 0.1  # of the time waited so far: naps add at most this much to a wait
LONGEST_NAP_S = 0.02
AGAIN_S = 5.0  # after which one that is not listed, or lacks weights, says again that it joined

FULL_BUS = "full bus"  # what an actor is doing that waits for room
FULL_S = 1.0  # how often it says so


def seats_unchecked(record: Record) -> SeatsChanged:
    return decode_json(record.payload, SeatsChanged)


def message_of(fragment: Fragment) -> Outgoing:
    """A fragment as it goes over the bus; what it counts is said in the headers too."""
    header = fragment.header
    headers = {
        "kind": "fragment",
        "run": header.run,
        "actor": header.actor,
        "sequence": str(header.sequence),
        "steps": str(header.steps),
        "steps_total": str(header.first_step + header.steps),
    }
    return Outgoing(EXPERIENCES, encode_fragment(fragment), header.actor, headers)


class ActorTransport:
    """Keeps an actor within the learner's credits and numbers what it sends.

    Each turn of the playing loop makes one fragment for each policy that learns; they go out
    together, and a credit is needed for all of them.

    The learner publishes weights before the credits that go with them, on one ordered topic, so an
    actor that sees a credit has seen the weights it was granted for. A new generation of learner
    voids all credits: the actor joins again, after everything it has sent. One that sees credits of
    a later life of itself was replaced, while it was frozen or cut off: it plays no more.
    """

    def __init__(
        self,
        bus: Bus,
        run: str,
        policies: Sequence[str],
        learning: Sequence[str],
        actor: ActorId,
        seats: Sequence[str],
        wait_s: float,
        busy: Callable[[str], None] = lambda doing: None,
        heartbeat_s: float = 0.0,
        seats_from: Callable[[Record], SeatsChanged] = seats_unchecked,
    ) -> None:
        self._seats_from = seats_from
        self.run, self.actor = run, actor
        self._policies, self._learning, self._seats = policies, tuple(learning), tuple(seats)
        self._bus = bus
        self._wait_s = wait_s  # 0 in an inline run, where waiting is another's turn
        self._busy = busy
        self._heartbeat_s = heartbeat_s
        self._updates = bus.subscribe(MODEL_UPDATES, EARLIEST)
        self._incoming = IncomingWeights(run, policies, learning)
        self._pools: LeaguePools | None = None
        self._changed: SeatsChanged | None = None
        self._generation = 0  # the learner's, that this actor joins; 0: there is none yet
        self._upto = 0
        self._listed = False  # whether the learner has said that it knows us
        self._joined = -math.inf  # when it was last told that we joined
        self.replaced = False
        self.sequence = 0
        self.agent_steps = 0
        self._sent = time.monotonic()
        self._lock = threading.Lock()  # between the playing loop and the heartbeat

    @property
    def _turn(self) -> int:
        """How often the loop has played; credits count these."""
        return self.sequence // len(self._learning)

    @property
    def _may_play(self) -> bool:
        return self._turn < self._upto and self._incoming.whole

    def admit(self) -> Admitted | None:
        self._busy("waiting")
        self._read(0.0 if self._may_play or self._napped() else self._wait_s)
        if not self._may_play:
            return None
        weights = self._incoming.weights
        arrays = {policy: weights[policy].arrays for policy in self._policies}
        version = weights[self._learning[0]].header.version  # the others' may never change
        self._busy("playing")
        return Admitted(version, arrays, self._pools, self._changed)

    def send(self, played: Played, admitted: Admitted) -> tuple[Fragment, ...]:
        with self._lock:
            fragments = fragments_of(
                played,
                admitted.version,
                run=self.run,
                actor=str(self.actor),
                learning=self._learning,
                seats=self._seats,
                sequence=self.sequence,
                first_step=self.agent_steps,
            )
            self.sequence += len(fragments)
            self.agent_steps += sum(fragment.header.steps for fragment in fragments)
            self._publish([message_of(fragment) for fragment in fragments])
        self._sent = time.monotonic()
        return fragments

    def _napped(self) -> bool:
        """Look up the more rarely, the longer a credit is waited for: each word to others, too,
        wakes whoever reads, and many who wait would cost the cores on which a few play."""
        waited = time.monotonic() - self._sent
        if not self._wait_s or waited < SHORT_WAIT_S:
            return False
        time.sleep(min(LONGEST_NAP_S, NAP_SHARE * waited))
        return True

    def _read(self, wait_s: float) -> None:
        credits: Credits | None = None
        for record in self._updates.poll(wait_s):
            try:
                match record.headers.get("kind"):
                    case "weights":
                        self._incoming.note(record)
                    case "credits":
                        credits = decode_json(record.payload, Credits)
                        self._incoming.seal()
                    case "league":
                        self._pools = decode_json(record.payload, LeaguePools)
                    case "seats":
                        self._changed = self._seats_from(record)
            except MessageError as error:
                logger.warning("%s offset %d: skipped: %s", record.topic, record.offset, error)
        if credits is not None and any(is_later_life(a, str(self.actor)) for a in credits.upto):
            logger.warning("actor %s was replaced by a later life of it: it ends", self.actor)
            self.replaced, self._upto = True, 0
        elif credits is not None and credits.generation >= self._generation:
            listed = str(self.actor) in credits.upto
            if credits.generation > self._generation or (self._listed and not listed):
                self._joined = -math.inf
            self._generation, self._listed = credits.generation, listed
            self._upto = credits.upto.get(str(self.actor), 0)
            self._incoming.due = WeightsVersion(credits.generation, credits.number)
            if self._turn < self._upto:
                self._incoming.take()
        heard = self._listed and (self._incoming.whole or self._turn >= self._upto)
        if self._generation and not (heard or self.replaced):
            self._join()

    def _join(self) -> None:
        """Say so, and again after a while: what was said may not have been heard."""
        if time.monotonic() <= self._joined + AGAIN_S:
            return
        joined = ActorJoined(
            actor=str(self.actor),
            generation=self._generation,
            next_turn=self._turn,
            heartbeat_s=self._heartbeat_s,
        )
        self._publish([self._word("joined", joined)])
        self._joined = time.monotonic()

    def leave(self) -> None:
        """Say that everything was sent and nothing will follow."""
        self._publish([self._word("left", ActorLeft(actor=str(self.actor)))])

    def alive(self) -> None:
        with self._lock:
            self._bus.publish([self._word("alive", ActorAlive(actor=str(self.actor)))])

    def _word(self, kind: str, message: ActorJoined | ActorLeft | ActorAlive) -> Outgoing:
        headers = {"kind": kind, "steps": "0", "steps_total": str(self.agent_steps)}
        return Outgoing(EXPERIENCES, encode_json(message), str(self.actor), headers)

    def _publish(self, messages: Sequence[Outgoing]) -> None:
        """A full bus makes the actor wait; it never drops."""
        self._busy("sending")
        while True:
            try:
                self._bus.publish(messages, timeout_s=FULL_S)
                return
            except BusFull:
                if self._wait_s == 0:
                    raise  # nobody else in this process can make room
                self._busy(FULL_BUS)
