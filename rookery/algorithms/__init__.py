"""Algorithms improve policies: one file each, over shared networks, distributions and returns.

An algorithm is a class with the model of its config. `algorithm_of` finds it by its config's kind:
a name in `rookery.config.kinds`, or a user's own `module:name`.

    algorithm = algorithm_of(config)
    state = init_state(params, stats, algorithm.init_extra(network, params))
    update = jax.jit(algorithm.make_update(network))
    for fragments in experience:
        batch = stack(fragments, algorithm.make_order(rng, steps, lanes))
        state, metrics = update(state, batch, live_hyperparameters(config))

Importing an algorithm's file must not import JAX: configs are read where there is none to wait for.
The update and what it is made of are pure functions of arrays, compiled once per shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from pydantic import ValidationError

from rookery.config.algorithm import AlgorithmConfig, bind

if TYPE_CHECKING:
    import numpy as np

    from rookery.algorithms.networks import Network, Params
    from rookery.algorithms.objective import Objective
    from rookery.algorithms.train_state import Extra, PolicyUpdate


class Algorithm(Protocol):
    """What the learner asks of an algorithm. Subclass it: most have only an order and an objective.

    `steps` and `lanes` are T and B of the policy's batches.
    """

    Config: ClassVar[type[AlgorithmConfig]]  # with a field `kind`
    corrects_staleness: ClassVar[bool] = False  # learns from play of any older weights, or others'
    needs_log_prob: ClassVar[bool] = True  # a row without one is nothing to learn from
    tuned: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # environment or pattern* -> config

    config: AlgorithmConfig

    def __init__(self, config: AlgorithmConfig) -> None:
        self.config = config

    def check(self, steps: int, lanes: int) -> None:
        """Raise ValueError, naming the fields, where the config does not fit batches like this."""

    def fitted(self, steps: int, lanes: int, learners: int = 1) -> AlgorithmConfig:
        """The nearest config that fits such batches, for numbers that nobody asked for; with
        several learners, one that they can share."""
        return self.config

    def shared(self, steps: int, lanes: int, learners: int) -> AlgorithmConfig:
        """The config by which each of several learners trains its own lanes of such a batch, so
        that a minibatch is what they take together; ValueError, naming the fields, if there is
        none. Needs an objective that knows how much a minibatch weighs."""
        raise ValueError(
            f"algorithm.kind={self.config.kind} cannot be shared by several learners: set "
            "learner.count to 1"
        )

    def make_order(self, rng: np.random.Generator, steps: int, lanes: int) -> np.ndarray:
        """Which rows, lanes or places of a memory go into each gradient step: always one shape.

        Made on the host, from a generator that is in the checkpoint; its length is the number of
        gradient steps.
        """
        ...

    def init_extra(self, network: Network, params: Params) -> Extra:
        """What the train state holds besides: targets, a temperature, a memory; numpy arrays."""
        return {}

    def make_objective(self, network: Network) -> Objective:
        """What the shared gradient loop lowers; not asked for where `make_update` is its own."""
        raise NotImplementedError(f"{type(self).__name__} has neither an objective nor an update")

    def make_update(self, network: Network) -> PolicyUpdate:
        """(state, batch, live hyperparameters) -> (state, metrics), for a policy by itself."""
        from rookery.algorithms.update import make_policy_update

        return make_policy_update(self.make_objective(network))

    def why_alone(self) -> str | None:
        """Why it can't share an encoder, in words that follow a policy's name; None if it can."""
        return None


def algorithm_of(config: AlgorithmConfig) -> Algorithm:
    """The algorithm with its config; one line for a user's own that can't be had."""
    try:
        return cast(Algorithm, bind(config))
    except ValidationError as error:
        from rookery.config.reading import explained

        raise explained(error, "algorithm") from None


def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return max(d for n in small for d in (n, number // n) if d <= limit)
