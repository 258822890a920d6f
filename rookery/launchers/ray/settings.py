"""How a machine reaches its Ray cluster: its owner's affair, not the run's."""

from __future__ import annotations

import os
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

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

    @field_validator("runtime_env")
    @classmethod
    def _says_text(cls, runtime_env: dict[str, Any]) -> dict[str, Any]:
        variables, key = runtime_env.get("env_vars") or {}, "ray.runtime_env.env_vars"
        if not isinstance(variables, dict):
            raise ValueError(f"{key} is {variables!r}: give each variable a line, NAME: 'VALUE'")
        for name, value in variables.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise ValueError(f"{key}: {name} is {value!r} and no text: write it in quotes")
        return runtime_env

    @property
    def uploaded(self) -> dict[str, Any]:
        """Of the runtime_env, what is of this machine's files: Ray takes it with the job alone."""
        found = {key: self.runtime_env.get(key) for key in ("working_dir", "py_modules")}
        local = {key: value for key, value in found.items() if _is_local(value)}
        if local and "excludes" in self.runtime_env:
            local["excludes"] = self.runtime_env["excludes"]
        return local

    @property
    def of_workers(self) -> dict[str, Any]:
        """The rest, which each worker is given; what goes with the job, it has from there."""
        uploaded = self.uploaded
        return {key: value for key, value in self.runtime_env.items() if key not in uploaded}

    def here(self) -> RaySettings:
        """With what this process was told: --ray-address or $RAY_ADDRESS goes before the file."""
        told = os.environ.get(ADDRESS_VARIABLE)
        return self.model_copy(update={"address": told}) if told else self

    @property
    def place(self) -> str:
        """For people."""
        return self.address or "on this machine"


def _is_local(value: Any) -> bool:
    """A path, or a list with one, and no address."""
    if isinstance(value, list):
        return any(_is_local(each) for each in value)
    return isinstance(value, str) and "://" not in value
