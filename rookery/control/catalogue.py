"""What a config can name besides environments: algorithms with their options, kinds of players.

The same lists for the command line and for the server, as plain data.
"""

from __future__ import annotations

from typing import Any

from rookery.config.algorithm import is_live, models
from rookery.players.kinds import KINDS, find_kind


def algorithms() -> dict[str, dict[str, Any]]:
    """By name: a description, and every option with its default."""
    found: dict[str, dict[str, Any]] = {}
    for name, model in models().items():
        options = []
        for key, field in model.model_fields.items():
            if key == "kind":
                continue
            options.append(
                {
                    "key": f"algorithm.{key}",
                    "default": field.default,
                    "live": is_live(field),
                    "description": field.description or "",
                }
            )
        found[name] = {"description": (model.__doc__ or "").strip(), "options": options}
    return found


def players() -> list[dict[str, Any]]:
    """Every kind of player that can be named."""
    kinds = {key: find_kind(key) for key in KINDS}
    return [
        {
            "kind": key.partition(":")[0],
            "name": key.partition(":")[2],
            "example": kind.example,
            "description": kind.description,
            "options": [
                {
                    "name": option.name,
                    "default": option.default or None,
                    "takes": option.takes,
                    "description": option.description,
                }
                for option in kind.options
            ],
        }
        for key, kind in kinds.items()
    ]
