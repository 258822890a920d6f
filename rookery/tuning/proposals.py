"""Who proposes the next trial: a function of what is known, so that nothing has to be kept.

    propose = proposer("tpe", seed=0)
    values = propose(search, told, number)      # the same again for the same arguments

A sweep that goes on after a crash asks with what its runs say, and is answered as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from rookery.errors import MissingExtra
from rookery.tuning.space import Choice, Dimension, Range, Search, Values, same

if TYPE_CHECKING:
    import optuna

STARTUP = 8  # trials at random before anything is modelled


@dataclass(frozen=True)
class Told:
    """A trial as a proposer sees it."""

    values: Values
    status: Literal["going", "done", "pruned", "failed"]
    value: float | None = None  # how well it plays
    curve: Mapping[int, float] = field(default_factory=dict)  # steps -> return on the way


Propose: TypeAlias = Callable[[Search, Sequence[Told], int], Values]
"""The values of the trial with this number; it may be asked again for another try, by a higher
one."""


def proposer(sampler: str, seed: int) -> Propose:
    """Raises where a package is missing that it needs."""
    if sampler == "random":
        return lambda search, told, number: at_random(search, _rng(seed, number))
    find_optuna()
    return lambda search, told, number: by_tpe(search, told, _rng(seed, number))


def find_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("a sweep with the sampler tpe", "tune") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def at_random(search: Search, rng: np.random.Generator) -> Values:
    return search.sample(lambda dimension: drawn(dimension.domain, rng))


def drawn(domain: Choice | Range, rng: np.random.Generator) -> Any:
    """Any value of it, evenly."""
    if isinstance(domain, Choice):
        return domain.options[int(rng.integers(len(domain.options)))]
    if domain.integer and not domain.log:
        return int(rng.integers(int(domain.low), int(domain.high) + 1))
    half = 0.5 if domain.integer else 0.0  # each whole number has the room up to its neighbours
    low, high = domain.low - half, domain.high + half
    if domain.log:
        drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
        drawn = float(rng.uniform(low, high))
    return _within(round(drawn) if domain.integer else drawn, domain)


def _within(number: float, domain: Range) -> float:
    """Logarithms are not exact."""
    inside = min(max(number, domain.low), domain.high)
    return int(inside) if domain.integer else inside


def by_tpe(search: Search, told: Sequence[Told], rng: np.random.Generator) -> Values:
    """By a tree of Parzen estimators; trials that go on count as bad ones, so that those side by
    side differ."""
    optuna = find_optuna()
    seed = int(rng.integers(2**31))
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, constant_liar=True)
    study = make_study(search, told, sampler)
    trial = study.ask()
    return search.sample(lambda dimension: _suggested(trial, dimension))


def make_study(
    search: Search, told: Sequence[Told], sampler: optuna.samplers.BaseSampler | None = None
) -> optuna.Study:
    """Of Optuna, in memory, with what is known."""
    study: optuna.Study = find_optuna().create_study(direction="maximize", sampler=sampler)
    study.add_trials([_frozen(search, each) for each in told])
    return study


def _frozen(search: Search, told: Told) -> optuna.trial.FrozenTrial:
    trials = find_optuna().trial
    states = trials.TrialState
    state = {"going": states.RUNNING, "done": states.COMPLETE, "pruned": states.PRUNED}.get(
        told.status, states.FAIL
    )
    state = states.FAIL if state == states.PRUNED and not told.curve else state
    made: optuna.trial.FrozenTrial = trials.create_trial(
        state=state,
        value=told.value if state == states.COMPLETE else None,
        params={key: _param(search[key], value) for key, value in told.values.items()},
        distributions={key: _distribution(search[key].domain) for key in told.values},
        intermediate_values=dict(told.curve),
    )
    return made


def _distribution(domain: Choice | Range) -> Any:
    """Options go by their place: Optuna takes no lists."""
    distributions = find_optuna().distributions
    if isinstance(domain, Choice):
        return distributions.CategoricalDistribution(tuple(range(len(domain.options))))
    if domain.integer:
        return distributions.IntDistribution(int(domain.low), int(domain.high), log=domain.log)
    return distributions.FloatDistribution(domain.low, domain.high, log=domain.log)


def _param(dimension: Dimension, value: Any) -> Any:
    if isinstance(dimension.domain, Range):
        return value
    return next(i for i, option in enumerate(dimension.domain.options) if same(option, value))


def _suggested(trial: optuna.Trial, dimension: Dimension) -> Any:
    key, domain = dimension.key, dimension.domain
    if isinstance(domain, Choice):
        return domain.options[trial.suggest_categorical(key, tuple(range(len(domain.options))))]
    if domain.integer:
        return trial.suggest_int(key, int(domain.low), int(domain.high), log=domain.log)
    return trial.suggest_float(key, domain.low, domain.high, log=domain.log)


def _rng(seed: int, number: int) -> np.random.Generator:
    return np.random.default_rng([seed, number])
