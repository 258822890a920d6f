"""What every part of a config is: frozen, closed to unknown keys, without NaN; some by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Union

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_core import core_schema

LIVE: dict[str, Any] = {"live": True}  # `json_schema_extra` of what may change while a run goes on


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ByKind:
    """Reads a field by the model that its `kind` names; for a schema, a choice of all of ours."""

    def __init__(self, read: Callable[[Any], Any], models: Callable[[], dict[str, Any]]) -> None:
        self._read, self._models = read, models

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        written = core_schema.simple_ser_schema("any")
        return core_schema.no_info_plain_validator_function(self._read, serialization=written)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> Any:
        ours: Any = Annotated[Union[tuple(self._models().values())], Field(discriminator="kind")]  # noqa: UP007
        return handler(TypeAdapter(ours).core_schema)
