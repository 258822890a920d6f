"""How a run gets a bus on Ray: a file at its owner's, which a host in the cluster hands on."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rookery.bus.sqlite import SqliteRunBus
from rookery.config.bus import MOST_EXPERIENCE_MB, BusConfig


class RayBusConfig(BusConfig):
    """Kept by a host in the cluster; workers on other nodes reach it by calls."""

    kind: Literal["ray"] = "ray"
    max_experience_mb: int = Field(
        default=256,
        ge=1,
        le=MOST_EXPERIENCE_MB,
        description="kept experience; publishers wait when it is full; more where a few fragments "
        "are larger than that",
    )


class RayRunBus(SqliteRunBus):
    """Its owner, whose machine is a node of the cluster, and whoever looks at the run there, open
    the file itself."""

    Config = RayBusConfig
