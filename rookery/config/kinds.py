"""Names in a config, and the file that each stands for: the one line of a new kind of thing.

    LAUNCHERS["ray"] = "rookery.launchers.ray:make_launcher"

A name is looked up when it is used, so listing names imports nothing. Players have their list in
`players/kinds.py`, environments in `envs/family.py`.
"""

from __future__ import annotations

import importlib
from typing import Any

LAUNCHERS = {  # -> a function of `launchers.Launch`
    "local": "rookery.launchers.local:make_launcher",
    "inline": "rookery.launchers.inline:make_launcher",
    "ray": "rookery.launchers.ray.launcher:make_launcher",
}
BUSES = {  # -> a class as `bus.RunBus` has it
    "sqlite": "rookery.bus.sqlite:SqliteRunBus",
    "memory": "rookery.bus.memory:MemoryRunBus",
    "kafka": "rookery.bus.kafka.settings:KafkaRunBus",
    "ray": "rookery.bus.ray.run_bus:RayRunBus",
}
ALGORITHMS = {  # -> a class as `algorithms.Algorithm` has it
    "ppo": "rookery.algorithms.ppo:PPO",
    "impala": "rookery.algorithms.impala:Impala",
}


def load_kind(table: dict[str, str], name: str) -> Any:
    """What stands behind a name of one of these tables."""
    module, _, attribute = table[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
