"""Every record that crosses a process, with its topic and its producer -> consumer.

    experiences        Fragment, ActorJoined                       actor -> learner
                       Fragment of a walk-in                       anyone -> learner
                       ActorLeft, LearnerOrders                    controller -> learner
    model_updates      Weights, Credits, LeaguePools               learner -> actors, viewers
                       SeatsChanged                                controller -> actors
                       CrewCalled                                  leader -> followers
    commands.control   Command, signed                             people, scripts -> controller
    events             Event                                       controller, workers -> everyone
    control.states     Saved, signed (`control.saved_states`)      readers of the log -> the next
    metrics.training   TrainingMetrics                             learner -> everyone
    metrics.actors     ActorMetrics                                actor -> everyone

Fragments and weights are binary (`fragment`, `weights`) and imported from there; everything else is
JSON that a person can read with any tool, and is exported here.
"""

from __future__ import annotations

from rookery.messages.commands import (
    Command,
    CreateRun,
    DeleteRun,
    Evaluate,
    Job,
    LabelRun,
    PauseRun,
    PlayMatch,
    ResumeRun,
    SaveCheckpoint,
    ScaleActors,
    ScaleLearner,
    SetHyperparameters,
    SetSeatMap,
    StartRun,
    StopRun,
)
from rookery.messages.coordination import (
    ActorAlive,
    ActorJoined,
    ActorLeft,
    Credits,
    CrewCalled,
    LeaguePools,
    LearnerClaimed,
    LearnerOrders,
    SeatsChanged,
)
from rookery.messages.events import (
    CheckpointDamaged,
    CheckpointSaved,
    CommandAccepted,
    CommandRejected,
    Event,
    HyperparametersChanged,
    JobDone,
    JobStarted,
    MatchPlayed,
    RunEnded,
    RunOwned,
    TrainingHeld,
    UpdateSkipped,
    WorkerExited,
    WorkerFailed,
    WorkerStarted,
    WorkerStarting,
    WorkerWaiting,
)
from rookery.messages.ids import (
    COMMANDS,
    CREDITS_KEY,
    CREW_KEY,
    CRITIC_KEY,
    EVENTS,
    EXPERIENCES,
    JOINED_FROM,
    LEAGUE_KEY,
    LEARNER_KEY,
    METRICS_ACTORS,
    METRICS_TRAINING,
    MODEL_UPDATES,
    ORDERS_KEY,
    SEATS_KEY,
    STATES,
    WALK_IN,
    ActorId,
    Origin,
    WeightsVersion,
    is_later_life,
    new_id,
)
from rookery.messages.json_records import (
    MAX_JSON_BYTES,
    SCHEMA,
    JsonRecord,
    check_schema,
    decode_json,
    decode_or_none,
    decoder,
    encode_json,
)
from rookery.messages.metrics import (
    DIVERGED,
    ActorMetrics,
    LeagueMetrics,
    LedgerSummary,
    PolicyMetrics,
    TrainingMetrics,
)

JsonMessage = (
    ActorJoined
    | ActorLeft
    | ActorAlive
    | LearnerClaimed
    | LearnerOrders
    | Credits
    | LeaguePools
    | SeatsChanged
    | CrewCalled
    | Command
    | Event
    | TrainingMetrics
    | ActorMetrics
)

__all__ = [
    "JsonMessage",
    "ActorAlive",
    "ActorId",
    "ActorJoined",
    "ActorLeft",
    "ActorMetrics",
    "COMMANDS",
    "CREDITS_KEY",
    "CREW_KEY",
    "CRITIC_KEY",
    "CheckpointDamaged",
    "CheckpointSaved",
    "Command",
    "CommandAccepted",
    "CommandRejected",
    "CreateRun",
    "Credits",
    "CrewCalled",
    "DeleteRun",
    "EVENTS",
    "EXPERIENCES",
    "Evaluate",
    "Event",
    "HyperparametersChanged",
    "JOINED_FROM",
    "Job",
    "JobDone",
    "JobStarted",
    "JsonRecord",
    "LEAGUE_KEY",
    "LabelRun",
    "LEARNER_KEY",
    "LeagueMetrics",
    "LeaguePools",
    "LearnerClaimed",
    "LearnerOrders",
    "LedgerSummary",
    "DIVERGED",
    "MAX_JSON_BYTES",
    "METRICS_ACTORS",
    "METRICS_TRAINING",
    "MODEL_UPDATES",
    "MatchPlayed",
    "ORDERS_KEY",
    "WALK_IN",
    "Origin",
    "PauseRun",
    "PlayMatch",
    "PolicyMetrics",
    "ResumeRun",
    "RunEnded",
    "RunOwned",
    "SCHEMA",
    "SEATS_KEY",
    "STATES",
    "SaveCheckpoint",
    "ScaleActors",
    "ScaleLearner",
    "SeatsChanged",
    "SetHyperparameters",
    "SetSeatMap",
    "StartRun",
    "StopRun",
    "TrainingHeld",
    "UpdateSkipped",
    "TrainingMetrics",
    "WeightsVersion",
    "WorkerExited",
    "WorkerFailed",
    "WorkerStarted",
    "WorkerStarting",
    "WorkerWaiting",
    "check_schema",
    "decode_json",
    "decode_or_none",
    "decoder",
    "encode_json",
    "is_later_life",
    "new_id",
]
