"""RunConfig and its parts: small frozen models, read once at the edge.

YAML, `--set a.b=c`, `--env.key=value` and flags are layers of plain mappings; `build` merges them
over the tuned defaults of the environment and validates once. Fields that may change while a run
goes on carry `live` in their JSON Schema.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rookery.errors import ConfigError, UnknownName, nearest_names
from rookery.tuned import tuned_defaults

_LIVE: dict[str, Any] = {"live": True}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class EnvironmentConfig(_Part):
    """The world that is played."""

    id: str = Field(min_length=1, description="Gymnasium id, gymnax:NAME or module:Class")
    kwargs: dict[str, Any] = Field(default={}, description="passed to the environment")
    deadline_s: float = Field(
        default=60.0, gt=0, description="a reset or step that takes longer counts as hung"
    )


class NetworkConfig(_Part):
    """The policy's and the value's networks: one MLP each, over a shared CNN for images."""

    hidden: tuple[Annotated[int, Field(ge=1, le=8192)], ...] = Field(
        default=(64, 64), max_length=8, description="width of each hidden layer"
    )
    activation: Literal["tanh", "relu"] = "tanh"
    channels: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(
        default=(16, 32), max_length=4, description="3x3 convolutions, for images only"
    )
    gaussian: Literal["clipped", "squashed"] = Field(
        default="clipped", description="how a continuous action is kept within its bounds"
    )
    initial_log_std: float = Field(default=0.0, ge=-5, le=2, description="continuous actions only")
    normalize_observations: bool = Field(
        default=False, description="by running mean and variance, kept by the learner"
    )


class _AlgorithmConfig(_Part):
    learning_rate: float = Field(default=1e-3, gt=0, le=1, json_schema_extra=_LIVE)
    schedule: Literal["constant", "linear"] = Field(
        default="constant", description="linear goes to 0 at stop.steps"
    )
    gamma: float = Field(default=0.99, ge=0, le=1, json_schema_extra=_LIVE)
    entropy_coef: float = Field(default=0.0, ge=0, json_schema_extra=_LIVE)
    value_coef: float = Field(default=0.5, ge=0, json_schema_extra=_LIVE)
    max_grad_norm: float = Field(default=0.5, gt=0, json_schema_extra=_LIVE)
    normalize_returns: bool = Field(
        default=False, description="the value network predicts returns scaled to unit variance"
    )


class PPOConfig(_AlgorithmConfig):
    """Proximal policy optimisation: several clipped passes over each batch."""

    kind: Literal["ppo"] = "ppo"
    gae_lambda: float = Field(default=0.95, ge=0, le=1, json_schema_extra=_LIVE)
    clip: float = Field(default=0.2, gt=0, json_schema_extra=_LIVE)
    epochs: int = Field(default=4, ge=1, le=100, description="passes over a batch")
    minibatch_size: int = Field(default=512, ge=1, description="agent steps per gradient step")
    value_clip: float | None = Field(default=None, gt=0, description="off when null")
    kl_stop: float | None = Field(
        default=None, gt=0, description="skip the rest of a batch past this KL; off when null"
    )
    normalize_advantages: bool = Field(default=True, description="per minibatch")


class ImpalaConfig(_AlgorithmConfig):
    """Importance-weighted actor-learner: V-trace corrects for the age of the weights."""

    kind: Literal["impala"] = "impala"
    trace_lambda: float = Field(default=1.0, ge=0, le=1, json_schema_extra=_LIVE)
    rho_clip: float = Field(default=1.0, gt=0, json_schema_extra=_LIVE)
    c_clip: float = Field(default=1.0, gt=0, json_schema_extra=_LIVE)
    clip: float | None = Field(
        default=None,
        gt=0,
        description="bounds each step of the policy as PPO does, which makes several passes safe; "
        "plain policy gradient when null",
    )
    epochs: int = Field(default=1, ge=1, le=100, description="passes over a batch")
    minibatches: int = Field(default=1, ge=1, description="parts of a batch, cut across lanes")
    normalize_advantages: bool = Field(default=False, description="per minibatch")


Algorithm = Annotated[PPOConfig | ImpalaConfig, Field(discriminator="kind")]


class ActorsConfig(_Part):
    """Who plays, and how much at a time."""

    count: int = Field(default=1, ge=1, le=64, description="actor processes")
    envs_per_actor: int = Field(default=32, ge=1, le=65536, description="slots played together")
    rollout_steps: int = Field(default=64, ge=1, le=65536, description="T of a fragment")


class LearnerConfig(_Part):
    """How experience becomes batches."""

    fragments_per_batch: int = Field(
        default=1, ge=1, le=1024, description="PPO: one per actor unless set"
    )
    max_policy_lag_versions: int = Field(
        default=1, ge=0, le=1024, description="updates between a fragment's weights and its use"
    )
    threads: int = Field(
        default=1, ge=1, le=256, description="of XLA; one is fastest for small networks"
    )


class StopConfig(_Part):
    """When a run is done; without until_return, reaching `steps` is success."""

    until_return: float | None = Field(default=None, description="mean of the last 100 episodes")
    steps: int | None = Field(default=None, ge=1, description="agent steps trained on")
    minutes: float | None = Field(default=None, gt=0, description="of wall-clock time")


class CheckpointConfig(_Part):
    uri: str = Field(default="", description="file:DIR; empty: inside the run's own directory")
    interval_s: float = Field(default=10.0, gt=0, description="at least this often (local)")
    every_updates: int = Field(
        default=20, ge=1, description="inline: by updates, so that the run stays deterministic"
    )
    keep: int = Field(default=3, ge=1, le=100)

    @field_validator("uri")
    @classmethod
    def _is_supported(cls, uri: str) -> str:
        if uri and not re.fullmatch("file:.+", uri):
            raise ValueError(f"checkpoint.uri {uri!r} is not supported: use file:DIRECTORY")
        return uri


class SqliteBusConfig(_Part):
    """One file inside the run's directory."""

    kind: Literal["sqlite"] = "sqlite"
    max_experience_mb: int = Field(
        default=256, ge=1, description="kept experience; publishers wait when it is full"
    )


class MemoryBusConfig(_Part):
    """Inside one process; leaves nothing on disk but checkpoints."""

    kind: Literal["memory"] = "memory"
    max_experience_mb: int = Field(default=256, ge=1)


BusConfig = Annotated[SqliteBusConfig | MemoryBusConfig, Field(discriminator="kind")]


class RestartConfig(_Part):
    """What happens when a worker dies."""

    max_restarts: int = Field(
        default=5, ge=0, description="deaths of one worker without progress before the run fails"
    )
    backoff_s: float = Field(default=0.2, ge=0, description="doubles with each death")
    max_backoff_s: float = Field(default=10.0, ge=0)


class RunConfig(_Part):
    """Everything that a run is."""

    environment: EnvironmentConfig
    algorithm: Algorithm = PPOConfig()
    network: NetworkConfig = NetworkConfig()
    actors: ActorsConfig = ActorsConfig()
    learner: LearnerConfig = LearnerConfig()
    stop: StopConfig = StopConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    bus: BusConfig = SqliteBusConfig()
    launcher: Literal["local", "inline"] = "local"
    restarts: RestartConfig = RestartConfig()
    seed: int = Field(default=0, ge=0, lt=2**32)

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

    @model_validator(mode="after")
    def _agree(self) -> RunConfig:
        if self.launcher == "inline" and self.actors.count != 1:
            raise ValueError("launcher=inline plays with one actor: set actors.count to 1")
        if self.launcher != "inline" and self.bus.kind == "memory":
            raise ValueError("bus.kind=memory lives in one process: set launcher to inline")
        if self.algorithm.schedule == "linear" and self.stop.steps is None:
            raise ValueError("algorithm.schedule=linear needs stop.steps (--steps)")
        algorithm = self.algorithm
        if algorithm.kind == "ppo" and self.batch_rows % algorithm.minibatch_size:
            raise ValueError(
                f"algorithm.minibatch_size={algorithm.minibatch_size} does not divide a batch of "
                f"{self.batch_rows} steps (actors.rollout_steps x actors.envs_per_actor x "
                "learner.fragments_per_batch)"
            )
        if algorithm.kind == "impala" and self.batch_lanes % algorithm.minibatches:
            raise ValueError(
                f"algorithm.minibatches={algorithm.minibatches} does not divide "
                f"{self.batch_lanes} lanes (actors.envs_per_actor x learner.fragments_per_batch)"
            )
        return self


Layer = Mapping[str, Any]

DEFAULT_STEPS = 1_000_000  # where a person names neither a target nor a limit


def build(*layers: Layer) -> RunConfig:
    """Merge the layers, later ones over earlier ones, over the environment's tuned defaults."""
    asked: dict[str, Any] = {}
    for layer in layers:
        _merge(asked, layer)
    environment = asked.get("environment")
    if not isinstance(environment, dict) or not environment.get("id"):
        raise ConfigError("no environment given: name one, like `rookery train CartPole-v1`")
    algorithm = asked.get("algorithm", {})
    if not isinstance(algorithm, dict):
        raise ConfigError(f"algorithm: {algorithm!r} is not a mapping; set algorithm.kind")
    kind = algorithm.get("kind", "ppo")
    if not isinstance(kind, str) or kind not in ALGORITHMS:
        raise UnknownName("algorithm", str(kind), ALGORITHMS, "Run `rookery algorithms`.")
    asked["algorithm"] = {**algorithm, "kind": kind}
    if isinstance(asked.get("bus"), dict):
        asked["bus"].setdefault("kind", SqliteBusConfig().kind)
    merged = tuned_defaults(str(environment["id"]), kind)
    _merge(merged, asked)
    _fit(merged, asked)
    return validate(merged)


def validate(values: Layer) -> RunConfig:
    """One ConfigError line, with the nearest key for an unknown one."""
    try:
        return RunConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def _fit(merged: dict[str, Any], asked: dict[str, Any]) -> None:
    """Fill what follows from the number of actors, where nobody asked for something else."""
    learner = merged.setdefault("learner", {})
    actors = merged.get("actors", {})
    if not isinstance(learner, dict) or not isinstance(actors, dict):
        return
    count = actors.get("count", 1)
    if not isinstance(count, int) or count < 1:
        return
    ppo = merged["algorithm"]["kind"] == "ppo"
    asked_learner = asked.get("learner", {})
    if not merged.get("stop"):
        merged["stop"] = {"steps": DEFAULT_STEPS}
    if "fragments_per_batch" not in asked_learner:
        learner["fragments_per_batch"] = count if ppo else 1
    if "max_policy_lag_versions" not in asked_learner and not ppo:
        learner["max_policy_lag_versions"] = max(2, count)
    if ppo and "minibatch_size" not in asked.get("algorithm", {}):
        _fit_minibatch(merged)


def _fit_minibatch(merged: dict[str, Any]) -> None:
    """The largest size up to the tuned one that divides the batch that was asked for."""
    actors, learner = merged.get("actors", {}), merged["learner"]
    defaults = ActorsConfig()
    lanes = actors.get("envs_per_actor", defaults.envs_per_actor)
    steps = actors.get("rollout_steps", defaults.rollout_steps)
    fragments = learner["fragments_per_batch"]
    if not all(isinstance(n, int) and n > 0 for n in (lanes, steps, fragments)):
        return
    rows = lanes * steps * fragments
    wanted = min(merged["algorithm"].get("minibatch_size", PPOConfig().minibatch_size), rows)
    merged["algorithm"]["minibatch_size"] = max(
        size for size in range(1, wanted + 1) if rows % size == 0
    )


def _merge(into: dict[str, Any], layer: Layer) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif isinstance(value, Mapping):
            into[key] = {}
            _merge(into[key], value)
        else:
            into[key] = value


def load_yaml(path: str | Path) -> dict[str, Any]:
    import yaml

    try:
        text = Path(path).read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read the config {str(path)!r}: {reason}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a mapping of config keys")
    return values


def assignment(text: str) -> dict[str, Any]:
    """`a.b=c` as a nested mapping; the value is read as YAML reads it."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip(". "):
        raise ConfigError(f"{text!r} is not of the form key=value, like algorithm.gamma=0.98")
    parsed = parse_value(value)
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return typing.cast("dict[str, Any]", parsed)


def parse_value(text: str) -> Any:
    """A value as YAML reads it; 1e-4 and 2_000_000 are numbers."""
    import yaml

    try:
        value = yaml.safe_load(text) if text else ""
    except yaml.YAMLError:
        return text
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


# --- error texts ---------------------------------------------------------------------------------


def _explain(error: ValidationError) -> str:
    problems = []
    for detail in error.errors():
        where = tuple(p for p in detail["loc"] if p not in ("ppo", "impala", "sqlite", "memory"))
        key = ".".join(str(part) for part in where)
        if detail["type"] == "extra_forbidden":
            near = _nearest_keys(where)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            problems.append(f"unknown config key {key!r}{hint}")
        elif detail["type"] == "value_error":
            problems.append(str(detail["ctx"]["error"]))
        else:
            message = detail["msg"][0].lower() + detail["msg"][1:]
            given = detail["input"]
            shown = f" (got {given!r})" if isinstance(given, str | int | float | None) else ""
            problems.append(f"{key}: {message}{shown}")
    return "; ".join(dict.fromkeys(problems))


def _nearest_keys(where: tuple[int | str, ...]) -> tuple[str, ...]:
    """Full keys like the unknown one: by its own level first, then anywhere."""
    *parents, last = [str(part) for part in where]
    keys = [key for key, _ in config_keys()]
    elsewhere = [key for key in keys if key.split(".")[-1] == last]
    if elsewhere:
        return (elsewhere[0],)
    siblings = [k for k in keys if k.split(".")[:-1] == parents]
    near = nearest_names(last, [k.split(".")[-1] for k in siblings], 1)
    if near:
        return (".".join([*parents, near[0]]),)
    leaves: dict[str, str] = {}
    for key in keys:
        leaves.setdefault(key.split(".")[-1], key)
    return tuple(leaves[leaf] for leaf in nearest_names(last, leaves, 2))


def config_keys() -> Iterable[tuple[str, Any]]:
    """Every dotted key with its field."""
    yield from _keys_of(RunConfig, "")


def _keys_of(model: type[BaseModel], prefix: str) -> Iterable[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield prefix + name, field
        for part in _models_in(field.annotation):
            yield from _keys_of(part, f"{prefix}{name}.")


def _models_in(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for option in typing.get_args(annotation):
            yield from _models_in(option)


ALGORITHMS: dict[str, type[PPOConfig | ImpalaConfig]] = {"ppo": PPOConfig, "impala": ImpalaConfig}


def live_hyperparameters(config: _AlgorithmConfig) -> dict[str, float]:
    """The values an update takes as arguments, so that they can change without a new compile."""
    return {
        name: float(getattr(config, name))
        for name, field in type(config).model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get("live")
    }
