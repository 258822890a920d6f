"""The train state and its compiled update: the only part of the learner that touches JAX."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from rookery import seeds
from rookery.algorithms import impala, ppo
from rookery.algorithms.networks import Network, initial_arrays
from rookery.algorithms.training import Batch, TrainState, init_state
from rookery.codec import Arrays, Fragment
from rookery.config import RunConfig, live_hyperparameters
from rookery.errors import DamagedCheckpoint
from rookery.spaces import Categorical, Continuous, MultiCategorical, SeatSpec


class Trainer:
    """Owns a policy's train state; `update` takes a batch of fragments.

    The update is compiled ahead of time from shapes alone, while the first fragments are played,
    and dispatched asynchronously: the next permutation is made while it runs.
    """

    def __init__(self, config: RunConfig, network: Network) -> None:
        self.config, self.network = config, network
        self.hyper = live_hyperparameters(config.algorithm)
        algorithm: Any = {"ppo": ppo, "impala": impala}[config.algorithm.kind]
        self._make_order = algorithm.make_order
        self.state = init_state(*initial_arrays(self.network, config.seed))
        self._rng = seeds.generator(config.seed, "learner")
        self._order = self._next_order()
        # The batch is private to its update; donating it buys nothing on a CPU.
        self._update: Any = jax.jit(algorithm.make_update(self.network, config.algorithm))

    def compile(self) -> None:
        """Compile from shapes; with a warm cache this only reads a file."""
        example = (self.state, self._blank_batch(), self._scalars(0.0))
        self._update = self._update.lower(*example).compile()

    def update(self, fragments: Sequence[Fragment], progress: float) -> dict[str, float]:
        """One update; `progress` in [0, 1] drives the learning-rate schedule."""
        batch = _stack(fragments, self._order)
        self.state, metrics = self._update(self.state, batch, self._scalars(progress))
        self._order = self._next_order()  # while XLA computes
        found = jax.device_get(metrics)
        return {name: float(value) for name, value in found.items()}

    def learning_rate(self, progress: float) -> float:
        rate = self.hyper["learning_rate"]
        if self.config.algorithm.schedule == "linear":
            return rate * max(0.0, 1.0 - progress)
        return rate

    def acting_arrays(self) -> Arrays:
        """What a policy needs to act: its parameters and statistics, without the value's."""
        return self.network.acting_arrays(self.state.params, self.state.stats)

    def save(self) -> Arrays:
        """Every array of the train state and the host's random state, by name."""
        arrays = {name: np.asarray(leaf) for name, leaf in _named_leaves(self.state)}
        arrays["learner.order"] = self._order
        state = json.dumps(self._rng.bit_generator.state)
        arrays["learner.rng"] = np.frombuffer(state.encode(), np.uint8)
        return arrays

    def restore(self, arrays: Arrays) -> None:
        for name, leaf in _named_leaves(self.state):
            saved = arrays.get(name)
            if saved is None or saved.shape != leaf.shape or saved.dtype != leaf.dtype:
                raise DamagedCheckpoint(
                    f"array {name!r} of the checkpoint does not fit this network: was the config "
                    "or the environment changed?"
                )
        names = [name for name, _ in _named_leaves(self.state)]
        tree = jax.tree.structure(self.state)
        self.state = jax.tree.unflatten(tree, [np.array(arrays[n]) for n in names])
        self._order = np.array(arrays["learner.order"])
        self._rng.bit_generator.state = json.loads(arrays["learner.rng"].tobytes())

    def _next_order(self) -> np.ndarray:
        config = self.config
        order: np.ndarray = self._make_order(
            config.algorithm, self._rng, config.actors.rollout_steps, config.batch_lanes
        )
        return order

    def _scalars(self, progress: float) -> dict[str, np.float32]:
        values = {**self.hyper, "learning_rate": self.learning_rate(progress)}
        return {name: np.float32(value) for name, value in values.items()}

    def _blank_batch(self) -> Batch:
        steps, lanes = self.config.actors.rollout_steps, self.config.batch_lanes
        spec = self.network.spec
        flags = np.zeros((steps, lanes), np.bool_)
        numbers = np.zeros((steps, lanes), np.float32)
        mask = None
        if spec.masked:
            width = self.network.distribution.parameters
            mask = np.zeros((steps + 1, lanes, width), np.bool_)
        observation = {
            leaf.path: np.zeros((steps + 1, lanes, *leaf.shape), leaf.dtype)
            for leaf in spec.observation
        }
        action = _action_shape(spec)
        actions: np.ndarray = np.zeros((steps, lanes, *action.shape), action.dtype)
        return Batch(observation, actions, numbers, flags, flags, flags, numbers, mask, self._order)


class _ActionShape(NamedTuple):
    shape: tuple[int, ...]
    dtype: type


def _action_shape(spec: SeatSpec) -> _ActionShape:
    match spec.action:
        case Categorical():
            return _ActionShape((), np.int32)
        case MultiCategorical(sizes=sizes):
            return _ActionShape((len(sizes),), np.int32)
        case Continuous(shape=shape):
            return _ActionShape((int(np.prod(shape)),), np.float32)


def _stack(fragments: Sequence[Fragment], order: np.ndarray) -> Batch:
    """Fragments side by side; a single one is passed on without a copy."""

    def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)

    first = fragments[0]
    plain = ["action", "reward", "terminated", "truncated", "valid", "log_prob"]
    return Batch(
        observation={
            leaf: join([f.observation[leaf] for f in fragments]) for leaf in first.observation
        },
        mask=None if first.mask is None else join([f.mask for f in fragments]),  # type: ignore[misc]
        order=order,
        **{name: join([getattr(f, name) for f in fragments]) for name in plain},
    )


def _named_leaves(state: TrainState) -> list[tuple[str, Any]]:
    """Leaves in tree order, as params/NAME, optimizer/PATH and stats/NAME."""
    named = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        rest = jax.tree_util.keystr(path[1:], simple=True, separator="/")
        named.append((f"{path[0].name}/{rest}", leaf))
    return named
