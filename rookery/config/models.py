"""RunConfig and its parts: small frozen models, read once at the edge.

`config.reading` reads YAML, flags and `--set a.b=c` into them. Fields that may change while a run
goes on carry `live` in their JSON Schema.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from rookery.config.algorithm import Algorithm, bind
from rookery.config.bus import AnyBus
from rookery.config.kinds import ALGORITHMS, LAUNCHERS
from rookery.config.part import Part


class EnvironmentConfig(Part):
    """The world that is played."""

    id: str = Field(
        min_length=1,
        description="Gymnasium id, gymnax:NAME, pgx:NAME, pettingzoo:NAME or module:Class",
    )
    kwargs: dict[str, Any] = Field(default={}, description="passed to the environment")
    deadline_s: float = Field(
        default=60.0, gt=0, description="a reset or step that takes longer counts as hung"
    )


def _row(value: object) -> object:
    """One width is a row of one; any other text says how it is written."""
    if isinstance(value, str):
        raise PydanticCustomError("widths", "write the widths as a list, like [256, 256]")
    return [value] if isinstance(value, int) else value


Widths = Annotated[tuple[Annotated[int, Field(ge=1, le=8192)], ...], BeforeValidator(_row)]


class NetworkConfig(Part):
    """The policy's and the value's networks: one MLP each, over a shared CNN for images.

    With an encoder both stand on its dense layers, which other policies may share.
    """

    encoder: str | None = Field(
        default=None,
        min_length=1,
        description="name of an encoder: policies that name the same one share its weights",
    )
    encoder_hidden: Widths = Field(
        default=(64,), max_length=8, description="width of each layer of the encoder, if it has one"
    )
    hidden: Widths = Field(default=(64, 64), max_length=8, description="width of each hidden layer")
    activation: Literal["tanh", "relu"] = "tanh"
    channels: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        default=(16, 32), max_length=4, description="3x3 convolutions, for images only"
    )
    gaussian: Literal["clipped", "squashed"] = Field(
        default="clipped", description="how a continuous action is kept within its bounds"
    )
    initial_log_std: float | None = Field(
        default=None,
        ge=-5,
        le=2,
        description="continuous actions only; null: 0 for one component, less the more there are",
    )
    normalize_observations: bool = Field(
        default=True, description="by running mean and variance, kept by the learner"
    )


AUTO = "auto"  # as a number of actors: as many as the learner can take


class ActorsConfig(Part):
    """Who plays, and how much at a time."""

    count: int = Field(default=1, ge=1, le=64, description="actor processes")
    auto: bool = Field(
        default=False,
        description="their number follows what the learner can take, up to max_count; count: auto",
    )
    max_count: int = Field(default=16, ge=1, le=1024, description="that a command may scale to")
    envs_per_actor: int = Field(default=32, ge=1, le=65536, description="slots played together")
    rollout_steps: int = Field(default=64, ge=1, le=65536, description="T of a fragment")
    opponents_per_actor: int = Field(
        default=4, ge=1, le=64, description="snapshots of a league that play at once"
    )
    heartbeat_s: float = Field(
        default=5.0, gt=0, description="how often actors that joined on their own say they live"
    )

    @property
    def number(self) -> str:
        """How many, in words for people."""
        return AUTO if self.auto else str(self.count)


class LearnerConfig(Part):
    """How experience becomes batches, and how many train on them."""

    count: int = Field(
        default=1,
        ge=1,
        le=64,
        description="learner processes that train each batch together, an equal part each",
    )
    max_count: int = Field(default=8, ge=1, le=64, description="that a command may scale to")
    fragments_per_batch: int = Field(
        default=1, ge=1, le=1024, description="PPO: one per actor unless set"
    )
    max_policy_lag_versions: int = Field(
        default=1, ge=0, le=1024, description="updates between a fragment's weights and its use"
    )
    follows_actors: bool = Field(
        default=False,
        description="those two were made for actors.count, and follow it when a run is scaled",
    )
    publish_interval_s: float = Field(
        default=0.0, ge=0, description="least time between two publications of large weights"
    )
    walk_in_places: int = Field(
        default=0, ge=0, le=1024, description="left free for fragments that nobody granted"
    )
    threads: int = Field(
        default=1, ge=1, le=256, description="of XLA; one is fastest for small networks"
    )
    device: Literal["auto", "cpu", "gpu"] = Field(
        default="auto", description="what updates are computed on; auto: what JAX finds first"
    )

    @model_validator(mode="after")
    def _leaves_room(self) -> LearnerConfig:
        most = self.fragments_per_batch * self.max_policy_lag_versions
        if self.walk_in_places > most:
            raise ValueError(
                f"learner.walk_in_places={self.walk_in_places} leaves actors too few: at most "
                f"{most} here (fragments_per_batch x max_policy_lag_versions)"
            )
        return self


class Place(Part):
    """What a worker of one kind takes of a node; on launchers that place workers."""

    cpus: float = Field(default=1.0, ge=0, description="of its node, reserved for it")
    gpus: float = Field(default=0.0, ge=0)
    resources: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={}, description="of your own, by name"
    )
    labels: dict[str, str] = Field(default={}, description="that its node has, like zone: a")


class PlacementConfig(Part):
    """Where workers go, on launchers with several nodes."""

    actor: Place = Place()
    learner: Place = Place()


class StopConfig(Part):
    """When a run is done; without until_return, reaching `steps` is success."""

    until_return: float | None = Field(default=None, description="mean of the last 100 episodes")
    steps: int | None = Field(default=None, ge=1, description="agent steps trained on")
    minutes: float | None = Field(default=None, gt=0, description="of wall-clock time")


_FLEETING = {  # what fsspec knows and no run can be kept in
    "memory": "what is in a process's memory is gone with it: use file:DIRECTORY",
    "local": "use file:DIRECTORY",
    "http": "it can be read, not written: use s3://BUCKET/PREFIX",
    "https": "it can be read, not written: use s3://BUCKET/PREFIX",
}


def is_far(uri: str) -> bool:
    """Whether a store is reached over a network, not as files."""
    return "://" in uri and not uri.startswith("file:")


class CheckpointConfig(Part):
    uri: str = Field(
        default="",
        description="file:DIR, s3://BUCKET/PREFIX; empty: inside the run's own directory",
    )
    interval_s: float = Field(default=10.0, gt=0, description="at least this often (local)")
    every_updates: int = Field(
        default=20, ge=1, description="inline: by updates, so that the run stays deterministic"
    )
    keep: int = Field(default=3, ge=1, le=100)

    @field_validator("uri")
    @classmethod
    def _is_supported(cls, uri: str) -> str:
        """Where a store is and who may use it are each machine's own affair: an address holds
        neither a user nor options. The part after the bucket is needed: others may use it too."""
        scheme, far, _ = uri.partition("://")
        if not uri or (uri.startswith("file:") and uri != "file:"):
            return uri
        if far and scheme in _FLEETING:
            raise ValueError(f"checkpoint.uri {uri!r}: {_FLEETING[scheme]}")
        if "@" in uri:
            raise ValueError(
                "checkpoint.uri holds no user and no password, since others can read it: leave "
                "them to the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY do"
            )
        if not re.fullmatch(r"[a-z][a-z0-9]*://[^\s/:?#]+(/[^\s/:?#]+)+/?", uri):
            raise ValueError(
                f"checkpoint.uri {uri!r} is not supported: use file:DIRECTORY or s3://BUCKET/PREFIX"
            )
        return uri.rstrip("/")

    def uri_below(self, place: str) -> str:
        """Of one run alone, where the address is named for several; empty: each has its own."""
        return f"{self.uri.rstrip('/')}/{place}" if self.uri else ""


class RestartConfig(Part):
    """What happens when a worker dies."""

    max_restarts: int = Field(
        default=5, ge=0, description="deaths of one worker without progress before the run fails"
    )
    backoff_s: float = Field(default=0.2, ge=0, description="doubles with each death")
    max_backoff_s: float = Field(default=10.0, ge=0)
    silent_s: float = Field(
        default=15.0,
        ge=3,
        le=45,
        description="a worker that gives no sign of life for so long is frozen, and replaced; "
        "others wait a minute for a bus that it may hold locked",
    )


class DrawOption(Part):
    """One of the players that a seat may draw."""

    player: str | None = Field(default=None, description="a policy or any other player")
    league: str | None = Field(default=None, description="a snapshot of this policy's league")
    weight: float = Field(ge=0)

    @property
    def text(self) -> str:
        return self.player if self.player is not None else f"league:{self.league}"

    @model_validator(mode="after")
    def _one_of(self) -> DrawOption:
        if (self.player is None) == (self.league is None):
            raise ValueError("each entry of a draw names one player or one league")
        return self


class Draw(Part):
    """A player drawn anew for each episode, by weight."""

    draw: tuple[DrawOption, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _weighs(self) -> Draw:
        if not sum(option.weight for option in self.draw):
            raise ValueError("a draw needs at least one entry with a weight above 0")
        return self


class PolicyConfig(Part):
    """One policy; what it leaves out is the run's own `algorithm` and `network`."""

    algorithm: Algorithm
    network: NetworkConfig = NetworkConfig()
    trains_encoder: bool = Field(
        default=True, description="whether its gradient reaches a shared encoder"
    )
    role: Literal["main", "exploiter"] = Field(
        default="main",
        description="an exploiter joins the league when it beats its target, and begins anew",
    )
    target: str | None = Field(default=None, description="the policy that an exploiter is after")

    @model_validator(mode="after")
    def _targets(self) -> PolicyConfig:
        if (self.role == "exploiter") != (self.target is not None):
            raise ValueError("role=exploiter and target=POLICY go together")
        return self


class LeagueConfig(Part):
    """Snapshots of the policies, and who plays them."""

    snapshot_every_steps: int | None = Field(
        default=500_000, ge=1, description="agent steps of the run between snapshots; off when null"
    )
    snapshot_win_rate: float | None = Field(
        default=None, gt=0, lt=1, description="or when a policy wins this share against its league"
    )
    keep: int = Field(default=40, ge=2, description="snapshots per policy, spread over the run")
    opponents: Literal["uniform", "recency", "pfsp"] = Field(
        default="pfsp", description="how a snapshot is drawn; pfsp: those that win more, more often"
    )
    games_per_draw: int = Field(
        default=64, ge=1, description="games that a drawn snapshot plays before another is drawn"
    )
    reference: tuple[str, ...] = Field(
        default=("script:random",), description="players outside the run on its rating ladder"
    )
    rating_every: int = Field(
        default=8, ge=0, description="fragments between rounds of rating games; 0: none"
    )
    rating_slots: int = Field(default=32, ge=1, le=4096, description="rating games side by side")
    exploiter_win_rate: float = Field(default=0.7, gt=0, lt=1)
    exploiter_max_updates: int = Field(default=500, ge=1)


MAIN = "main"  # the policy of a run that names none


class Change(Part):
    """Live hyperparameters from some step on."""

    steps: int = Field(ge=1, description="trained so far")
    set: dict[str, float] = Field(
        min_length=1, description="config key -> value, like algorithm.learning_rate: 1e-4"
    )


class ParentConfig(Part):
    """Another run, whose weights, optimiser, statistics and counters this one begins with."""

    run: str = Field(default="", description="whose; empty: nobody's, it begins anew")
    version: int | None = Field(
        default=None, ge=0, description="update of one of its checkpoints; null: the newest"
    )

    @field_validator("run")
    @classmethod
    def _is_a_run(cls, run: str) -> str:
        return _run_name("parent.run", run)


class ReplayConfig(Part):
    """Experience that another run has recorded, instead of an environment that is played."""

    run: str = Field(default="", description="whose; empty: nobody's, the environment is played")
    start: tuple[int, ...] = Field(default=(), description="offsets; empty: from the oldest kept")

    @field_validator("run")
    @classmethod
    def _is_a_run(cls, run: str) -> str:
        return _run_name("replay.run", run)


def _run_name(key: str, run: str) -> str:
    if run and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", run):
        raise ValueError(f"{key} {run[:100]!r} is no run's name: see `rookery runs list`")
    return run


def _is_launcher(name: str) -> str:
    if name not in LAUNCHERS:
        known = " or ".join(repr(known) for known in LAUNCHERS)
        raise PydanticCustomError("literal_error", f"Input should be {known}")
    return name


LauncherName = Annotated[
    str, AfterValidator(_is_launcher), WithJsonSchema({"type": "string", "enum": [*LAUNCHERS]})
]


class RunConfig(Part):
    """Everything that a run is."""

    environment: EnvironmentConfig
    algorithm: Algorithm
    network: NetworkConfig = NetworkConfig()
    seats: dict[str, str | Draw] = Field(
        default={}, description="seat name or pattern -> player; empty: `main` in every seat"
    )
    seat_map: str = Field(
        default="", description="module:function(seat, episode) -> player, instead of `seats`"
    )
    policies: dict[str, PolicyConfig] = Field(
        default={}, description="empty: one policy `main` with the run's algorithm and network"
    )
    train: tuple[str, ...] = Field(default=(), description="who learns; empty: every policy")
    league: LeagueConfig = LeagueConfig()
    actors: ActorsConfig = ActorsConfig()
    learner: LearnerConfig = LearnerConfig()
    stop: StopConfig = StopConfig()
    changes: tuple[Change, ...] = Field(
        default=(), description="of live hyperparameters, as training comes to them"
    )
    checkpoint: CheckpointConfig = CheckpointConfig()
    bus: AnyBus
    launcher: LauncherName = "local"
    placement: PlacementConfig = PlacementConfig()
    restarts: RestartConfig = RestartConfig()
    parent: ParentConfig = ParentConfig()
    replay: ReplayConfig = ReplayConfig()
    seed: int = Field(default=0, ge=0, lt=2**32)

    @property
    def all_policies(self) -> dict[str, PolicyConfig]:
        """Every policy, whole; the first is the one that a run is judged by."""
        return self.policies or {MAIN: PolicyConfig(algorithm=self.algorithm, network=self.network)}

    @property
    def learning(self) -> tuple[str, ...]:
        """Names of the policies that learn."""
        return self.train or tuple(self.all_policies)

    @property
    def fragment_lanes(self) -> int:
        return self.actors.envs_per_actor

    @property
    def batch_lanes(self) -> int:
        return self.fragment_lanes * self.learner.fragments_per_batch

    @property
    def batch_rows(self) -> int:
        """T x B of one update's batch."""
        return self.actors.rollout_steps * self.batch_lanes

    @field_validator("policies")
    @classmethod
    def _are_names(cls, policies: dict[str, PolicyConfig]) -> dict[str, PolicyConfig]:
        for name in policies:
            if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
                raise ValueError(f"policy name {name!r}: use letters, digits and . _ -")
        return policies

    @model_validator(mode="after")
    def _agree(self) -> RunConfig:
        if self.launcher == "inline" and (self.actors.count != 1 or self.actors.auto):
            what = "actors.auto to false" if self.actors.auto else "actors.count to 1"
            raise ValueError(f"launcher=inline plays with one actor: set {what}")
        if self.launcher != "inline" and self.bus.one_process:
            raise ValueError(
                f"bus.kind={self.bus.kind} lives in one process: set launcher to inline"
            )
        if (self.launcher == "ray") != (self.bus.kind == "ray"):
            if self.launcher != "ray":
                raise ValueError("bus.kind=ray is a cluster's: set launcher to ray")
            if self.bus.kind != "kafka":
                raise ValueError(
                    f"bus.kind={self.bus.kind} is out of reach for workers on other nodes: with "
                    "launcher=ray use bus.kind=ray or kafka"
                )
        if self.parent.run and self.replay.run:
            raise ValueError("a run has a parent or replays another, not both: leave out one")
        endless = self.stop.steps is None and self.stop.minutes is None
        if self.algorithm.schedule == "linear" and endless:
            raise ValueError("algorithm.schedule=linear needs stop.steps or stop.minutes")
        if self.algorithm.kind in ALGORITHMS:  # a user's own is not imported to be read
            bind(self.algorithm).check(self.actors.rollout_steps, self.batch_lanes)
        if self.learner.count > 1:
            self._check_crew(self.learner.count)
        return self

    def _check_crew(self, count: int) -> None:
        """Several learners share a batch by its lanes."""
        if self.launcher == "inline":
            raise ValueError("launcher=inline trains with one learner: set learner.count to 1")
        if self.learner.device == "gpu":
            raise ValueError(
                f"learner.count={count} computes on processors: set learner.device to cpu, or "
                "learner.count to 1"
            )
        if self.batch_lanes % count:
            raise ValueError(
                f"learner.count={count} does not divide a batch of {self.batch_lanes} lanes "
                "(actors.envs_per_actor x learner.fragments_per_batch): set learner.count to "
                f"{max(n for n in range(1, count) if self.batch_lanes % n == 0)}, or "
                f"actors.envs_per_actor to a multiple of {count}"
            )
        if self.algorithm.kind in ALGORITHMS:
            algorithm = bind(self.algorithm)
            algorithm.shared(self.actors.rollout_steps, self.batch_lanes, count)
