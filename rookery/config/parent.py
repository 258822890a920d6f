"""A config that names a parent: a run that begins where another one was.

    parent_named("cartpole@340")                          # {"run": "cartpole", "version": 340}
    with_parent({"parent": {...}, "seed": 1}, config_of)  # the parent's config, with that seed

What the fork then begins with is found in `control/fork.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rookery.config.reading import Layer, merged_layers
from rookery.errors import InputError


def parent_named(text: str) -> dict[str, Any]:
    """Of RUN or RUN@VERSION."""
    run, at, version = text.partition("@")
    if at and not version.isdecimal():
        raise InputError(f"{text!r}: write RUN@VERSION with the number of an update, like last@340")
    return {"run": run, "version": int(version) if at else None}


def with_parent(asked: Layer, config_of: Callable[[str], Layer]) -> Layer:
    """One that names a parent and no environment is its parent's config, with changes."""
    parent, environment = asked.get("parent"), asked.get("environment")
    if not isinstance(parent, Mapping) or not parent.get("run"):
        return asked
    if isinstance(environment, Mapping) and environment.get("id"):
        return asked
    return merged_layers(_inherited(config_of(str(parent["run"]))), asked)


def _inherited(config: Layer) -> Layer:
    """All but what is a run's own: where it came from, and where it keeps its checkpoints. What
    followed from the number of actors is fitted anew."""
    base = {key: part for key, part in config.items() if key not in ("parent", "replay")}
    base["checkpoint"] = {**config["checkpoint"], "uri": ""}
    if config["learner"]["follows_actors"]:
        fitted = ("follows_actors", "fragments_per_batch", "max_policy_lag_versions")
        learner = config["learner"].items()
        base["learner"] = {key: value for key, value in learner if key not in fitted}
    return base
