"""How a machine reaches its Ray cluster: its owner's affair, not the run's."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

ADDRESS_VARIABLE = "RAY_ADDRESS"  # Ray's own; a Ray job has it set


class RaySettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    address: str = Field(
        default="",
        description="auto, HOST:PORT or ray://HOST:PORT; empty: a cluster on this machine",
    )
    namespace: str = Field(
        default="rookery",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
        description="of Ray, in which runs have their names; one for each team on a cluster",
    )
    runtime_env: dict[str, Any] = Field(
        default={}, description="of Ray, for workers: working_dir, pip, env_vars ..."
    )
    dashboard: bool = Field(
        default=False, description="Ray's own, on loopback, of a cluster on this machine"
    )

    def here(self) -> RaySettings:
        """With what this process was told: --ray-address or $RAY_ADDRESS goes before the file."""
        told = os.environ.get(ADDRESS_VARIABLE)
        return self.model_copy(update={"address": told}) if told else self

    @property
    def place(self) -> str:
        """For people."""
        return self.address or "on this machine"
