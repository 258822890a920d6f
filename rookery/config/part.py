"""What every part of a config is: frozen, closed to unknown keys, without NaN."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

LIVE: dict[str, Any] = {"live": True}  # `json_schema_extra` of what may change while a run goes on


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
