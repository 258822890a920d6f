"""Metrics: how the learner and the actors are doing. Learner, actors -> everyone."""

from __future__ import annotations

import msgspec

from rookery.messages.json_records import JsonRecord

DIVERGED = "diverged"  # why steps were dropped: their update was skipped, as it was not finite


class LedgerSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The learner's count of agent steps, as of `position` in `experiences`."""

    trained: int
    dropped: dict[str, int]
    pending: int  # received, waiting in a half-built batch
    position: tuple[int, ...]
    seen: dict[str, int]  # actor -> agent steps received from it
    duplicates: int = 0  # fragments that arrived twice and were ignored
    gaps: int = 0  # fragments that should have come and did not
    damaged: int = 0  # messages in `experiences` that could not be read and were skipped


class PolicyMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's part in a run of several."""

    trained: int  # agent steps
    episodes: int
    mean_return_100: float | None
    min_return_100: float | None = None
    max_return_100: float | None = None
    values: dict[str, float | None]


class LeagueMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """How the league stands: rating games are a run's evaluation beside its training."""

    snapshots: int
    rated_games: int
    newest: str  # the newest snapshot that has been rated
    rating: float
    uncertainty: float
    points: dict[str, float]  # player of reference -> the newest snapshot's share of points


class TrainingMetrics(JsonRecord, frozen=True, kw_only=True, tag="training"):
    """What the learner did since its last report."""

    run: str
    policy: str
    generation: int
    updates: int
    env_steps: int
    train_s: float  # since the first environment step, over all lives of the run
    steps_per_s: float  # steady: since the first update of this life, compile time excluded
    recent_steps_per_s: float
    host: str = ""  # the machine the learner lives on
    device: str = ""  # what it computes on there; empty in older messages
    episodes: int
    mean_return_100: float | None
    min_return_100: float | None = None  # of the same episodes; None in older messages
    max_return_100: float | None = None
    mean_length_100: float | None
    lag_mean: float
    lag_max: int  # the largest lag of any fragment trained in this life
    bus_lag: int | None = None  # messages of experience that are published and not read
    actors: tuple[str, ...] | None = None  # that have joined and not left; None in older messages
    late: tuple[str, ...] = ()  # actors that nobody waits for any more, until they have delivered
    ledger: LedgerSummary
    values: dict[str, float | None]  # losses and diagnostics; None where a value was not finite
    policies: dict[str, PolicyMetrics] = msgspec.field(
        default_factory=dict
    )  # of a run with several seats or policies
    seats: dict[str, float] = msgspec.field(
        default_factory=dict
    )  # seat -> mean return of the last 100 episodes there
    league: LeagueMetrics | None = None


class ActorMetrics(JsonRecord, frozen=True, kw_only=True, tag="actor"):
    """How an actor is doing."""

    run: str
    actor: str
    fragments: int
    agent_steps: int
    steps_per_s: float
    waiting_share: float  # of the time since the last report, spent waiting for credits
    doing: str  # waiting, playing, full bus
    host: str = ""  # the machine it lives on
