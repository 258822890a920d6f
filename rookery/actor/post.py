"""The actor's side of the bus: weights and credits come in, fragments go out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rookery.actor.experience import Experience
from rookery.bus import EARLIEST, Bus, Outgoing
from rookery.codec import Fragment, FragmentHeader, Weights, decode_weights, encode_fragment
from rookery.errors import BusFull
from rookery.messages import (
    EXPERIENCES,
    MODEL_UPDATES,
    ActorId,
    ActorJoined,
    Credits,
    decode_json,
    encode_json,
)


class ActorPost:
    """Keeps an actor within the learner's credits and numbers what it sends.

    The learner publishes weights before the credits that go with them, on one ordered topic, so an
    actor that sees a credit has seen the weights it was granted for. A new generation of learner
    voids all credits: the actor joins again, after everything it has sent.
    """

    def __init__(
        self,
        bus: Bus,
        run: str,
        policy: str,
        actor: ActorId,
        seat: str,
        player_kind: str,
        wait_s: float,
        busy: Callable[[str], None] = lambda doing: None,
    ) -> None:
        self.run, self.policy, self.actor = run, policy, actor
        self._seat, self._player_kind = seat, player_kind
        self._bus = bus
        self._wait_s = wait_s  # 0 in an inline run, where waiting is another's turn
        self._busy = busy
        self._updates = bus.subscribe(MODEL_UPDATES, EARLIEST)
        self._weights: Weights | None = None
        self._generation = 0  # the learner's, that this actor has joined; 0: none yet
        self._upto = 0
        self.sequence = 0
        self.agent_steps = 0

    def admit(self) -> Weights | None:
        may_play = self.sequence < self._upto
        self._read(0.0 if may_play else self._wait_s)
        return self._weights if self.sequence < self._upto else None

    def send(self, experience: Experience, weights: Weights) -> Fragment:
        fragment = self._fragment(experience, weights)
        header = fragment.header
        message = Outgoing(
            EXPERIENCES,
            encode_fragment(fragment),
            key=header.actor,
            headers={
                "kind": "fragment",
                "run": self.run,
                "sequence": str(header.sequence),
                "steps": str(header.steps),
                "steps_total": str(header.first_step + header.steps),
            },
        )
        self._publish(message)
        self.sequence += 1
        self.agent_steps += header.steps
        return fragment

    def _fragment(self, experience: Experience, weights: Weights) -> Fragment:
        lanes = experience.reward.shape[1]
        header = FragmentHeader(
            run=self.run,
            policy=self.policy,
            actor=str(self.actor),
            sequence=self.sequence,
            first_step=self.agent_steps,
            steps=int(np.count_nonzero(experience.valid)),
            version=weights.header.version,
            seats=(self._seat,),
            players=(self._player_kind,),
            episodes=experience.episodes,
        )
        return Fragment(
            header=header,
            observation=experience.observation,
            action=experience.action,
            reward=experience.reward,
            terminated=experience.terminated,
            truncated=experience.truncated,
            valid=experience.valid,
            log_prob=experience.log_prob,
            seat=np.zeros(lanes, np.uint8),
            player=np.zeros(lanes, np.uint8),
            mask=experience.mask,
            state=experience.state,
        )

    def _read(self, wait_s: float) -> None:
        newest_weights: bytes | None = None
        credits: Credits | None = None
        for record in self._updates.poll(wait_s):
            if record.headers.get("kind") == "weights":
                if record.key == self.policy:
                    newest_weights = record.payload
            elif record.headers.get("kind") == "credits":
                credits = decode_json(record.payload, Credits)
        if newest_weights is not None:
            weights = decode_weights(newest_weights)
            if self._weights is None or weights.header.version > self._weights.header.version:
                self._weights = weights
        if credits is not None and credits.generation >= self._generation:
            if credits.generation > self._generation:
                self._join(credits.generation)
            self._upto = credits.upto.get(str(self.actor), 0)

    def _join(self, generation: int) -> None:
        joined = ActorJoined(
            actor=str(self.actor), generation=generation, next_sequence=self.sequence
        )
        headers = {"kind": "joined", "steps": "0", "steps_total": str(self.agent_steps)}
        self._publish(Outgoing(EXPERIENCES, encode_json(joined), str(self.actor), headers))
        self._generation = generation

    def _publish(self, message: Outgoing) -> None:
        """A full bus makes the actor wait; it never drops."""
        while True:
            try:
                self._bus.publish([message], timeout_s=5.0)
                return
            except BusFull:
                if self._wait_s == 0:
                    raise  # nobody else in this process can make room
                self._busy("full bus")
