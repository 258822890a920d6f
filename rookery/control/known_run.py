"""A run as a list knows it: its state, its row, and the value of any key.

A key is a column of a run's row (`env_steps`; some have short names, like `steps`), or a key of its
config as it is now (`seed`, `algorithm.learning_rate`, which is also `learning_rate`). Nothing here
does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rookery.control.models import RunRow
from rookery.control.run_state import RunState

MOST_TOLD = 64  # config keys of a run that are remembered
NONE = "none"  # what is not there, in words
SHORT = {
    "return": "mean_return_100",
    "steps": "env_steps",
    "created": "created_s",
    "lag": "lag_mean",
    "state": "status",
    "tag": "tags",
}
COLUMNS = tuple(RunRow.model_fields)


@dataclass(frozen=True)
class KnownRun:
    """A run, and what a list says of it, which is made where it matters."""

    state: RunState
    row_of: Callable[[RunState], RunRow]
    _told: dict[str, Any] = field(default_factory=dict)  # by config key: looking is slow

    @property
    def row(self) -> RunRow:
        return self.row_of(self.state)

    @property
    def text(self) -> str:
        """What words are looked for in."""
        row = self.row
        words = (row.run, row.name, row.group, row.environment, row.algorithm, row.status)
        return " ".join((*words, *row.tags, self.state.notes)).lower()

    def value(self, key: str) -> Any:
        """Of a column, or of the config."""
        name = long_key(key)
        return getattr(self.row, name) if name in COLUMNS else self.config_value(key)

    def config_value(self, key: str) -> Any:
        """Of the config as it is now; None: it has no such key."""
        if key not in self._told:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told[key] = _config_value(self.state, key)
        return self._told[key]


def long_key(key: str) -> str:
    return SHORT.get(key, key)


def shown(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(shown, value)) if isinstance(value, list) else str(value)


def _config_value(state: RunState, key: str) -> Any:
    config = state.config.get("config")
    if state.stop is not None and isinstance(config, Mapping):
        config = {**config, "stop": state.stop}
    for whole in (key, f"algorithm.{key}"):
        if whole in state.hyperparameters:
            return state.hyperparameters[whole]
        if whole == "actors.count" and state.actors is not None:
            return state.actors
        found = config
        for part in whole.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None


def config_keys(config: Any, before: str = "") -> list[str]:
    if not isinstance(config, Mapping):
        return [before[:-1]]
    return [key for name, part in config.items() for key in config_keys(part, f"{before}{name}.")]
