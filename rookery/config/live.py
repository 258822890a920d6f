"""Hyperparameters that may change while a run goes on: fields marked `live` in the config.

    effective(config, {"algorithm.learning_rate": 1e-4})    # the config as it is then
    live_values(config)                                     # every live key with its value

`algorithm.X` is meant for every policy; `policies.NAME.algorithm.X` for one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rookery.config.algorithm import live_hyperparameters
from rookery.config.models import RunConfig
from rookery.config.reading import validate
from rookery.errors import ConfigError, InputError, UnknownName

_GENERAL = "algorithm."


def effective(config: RunConfig, values: Mapping[str, float]) -> RunConfig:
    """The config with these values in it; a ConfigError for one that is not live or not valid."""
    known = live_values(config)
    for key in values:
        if key not in known:
            hint = "Only what `rookery algorithms` calls live changes while a run goes on."
            raise UnknownName("live hyperparameter", key, known, hint)
    merged: dict[str, Any] = copy.deepcopy(config.model_dump(mode="json"))
    general, own = _split(values)
    for name, value in general.items():
        merged["algorithm"][name] = value
        for policy, part in merged["policies"].items():
            if _key(policy, name) in known:
                part["algorithm"][name] = value
    for policy, part in merged["policies"].items():
        part["algorithm"] |= {
            name: own[_key(policy, name)] for name in part["algorithm"] if _key(policy, name) in own
        }
    return validate(merged)


def check_changes(config: RunConfig) -> None:
    """Raise a ConfigError for changes that a run could not make, or out of order."""
    plain = config.model_copy(update={"changes": ()})
    before = 0
    for change in config.changes:
        if change.steps <= before:
            raise ConfigError(
                f"changes: {change.steps:,} steps come after {before:,}: put them in order"
            )
        before = change.steps
        try:
            effective(plain, change.set)
        except InputError as error:
            raise ConfigError(f"changes: at {change.steps:,} steps: {error}") from None


def changed(config: RunConfig, steps: int, values: Mapping[str, float]) -> dict[str, float]:
    """What is set after so many steps: by the config's own changes, and `values` over them."""
    found: dict[str, float] = {}
    for change in config.changes:
        if change.steps <= steps:
            found = combined(found, change.set)
    return combined(found, values)


def effective_now(config: RunConfig, steps: int, values: Mapping[str, float]) -> RunConfig:
    """The config as it is after so many steps, where these values were set by command."""
    return effective(config, changed(config, steps, values))


def combined(before: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """What is set after both: of a policy's own value and every policy's the newer one counts."""
    general, _ = _split(values)
    _, own = _split(before)
    replaced = {key for key in own if key.rpartition(".")[2] in general}
    return {k: v for k, v in before.items() if k not in replaced} | dict(values)


def _split(values: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """What is meant for every policy, by field, and what is meant for one, by key."""
    fields = {key: key.removeprefix(_GENERAL) for key in values if key.startswith(_GENERAL)}
    general = {name: values[key] for key, name in fields.items()}
    return general, {key: value for key, value in values.items() if key not in fields}


def _key(policy: str, name: str) -> str:
    return f"policies.{policy}.algorithm.{name}"  # a policy's name may hold dots


def live_values(config: RunConfig) -> dict[str, float]:
    """Every key that may be set, with its value in this config."""
    found = {_GENERAL + k: v for k, v in live_hyperparameters(config.algorithm).items()}
    for policy, part in config.policies.items():
        own = live_hyperparameters(part.algorithm)
        found |= {_key(policy, name): value for name, value in own.items()}
    return found


def why_not_set(content: Mapping[str, Any], values: Mapping[str, float]) -> str | None:
    """Why a run's config does not take these values; None if it does."""
    try:
        if "spec" not in content or not isinstance(content.get("config"), Mapping):
            raise ConfigError("a run needs its config and what its environment looks like")
        effective(validate(content["config"]), values)
    except InputError as error:
        return str(error)
    return None
