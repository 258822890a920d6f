"""Names in a config, and the file that each stands for: the one line of a new kind of thing.

    LAUNCHERS["ray"] = "rookery.launchers.ray:make_launcher"

A name is looked up when it is used, so listing names imports nothing. Players have their list in
`players/kinds.py`, environments in `envs/family.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Annotated, Any, Union

from pydantic import Field, TypeAdapter
from pydantic_core import core_schema

LAUNCHERS = {  # -> a function of `launchers.Launch`
    "local": "rookery.launchers.local:make_launcher",
    "inline": "rookery.launchers.inline:make_launcher",
}
BUSES = {  # -> a class as `bus.RunBus` has it
    "sqlite": "rookery.bus.sqlite:SqliteRunBus",
    "memory": "rookery.bus.memory:MemoryRunBus",
    "kafka": "rookery.bus.kafka.settings:KafkaRunBus",
}
ALGORITHMS = {  # -> a class as `algorithms.Algorithm` has it
    "ppo": "rookery.algorithms.ppo:PPO",
    "impala": "rookery.algorithms.impala:Impala",
}


def load_kind(table: dict[str, str], name: str) -> Any:
    """What stands behind a name of one of these tables."""
    module, _, attribute = table[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


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
