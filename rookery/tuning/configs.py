"""From a point of the search space to a run's config and back, and what is wrong with either.

configs = Configs(base, search)        # raises one line for a space that cannot be searched
config = configs.build(values, seed=0)
configs.values_of(config.model_dump(mode="json")) == values
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rookery.config.models import RunConfig
from rookery.config.reading import build, nested
from rookery.errors import ConfigError, InputError
from rookery.tuning.space import Choice, Dimension, Range, Search, Values, same
from rookery.tuning.text import write_value

NOT_SEARCHED = {
    "seed": "--seeds says how many seeds each trial has",
    "environment.id": "returns of different environments cannot be compared: make a sweep of each",
    "checkpoint.uri": "each run has its own place below it",
    "stop.until_return": "a trial is judged by its return, and would stop short of a better one",
}


class Configs:
    """Of one sweep. What each option of a choice comes to in a config is found out at once."""

    def __init__(self, base: Mapping[str, Any], search: Search) -> None:
        self.base, self.search = base, search
        self.plain = build(base)  # without anything searched
        self._comes_to: dict[str, list[Any]] = {}
        self._tried = [self.plain]
        for dimension in search.dimensions:
            self._check(dimension)

    def build(
        self, values: Values, seed: int = 0, place: str = "", also: Mapping[str, Any] | None = None
    ) -> RunConfig:
        """The config of a run with its seed; `place`: of this run alone, below a store that is
        named for all."""
        layers = [nested(key, value) for key, value in values.items()]
        own: dict[str, Any] = {"seed": self.plain.seed + seed, **(also or {})}
        if place and (uri := self.plain.checkpoint.uri_below(place)):
            own["checkpoint"] = {"uri": uri}
        return build(self.base, *layers, own)

    def values_of(self, config: Mapping[str, Any]) -> Values:
        """The point of the space that a config was built from."""

        def ask(dimension: Dimension) -> Any:
            found = at(config, dimension.key)
            if isinstance(dimension.domain, Range):
                return int(found) if dimension.domain.integer else float(found)
            for place, comes_to in enumerate(self._comes_to[dimension.key]):
                if _is_that(found, comes_to, dimension.domain.options[place]):
                    return dimension.domain.options[place]
            raise InputError(f"{dimension.key}={found!r} is no option of this sweep")

        return self.search.sample(ask)

    def extremes(self) -> list[RunConfig]:
        """Whatever each dimension may be, one at a time."""
        return list(self._tried)

    # --- what is wrong ---------------------------------------------------------------------------

    def _check(self, dimension: Dimension) -> None:
        key = dimension.key
        if key in NOT_SEARCHED:
            raise ConfigError(f"{key} cannot be searched: {NOT_SEARCHED[key]}")
        if isinstance(dimension.domain, Choice):
            tried = [self._try(dimension, option) for option in dimension.domain.options]
            self._comes_to[key] = [at(config, key) for config in tried]
            self._check_distinct(dimension)
            return
        domain = dimension.domain
        for end in (domain.low, domain.high):
            self._try(dimension, end)
        try:
            self._try(dimension, domain.within)
        except ConfigError:
            if domain.integer:
                raise
            form = "logint:" if domain.log else "int:"
            raise ConfigError(
                f"{key} takes whole numbers: write {form}{domain.low:g}..{domain.high:g}"
            ) from None

    def _try(self, dimension: Dimension, value: Any) -> dict[str, Any]:
        """A whole config with this value in it, the others as they are where nothing is said."""
        values = {**self.search.on_the_way_to(dimension), dimension.key: value}
        try:
            config = self.build(values)
        except InputError as error:
            said, key = str(error), dimension.key
            where = "" if key in said else f"{key}={write_value(value)}: "
            raise ConfigError(f"search: {where}{said}") from None
        self._tried.append(config)
        return config.model_dump(mode="json")

    def _check_distinct(self, dimension: Dimension) -> None:
        assert isinstance(dimension.domain, Choice)
        known, options = self._comes_to[dimension.key], dimension.domain.options
        for place, value in enumerate(known):
            for before in range(place):
                if same(value, known[before]):
                    a, b = write_value(options[before]), write_value(options[place])
                    raise ConfigError(f"{dimension.key}: {a} and {b} are the same")


def at(config: Mapping[str, Any], key: str) -> Any:
    """What stands under a dotted key."""
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise InputError(f"the config has no {key}")
        found = found[part]
    return found


def _is_that(found: Any, comes_to: Any, option: Any) -> bool:
    """A choice of a whole part is told by what it names: other dimensions may change the rest."""
    if isinstance(option, dict) and isinstance(found, Mapping):
        return all(key in found and same(found[key], comes_to[key]) for key in option)
    return same(found, comes_to)
