"""Between actors, learner and controller: who plays, how far, with whom."""

from __future__ import annotations

from typing import Any

from rookery.messages.ids import Origin
from rookery.messages.json_records import JsonRecord


class ActorJoined(JsonRecord, frozen=True, kw_only=True, tag="joined"):
    """An actor is ready to play under a learner's generation; its earlier credits are void."""

    actor: str
    generation: int
    next_turn: int  # of its playing loop; each makes a fragment of every policy that learns
    heartbeat_s: float = 0.0  # how often it says that it lives; 0: a controller watches over it


class ActorLeft(JsonRecord, frozen=True, kw_only=True, tag="left"):
    """An incarnation is gone for good; whatever it published stands before this record."""

    actor: str


class ActorAlive(JsonRecord, frozen=True, kw_only=True, tag="alive"):
    """An actor that nobody watches over still plays."""

    actor: str


class LearnerClaimed(JsonRecord, frozen=True, kw_only=True, tag="claimed"):
    """A learner begins a generation; the first claim of a number in the log has it."""

    generation: int
    token: str


class CrewCalled(JsonRecord, frozen=True, kw_only=True, tag="crew"):
    """The leader of a generation waits for its followers, at this address of its machine."""

    generation: int
    size: int  # learners, the leader included
    host: str
    port: int
    token: str  # what a follower has to say there; good for this generation alone


class LearnerOrders(JsonRecord, frozen=True, kw_only=True, tag="orders"):
    """What the log of commands asks of the learner now: all of it, so the newest is enough."""

    revision: int  # grows with each change
    paused: bool
    hyperparameters: dict[str, float]  # as set since the run was created, by config key
    checkpoints: int  # how many were ever asked for
    actors: int = 0  # how many are wanted; 0: as the config says
    stop: dict[str, int | float | None] | None = None  # bounds, as in a config; None: as it says
    learners: int = 1  # how many train together; looked at when they start


class Credits(JsonRecord, frozen=True, kw_only=True, tag="credits"):
    """Admission control: how far each actor may play. Cumulative, so the newest is enough."""

    generation: int
    upto: dict[str, int]  # actor -> it may play turns below this
    number: int = 0  # of the newest weights: nobody plays with older ones


class LeaguePools(JsonRecord, frozen=True, kw_only=True, tag="league"):
    """What actors need of the league: whom to draw, whom to rate, and where the weights are."""

    pools: dict[str, dict[str, float]]  # policy -> snapshot -> weight in a draw
    rated: tuple[str, ...]  # snapshots whose ratings are least certain, first things first
    files: dict[str, str]  # snapshot -> its name in the store of snapshots


class SeatsChanged(JsonRecord, frozen=True, kw_only=True, tag="seats"):
    """A new seat map, from the next episode on."""

    revision: int  # grows with each change
    seats: dict[str, Any]  # as in the config
    origin: Origin = "local"
