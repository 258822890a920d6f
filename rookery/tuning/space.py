"""The search space: what a sweep may choose, as frozen types, whoever proposes.

    search = Search((Dimension("algorithm.learning_rate", Range(1e-5, 1e-2, log=True)), ...))
    values = search.sample(ask)     # ask(dimension) -> a value, of each that applies

A library that proposes is handed one dimension after the other, and asked of no more than those
whose condition holds; reading the values back out of a config goes the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from rookery.errors import ConfigError


@dataclass(frozen=True)
class Choice:
    """One of these, in no order."""

    options: tuple[Any, ...]  # as JSON has them; lists, not tuples

    def __post_init__(self) -> None:
        if len(self.options) < 2:
            raise ConfigError("a choice needs two options or more, like relu|tanh")
        for place, option in enumerate(self.options):
            if any(same(option, other) for other in self.options[:place]):
                raise ConfigError(f"the choice has {option!r} twice")


@dataclass(frozen=True)
class Range:
    """Every number between two, both included; evenly, or evenly by its logarithm."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"the range {self.low:g}..{self.high:g} is upside down or empty")
        if self.log and self.low <= 0:
            raise ConfigError(f"a log range begins above 0, not at {self.low:g}")

    @property
    def within(self) -> float:
        """A number that is neither end, nor a whole one unless it has to be."""
        if self.integer:
            return int(self.low) + (int(self.high) - int(self.low)) // 2
        share = 0.381966  # a whole number comes out only by chance
        return self.low + share * (self.high - self.low)


Domain: TypeAlias = Choice | Range


@dataclass(frozen=True)
class Condition:
    """Another dimension, and the options of it for which something applies."""

    key: str
    options: tuple[Any, ...]

    def holds(self, values: Mapping[str, Any]) -> bool:
        return self.key in values and any(same(values[self.key], o) for o in self.options)


@dataclass(frozen=True)
class Dimension:
    """One config key that is searched."""

    key: str
    domain: Domain
    condition: Condition | None = None

    def applies(self, values: Mapping[str, Any]) -> bool:
        return self.condition is None or self.condition.holds(values)


Values: TypeAlias = dict[str, Any]
"""One point of the space: config key -> value, of the dimensions that apply."""

Ask: TypeAlias = Callable[[Dimension], Any]


@dataclass(frozen=True)
class Search:
    """Every dimension, those that others depend on first."""

    dimensions: tuple[Dimension, ...]

    def __post_init__(self) -> None:
        if not self.dimensions:
            raise ConfigError(
                "nothing to search: name a key, like algorithm.learning_rate=log:1e-5..1e-2"
            )
        keys = [dimension.key for dimension in self.dimensions]
        for key in keys:
            if keys.count(key) > 1:
                raise ConfigError(f"{key} is searched twice")
        object.__setattr__(self, "dimensions", _in_order(self.dimensions))

    def __getitem__(self, key: str) -> Dimension:
        return next(dimension for dimension in self.dimensions if dimension.key == key)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(dimension.key for dimension in self.dimensions)

    def sample(self, ask: Ask) -> Values:
        """A value for each dimension that applies, by `ask`."""
        values: Values = {}
        for dimension in self.dimensions:
            if dimension.applies(values):
                values[dimension.key] = ask(dimension)
        return values

    def on_the_way_to(self, dimension: Dimension) -> Values:
        """Values of others with which a dimension applies."""
        if dimension.condition is None:
            return {}
        parent = self[dimension.condition.key]
        return {**self.on_the_way_to(parent), parent.key: dimension.condition.options[0]}


def same(a: Any, b: Any) -> bool:
    """Equal as JSON is: 1 is no True."""
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return bool(a == b)


def _in_order(dimensions: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
    """As they were written, but each behind the one that it depends on."""
    left, ordered = list(dimensions), list[Dimension]()
    known = {dimension.key: dimension.domain for dimension in dimensions}
    for dimension in dimensions:
        _check_condition(dimension, known)
    while left:
        placed = {dimension.key for dimension in ordered}
        free = [d for d in left if d.condition is None or d.condition.key in placed]
        if not free:
            raise ConfigError(f"the conditions of {', '.join(d.key for d in left)} go in a circle")
        ordered.append(free[0])
        left.remove(free[0])
    return tuple(ordered)


def _check_condition(dimension: Dimension, known: Mapping[str, Domain]) -> None:
    condition = dimension.condition
    if condition is None:
        return
    domain = known.get(condition.key)
    if domain is None:
        raise ConfigError(
            f"{dimension.key} depends on {condition.key}, which is not searched: add it, or set it"
        )
    if not isinstance(domain, Choice):
        raise ConfigError(f"{dimension.key} depends on {condition.key}, which is no choice")
    for option in condition.options:
        if not any(same(option, other) for other in domain.options):
            raise ConfigError(
                f"{dimension.key} depends on {condition.key}={option}, which it is never"
            )
