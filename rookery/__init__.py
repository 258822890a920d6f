"""Rookery: every kind of player takes a seat, plays, and, where it can, learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rookery.api import Policy, Run, load, load_sweep, match, sweep, train
    from rookery.envs.registry import register
    from rookery.tuning.sweep import Sweep

__version__ = "0.1.0"
__all__ = [
    "Policy",
    "Run",
    "Sweep",
    "__version__",
    "load",
    "load_sweep",
    "match",
    "register",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    """Public names load what they need when first used, so that importing stays instant."""
    if name in ("Policy", "Run", "load", "load_sweep", "match", "sweep", "train"):
        from rookery import api

        return getattr(api, name)
    if name == "Sweep":
        from rookery.tuning.sweep import Sweep

        return Sweep
    if name == "register":
        from rookery.envs.registry import register

        return register
    raise AttributeError(f"module 'rookery' has no attribute {name!r}")
