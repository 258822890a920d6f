"""How a run gets a bus on Ray: a file at its owner's, which a host in the cluster hands on."""

from __future__ import annotations

from typing import Literal

from rookery.bus.sqlite import KEPT_MB, SqliteRunBus
from rookery.config.bus import BusConfig


class RayBusConfig(BusConfig):
    """Kept by a host in the cluster; workers on other nodes reach it by calls."""

    kind: Literal["ray"] = "ray"
    max_experience_mb: int = KEPT_MB


class RayRunBus(SqliteRunBus):
    """Its owner, whose machine is a node of the cluster, and whoever looks at the run there, open
    the file itself."""

    Config = RayBusConfig
