"""Every record that crosses a process, with its topic and its producer -> consumer.

    experiences        Fragment, ActorJoined                       actor -> learner
                       ActorLeft, LearnerOrders                    controller -> learner
    model_updates      Weights, Credits, LeaguePools               learner -> actors, viewers
                       SeatsChanged                                controller -> actors
    commands.control   Command, signed                             people, scripts -> controller
    events             Event                                       controller, workers -> everyone
    metrics.training   TrainingMetrics                             learner -> everyone
    metrics.actors     ActorMetrics                                actor -> everyone

Fragments and weights are binary and live in `rookery.codec`; everything here is JSON that a person
can read with any tool. Decoding into the type is the validation.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, overload

import msgspec
from msgspec import Meta

from rookery.errors import MessageError

SCHEMA = 1

EXPERIENCES = "experiences"
MODEL_UPDATES = "model_updates"
COMMANDS = "commands.control"
EVENTS = "events"
METRICS_TRAINING = "metrics.training"
METRICS_ACTORS = "metrics.actors"

CREDITS_KEY = "credits"
LEAGUE_KEY = "league"
CRITIC_KEY = "critic/"  # and the policy's name
SEATS_KEY = "seats"
ORDERS_KEY = "orders"  # among the actors' keys
LEARNER_KEY = "learner."  # and its generation: of claims, among the actors' keys
JOINED_FROM = 1000  # ordinals of actors that joined on their own, without a controller

MAX_JSON_BYTES = 4 << 20


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
    def parse(cls, text: str) -> ActorId:
        ordinal, _, incarnation = text.partition(".")
        return cls(int(ordinal), int(incarnation))


def new_id() -> str:
    return uuid.uuid4().hex


class _Json(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the JSON records: schema version and time."""

    schema: int = SCHEMA
    time_s: float = msgspec.field(default_factory=time.time)


# --- actor <-> learner ---------------------------------------------------------------------------


class ActorJoined(_Json, frozen=True, kw_only=True, tag="joined"):
    """An actor is ready to play under a learner's generation; its earlier credits are void."""

    actor: str
    generation: int
    next_turn: int  # of its playing loop; each makes a fragment of every policy that learns
    heartbeat_s: float = 0.0  # how often it says that it lives; 0: a controller watches over it


class ActorLeft(_Json, frozen=True, kw_only=True, tag="left"):
    """An incarnation is gone for good; whatever it published stands before this record."""

    actor: str


class ActorAlive(_Json, frozen=True, kw_only=True, tag="alive"):
    """An actor that nobody watches over still plays."""

    actor: str


class LearnerClaimed(_Json, frozen=True, kw_only=True, tag="claimed"):
    """A learner begins a generation; the first claim of a number in the log has it."""

    generation: int
    token: str


class LearnerOrders(_Json, frozen=True, kw_only=True, tag="orders"):
    """What the log of commands asks of the learner now: all of it, so the newest is enough."""

    revision: int  # grows with each change
    paused: bool
    hyperparameters: dict[str, float]  # as set since the run was created, by config key
    checkpoints: int  # how many were ever asked for


class Credits(_Json, frozen=True, kw_only=True, tag="credits"):
    """Admission control: how far each actor may play. Cumulative, so the newest is enough."""

    generation: int
    upto: dict[str, int]  # actor -> it may play turns below this


class LeaguePools(_Json, frozen=True, kw_only=True, tag="league"):
    """What actors need of the league: whom to draw, whom to rate, and where the weights are."""

    pools: dict[str, dict[str, float]]  # policy -> snapshot -> weight in a draw
    rated: tuple[str, ...]  # snapshots whose ratings are least certain, first things first
    files: dict[str, str]  # snapshot -> its name in the store of snapshots


class SeatsChanged(_Json, frozen=True, kw_only=True, tag="seats"):
    """A new seat map, from the next episode on."""

    revision: int  # grows with each change
    seats: dict[str, Any]  # as in the config
    origin: Origin = "local"


# --- commands ------------------------------------------------------------------------------------
#
# The docstrings and the descriptions of fields are what REST, MCP and the command line show.


class _Command(_Json, frozen=True, kw_only=True):
    run: str
    id: str = msgspec.field(default_factory=new_id)
    author: str = ""
    reason: str = ""
    origin: Origin = "local"  # "network": held to the allow-list of the home's owner


class CreateRun(_Command, frozen=True, kw_only=True, tag="create_run"):
    """Create a run from a config."""

    config: dict[str, Any]  # {"config": RunConfig, "spec": what its environment looks like}


class StartRun(_Command, frozen=True, kw_only=True, tag="start_run"):
    """Start a run; one that stopped goes on from its newest checkpoint."""


class PauseRun(_Command, frozen=True, kw_only=True, tag="pause_run"):
    """Hold playing and training while the workers stay in memory, so that it resumes at once."""


class ResumeRun(_Command, frozen=True, kw_only=True, tag="resume_run"):
    """Go on with a run that is paused or has stopped."""


class StopRun(_Command, frozen=True, kw_only=True, tag="stop_run"):
    """Stop a run after a checkpoint, and end its workers."""


class ScaleActors(_Command, frozen=True, kw_only=True, tag="scale_actors"):
    """Change how many actors play."""

    count: Annotated[int, Meta(ge=0, le=1024, description="actor processes; 0: nobody plays")]


class ScaleLearner(_Command, frozen=True, kw_only=True, tag="scale_learner"):
    """Take the learner away after a checkpoint (0), or bring it back (1)."""

    count: Annotated[int, Meta(ge=0, le=1, description="0 or 1")]


class SetHyperparameters(_Command, frozen=True, kw_only=True, tag="set_hyperparameters"):
    """Change hyperparameters while the run goes on, from the next update on."""

    values: Annotated[
        dict[str, float],
        Meta(
            min_length=1,
            max_length=64,
            description="by config key: algorithm.learning_rate, or of one policy "
            "policies.NAME.algorithm.learning_rate",
        ),
    ]


class SetSeatMap(_Command, frozen=True, kw_only=True, tag="set_seat_map"):
    """Seat other players, from each slot's next episode on."""

    seats: Annotated[
        dict[str, Any],
        Meta(min_length=1, max_length=64, description="seat or pattern -> player, as in a config"),
    ]


class SaveCheckpoint(_Command, frozen=True, kw_only=True, tag="save_checkpoint"):
    """Save a checkpoint now."""


class Evaluate(_Command, frozen=True, kw_only=True, tag="evaluate"):
    """Play fresh episodes with the newest checkpoint, greedy and sampled."""

    episodes: Annotated[int, Meta(ge=1, le=100_000, description="fresh episodes")] = 100
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description="of the evaluation")] = 0
    player: Annotated[
        str, Meta(min_length=1, max_length=200, description="policy, or script:random")
    ] = "policy"


class PlayMatch(_Command, frozen=True, kw_only=True, tag="play_match"):
    """Let two players meet in the run's environment, both ways round."""

    a: Annotated[
        str, Meta(min_length=1, max_length=200, description="RUN, RUN@340, script:random ...")
    ]
    b: Annotated[
        str, Meta(min_length=1, max_length=200, description="RUN, RUN@340, script:random ...")
    ]
    games: Annotated[int, Meta(ge=1, le=100_000, description="half each way round")] = 100
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1, description="of the match")] = 0
    sampled: Annotated[
        bool, Meta(description="runs play by chance, not their likeliest action")
    ] = False


class DeleteRun(_Command, frozen=True, kw_only=True, tag="delete_run"):
    """Forget a run that does not run, and remove its files for good."""


Command = (
    CreateRun
    | StartRun
    | PauseRun
    | ResumeRun
    | StopRun
    | ScaleActors
    | ScaleLearner
    | SetHyperparameters
    | SetSeatMap
    | SaveCheckpoint
    | Evaluate
    | PlayMatch
    | DeleteRun
)
Job = Evaluate | PlayMatch  # carried out by a process of its own, whose result is an event


# --- events --------------------------------------------------------------------------------------


class _Event(_Json, frozen=True, kw_only=True):
    run: str


class CommandAccepted(_Event, frozen=True, kw_only=True, tag="command_accepted"):
    command: str


class CommandRejected(_Event, frozen=True, kw_only=True, tag="command_rejected"):
    command: str
    why: str


class RunOwned(_Event, frozen=True, kw_only=True, tag="run_owned"):
    """A controller took the run's lease."""

    pid: int
    by: str = "terminal"  # or "server", which goes on with it after its own death
    again: bool = False  # it had the lease already, and was asked to start what it carries


class WorkerStarting(_Event, frozen=True, kw_only=True, tag="worker_starting"):
    """Written before the process exists, so that an incarnation is never used twice."""

    kind: str  # "actor" or "learner"
    index: int
    incarnation: int


class WorkerStarted(_Event, frozen=True, kw_only=True, tag="worker_started"):
    kind: str
    index: int
    incarnation: int
    pid: int


class WorkerFailed(_Event, frozen=True, kw_only=True, tag="worker_failed"):
    """A worker's own account of what went wrong, written by itself before it exits."""

    kind: str
    index: int
    incarnation: int
    error: str  # one line
    detail: str = ""  # the traceback of the user's own code, where there is one
    final: bool = False  # another try can't help


class WorkerExited(_Event, frozen=True, kw_only=True, tag="worker_exited"):
    kind: str
    index: int
    incarnation: int
    code: int  # negative: the signal that ended it
    expected: bool = False


class CheckpointSaved(_Event, frozen=True, kw_only=True, tag="checkpoint_saved"):
    name: str
    env_steps: int


class MatchPlayed(_Event, frozen=True, kw_only=True, tag="match_played"):
    """Games outside training between frozen players, for the ladder."""

    players: tuple[str, str]
    wins: int  # of the first
    draws: int
    losses: int


class HyperparametersChanged(_Event, frozen=True, kw_only=True, tag="hyperparameters_changed"):
    """The learner took up what was set: from this update on, and all that was set before."""

    update: int  # the first that trains with them
    env_steps: int
    values: dict[str, float]


class TrainingHeld(_Event, frozen=True, kw_only=True, tag="training_held"):
    """The learner paused, or went on."""

    held: bool
    update: int
    env_steps: int


class JobStarted(_Event, frozen=True, kw_only=True, tag="job_started"):
    command: str
    pid: int


class JobDone(_Event, frozen=True, kw_only=True, tag="job_done"):
    """An evaluation or a match has its result, or failed."""

    command: str
    result: dict[str, Any] = {}
    error: str = ""


class CheckpointDamaged(_Event, frozen=True, kw_only=True, tag="checkpoint_damaged"):
    name: str
    why: str


class RunEnded(_Event, frozen=True, kw_only=True, tag="run_ended"):
    """The learner or the controller says how this stretch of the run ended."""

    status: str  # solved, finished, limited, stopped, failed
    reason: str


Event = (
    CommandAccepted
    | CommandRejected
    | RunOwned
    | WorkerStarting
    | WorkerStarted
    | WorkerFailed
    | WorkerExited
    | CheckpointSaved
    | CheckpointDamaged
    | HyperparametersChanged
    | TrainingHeld
    | JobStarted
    | JobDone
    | MatchPlayed
    | RunEnded
)


# --- metrics -------------------------------------------------------------------------------------


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
    newest: str  # the newest snapshot
    rating: float
    uncertainty: float
    points: dict[str, float]  # player of reference -> the newest snapshot's share of points


class TrainingMetrics(_Json, frozen=True, kw_only=True, tag="training"):
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
    episodes: int
    mean_return_100: float | None
    min_return_100: float | None = None  # of the same episodes; None in older messages
    max_return_100: float | None = None
    mean_length_100: float | None
    lag_mean: float
    lag_max: int  # the largest lag of any fragment trained in this life
    bus_lag: int | None = None  # messages of experience that are published and not read
    ledger: LedgerSummary
    values: dict[str, float | None]  # losses and diagnostics; None where a value was not finite
    policies: dict[str, PolicyMetrics] = {}  # of a run with several seats or policies
    seats: dict[str, float] = {}  # seat -> mean return of the last 100 episodes there
    league: LeagueMetrics | None = None


class ActorMetrics(_Json, frozen=True, kw_only=True, tag="actor"):
    """How an actor is doing."""

    run: str
    actor: str
    fragments: int
    agent_steps: int
    steps_per_s: float
    waiting_share: float  # of the time since the last report, spent waiting for credits
    doing: str  # waiting, playing
    host: str = ""  # the machine it lives on


JsonMessage = (
    ActorJoined
    | ActorLeft
    | ActorAlive
    | LearnerClaimed
    | LearnerOrders
    | Credits
    | LeaguePools
    | SeatsChanged
    | Command
    | Event
    | TrainingMetrics
    | ActorMetrics
)


class _Versioned(msgspec.Struct):
    """Whatever else a message holds."""

    schema: int = SCHEMA


_encoder = msgspec.json.Encoder()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making_decoder = threading.Lock()
_T = TypeVar("_T")


def encode_json(message: JsonMessage) -> bytes:
    return _encoder.encode(message)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Made once, by one thread: two that meet a type for the first time crash inside msgspec."""
    found = _decoders.get(kind)
    if found is None:
        with _making_decoder:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return found


@overload
def decode_json(payload: bytes, kind: type[_T]) -> _T: ...
@overload
def decode_json(payload: bytes, kind: Any) -> Any: ...
def decode_json(payload: bytes, kind: Any) -> Any:
    """Decode into `kind`, a record type or a union of them; anything else is a MessageError."""
    if len(payload) > MAX_JSON_BYTES:
        raise MessageError(f"a JSON message of {len(payload)} bytes is over {MAX_JSON_BYTES}")
    try:
        message = decoder(kind).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        check_schema(_schema_of(payload))
        raise MessageError(f"not a valid message: {error}") from error
    check_schema(getattr(message, "schema", SCHEMA))
    return message


def check_schema(schema: int) -> None:
    if schema != SCHEMA:
        raise MessageError(
            f"schema version {schema} of a message; this Rookery reads {SCHEMA}: use one version "
            "of Rookery everywhere"
        )


def _schema_of(payload: bytes) -> int:
    """What a message that cannot be read says of its schema; ours, if it says nothing."""
    try:
        found: _Versioned = decoder(_Versioned).decode(payload)
        return found.schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return SCHEMA


def decode_or_none(payload: bytes, kind: type[_T]) -> _T | None:
    """None for a message that is none, where anybody may write and nothing depends on it."""
    try:
        return decode_json(payload, kind)
    except MessageError:
        return None
