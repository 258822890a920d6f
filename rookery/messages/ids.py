"""Topics, and the small names that messages carry."""

from __future__ import annotations

import re
import uuid
from typing import Literal, NamedTuple

EXPERIENCES = "experiences"
MODEL_UPDATES = "model_updates"
COMMANDS = "commands.control"
EVENTS = "events"
STATES = "control.states"
METRICS_TRAINING = "metrics.training"
METRICS_ACTORS = "metrics.actors"

CREDITS_KEY = "credits"
LEAGUE_KEY = "league"
CRITIC_KEY = "critic/"  # and the policy's name
SEATS_KEY = "seats"
CREW_KEY = "crew"
ORDERS_KEY = "orders"  # among the actors' keys
LEARNER_KEY = "learner."  # and its generation: of claims, among the actors' keys
WALK_IN = "walk-in."  # and a name: who sends fragments that nobody granted, among the actors' keys
JOINED_FROM = 1000  # ordinals of actors that joined on their own, without a controller

Origin = Literal["local", "network"]


class WeightsVersion(NamedTuple):
    """Which weights: the number grows with each update, the generation with each learner start."""

    generation: int
    number: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.number}"


class ActorId(NamedTuple):
    """One life of one actor; a restarted actor is a new incarnation."""

    ordinal: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.ordinal}.{self.incarnation}"

    @classmethod
    def parse(cls, text: str) -> ActorId | None:
        """None for any other key: whoever may write to the bus chooses theirs freely."""
        found = re.fullmatch(r"([0-9]{1,9})\.([0-9]{1,9})", text)
        return None if found is None else cls(int(found[1]), int(found[2]))


def is_later_life(actor: str, than: str) -> bool:
    """Whether one actor, as text, took over from another: a later incarnation of its ordinal."""
    (ordinal, _, life), (other, _, before) = actor.partition("."), than.partition(".")
    both = life.isdecimal() and before.isdecimal()
    return ordinal == other and both and int(life) > int(before)


def new_id() -> str:
    return uuid.uuid4().hex
