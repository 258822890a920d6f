"""The algorithm of a config: fields that all have, and the way from a `kind` to what it names.

A kind of ours (`config.kinds`) is read by its own model at once. A user's own, `module:name`, stays
as it was written until a worker, or whoever looks before a run exists, binds it: reading a config
imports nobody's code, so that runs can be listed anywhere and a server can judge first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_serializer
from pydantic_core import PydanticCustomError

from rookery.config.code import load
from rookery.config.kinds import ALGORITHMS, load_kind
from rookery.config.part import LIVE, ByKind, Part
from rookery.errors import InputError, UnknownName

DEFAULT = next(iter(ALGORITHMS))


class AlgorithmConfig(Part):
    """What the config of every algorithm has; each adds a field `kind` and its own."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

    learning_rate: float = Field(default=1e-3, gt=0, le=1, json_schema_extra=LIVE)
    schedule: Literal["constant", "linear"] = Field(
        default="constant", description="linear goes to 0 at stop.steps or stop.minutes"
    )


class ActorCriticConfig(AlgorithmConfig):
    """What algorithms share that learn a policy and its value together."""

    gamma: float = Field(default=0.99, ge=0, le=1, json_schema_extra=LIVE)
    entropy_coef: float = Field(default=0.0, ge=0, json_schema_extra=LIVE)
    value_coef: float = Field(default=0.5, ge=0, json_schema_extra=LIVE)
    max_grad_norm: float = Field(default=0.5, gt=0, json_schema_extra=LIVE)
    normalize_returns: bool = Field(
        default=True, description="the value network predicts returns scaled to unit variance"
    )


class OwnConfig(AlgorithmConfig):
    """A user's own algorithm that nobody has imported yet: what was written, and no more."""

    model_config = ConfigDict(extra="allow")

    kind: str

    @model_serializer(mode="wrap")
    def _as_written(self, whole: Any) -> dict[str, Any]:
        """Without defaults: those of its own model count."""
        return {name: value for name, value in whole(self).items() if name in self.model_fields_set}


def find(kind: str) -> Any:
    """The class behind a kind, as `rookery.algorithms.Algorithm` has it."""
    if kind in ALGORITHMS:
        return load_kind(ALGORITHMS, kind)
    if ":" not in kind:
        raise UnknownName("algorithm", kind, ALGORITHMS, "Run `rookery algorithms`.")
    found = load("algorithm", kind)
    model = getattr(found, "Config", None)
    if not (isinstance(model, type) and issubclass(model, AlgorithmConfig)):
        raise InputError(
            f"algorithm {kind} is a {type(found).__name__} without a Config, not an algorithm: "
            "subclass rookery.algorithms.Algorithm"
        )
    return found


def bind(config: AlgorithmConfig) -> Any:
    """The algorithm with its config; a user's own is imported, and its config validated, here."""
    found = find(config.kind)
    if isinstance(config, OwnConfig):
        config = found.Config.model_validate(config.model_dump())
    return found(config)


def models() -> dict[str, type[AlgorithmConfig]]:
    """The config model of each algorithm of ours."""
    return {name: find(name).Config for name in ALGORITHMS}


def live_hyperparameters(config: AlgorithmConfig) -> dict[str, float]:
    """The values an update takes as arguments, so that they can change without a new compile.

    Of what nobody has imported only what was written is known.
    """
    known = config.model_fields_set if isinstance(config, OwnConfig) else type(config).model_fields
    return {
        name: float(getattr(config, name))
        for name, field in type(config).model_fields.items()
        if name in known and is_live(field)
    }


def is_live(field: Any) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, dict) and bool(extra.get("live"))


def _read(value: Any) -> AlgorithmConfig:
    if isinstance(value, AlgorithmConfig):
        return value
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(kind, str):
        raise PydanticCustomError("algorithm", "should be a mapping with the `kind` of algorithm")
    try:
        model = OwnConfig if ":" in kind else find(kind).Config
    except InputError as error:
        raise ValueError(str(error)) from error
    read: AlgorithmConfig = model.model_validate(value)
    return read


def _default() -> AlgorithmConfig:
    return models()[DEFAULT]()


def _with_default(schema: dict[str, Any]) -> None:
    schema["default"] = _default().model_dump(mode="json")


Algorithm = Annotated[
    AlgorithmConfig,
    ByKind(_read, models),
    Field(default_factory=_default, json_schema_extra=_with_default),
]
