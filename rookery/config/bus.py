"""The bus of a config: each kind's own model stands in its own file (`config.kinds`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from pydantic_core import PydanticCustomError

from rookery.config.kinds import BUSES, load_kind
from rookery.config.part import ByKind, Part

DEFAULT = next(iter(BUSES))
MOST_EXPERIENCE_MB = 1 << 20  # of any bus: a terabyte


class BusConfig(Part):
    """What the config of every bus has; each adds `kind`, `max_experience_mb` and its own."""

    one_process: ClassVar[bool] = False  # nobody else can reach it

    if TYPE_CHECKING:

        @property
        def kind(self) -> str: ...

        @property
        def max_experience_mb(self) -> int: ...


def models() -> dict[str, type[BusConfig]]:
    return {name: load_kind(BUSES, name).Config for name in BUSES}


def _read(value: Any) -> BusConfig:
    if isinstance(value, BusConfig):
        return value
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if kind not in BUSES:
        known = ", ".join(repr(name) for name in BUSES)
        raise PydanticCustomError("bus", f"should be a mapping whose `kind` is one of {known}")
    read: BusConfig = load_kind(BUSES, kind).Config.model_validate(value)
    return read


def _default() -> BusConfig:
    return models()[DEFAULT]()


def _with_default(schema: dict[str, Any]) -> None:
    schema["default"] = _default().model_dump(mode="json")


AnyBus = Annotated[
    BusConfig,
    ByKind(_read, models),
    Field(default_factory=_default, json_schema_extra=_with_default),
]
