"""What every algorithm shares: train state, batch, objective, Adam, running statistics.

Inside an update parameters are flat vectors, and so are Adam's moments: a gradient step is a
handful of operations whatever the network, which halves the time to trace and compile it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rookery.algorithms.networks import Network, Params, Stats


class Moments(NamedTuple):
    """Adam's state, over the parameters as one vector."""

    mean: Any
    square: Any
    count: Any


class TrainState(NamedTuple):
    """Everything of a policy that an update changes; a pytree."""

    params: Params  # without the encoder's where it has one
    optimizer: Moments
    stats: Stats


class EncoderState(NamedTuple):
    """What an update changes of an encoder; a pytree."""

    params: Params
    optimizer: Moments


class Batch(NamedTuple):
    """Fragments side by side along the lane axis; a pytree. Shapes as in `codec.Fragment`."""

    observation: dict[str, Any]
    action: Any
    reward: Any
    terminated: Any
    truncated: Any
    valid: Any
    log_prob: Any
    mask: Any  # or None
    order: Any  # (gradient steps, rows or lanes) int32: which go into each, permuted on the host


Hyper = dict[str, Any]  # live hyperparameters, scalars
Metrics = dict[str, Any]  # scalars


class Prepared(NamedTuple):
    """A batch made ready for its gradient steps; a pytree."""

    rows: Any  # what minibatches are taken from
    value_t: Any  # (T, B) as the value network said before the first gradient step
    target: Any  # (T, B) what it should have said
    weight: Any  # (T, B) float32: 1 on rows that are trained on


@dataclass(frozen=True)
class Objective:
    """What an algorithm makes of a batch, and the loss that it lowers; pure functions."""

    network: Network
    prepare: Callable[[Params, Stats, Batch, Hyper], Prepared]
    take: Callable[[Any, Any], Any]  # rows and an index from the order -> a minibatch
    loss: Callable[[Params, Any, Stats, Hyper], tuple[Any, Metrics]]  # of a minibatch
    normalize_returns: bool
    kl_stop: float | None = None


_BETA_MEAN, _BETA_SQUARE, _ADAM_EPSILON = 0.9, 0.999, 1e-5


def init_state(params: Params, stats: Stats) -> TrainState:
    return TrainState(params, init_moments(params), stats)


def init_moments(params: Params) -> Moments:
    """In numpy: an eager JAX operation here would cost a compile each."""
    size = sum(array.size for array in params.values())
    zeros = np.zeros(size, np.float32)
    return Moments(zeros, zeros.copy(), np.zeros((), np.int32))


def adam(flat: Any, moments: Moments, gradient: Any, learning_rate: Any) -> tuple[Any, Moments]:
    """One step of Adam (Kingma and Ba 2015)."""
    count = moments.count + 1
    mean = _BETA_MEAN * moments.mean + (1 - _BETA_MEAN) * gradient
    square = _BETA_SQUARE * moments.square + (1 - _BETA_SQUARE) * jnp.square(gradient)
    unbiased_mean = mean / (1 - _BETA_MEAN**count)
    unbiased_square = square / (1 - _BETA_SQUARE**count)
    step = unbiased_mean / (jnp.sqrt(unbiased_square) + _ADAM_EPSILON)
    return flat - learning_rate * step, Moments(mean, square, count)


def trained_rows(batch: Batch) -> Any:
    """(T, B) bool: rows where the policy acted and its behaviour is known."""
    return batch.valid & ~jnp.isnan(batch.log_prob)


def ends(batch: Batch) -> Any:
    """(T, B) bool: where a trajectory is cut off, to be bootstrapped from the next row's value.

    That is where the environment truncated, and where the next row is not valid: a lane may hold
    several trajectories one after the other, and one that goes on later is followed by a row that
    only shows its next observation.
    """
    goes_on = jnp.concatenate([batch.valid[1:], jnp.ones_like(batch.valid[:1])])
    return batch.truncated | (batch.valid & ~goes_on & ~batch.terminated)


def flatten_steps(tree: Any) -> Any:
    """(T, B, ...) -> (T * B, ...)."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def masked_mean(x: Any, weight: Any) -> Any:
    return (x * weight).sum() / jnp.maximum(weight.sum(), 1.0)


def masked_normalize(x: Any, weight: Any) -> Any:
    mean = masked_mean(x, weight)
    variance = masked_mean(jnp.square(x - mean), weight)
    return (x - mean) / (jnp.sqrt(variance) + 1e-8)


def explained_variance(predicted: Any, target: Any, weight: Any) -> Any:
    """1 when the value network is right, 0 when it knows no more than the mean."""
    error = target - predicted
    error_variance = masked_mean(jnp.square(error - masked_mean(error, weight)), weight)
    variance = masked_mean(jnp.square(target - masked_mean(target, weight)), weight)
    return jnp.where(variance > 1e-8, 1.0 - error_variance / jnp.maximum(variance, 1e-8), 0.0)


def update_stats(
    network: Network, normalize_returns: bool, stats: Stats, batch: Batch, target: Any, weight: Any
) -> Stats:
    """Fold one batch into the running statistics; each valid step counts once.

    The caller does this after the gradient steps, so that a batch is trained with the statistics
    that its actors played with.
    """
    new = dict(stats)
    for leaf in network.normalized_leaves:
        x = batch.observation[leaf.path][:-1].astype(jnp.float32)
        w = weight.reshape(*weight.shape, *([1] * len(leaf.shape)))
        mean, var, count = (
            stats[f"obs.mean.{leaf.path}"],
            stats[f"obs.var.{leaf.path}"],
            stats["obs.count"],
        )
        merged = _merge_moments(x, w, weight.sum(), mean, var, count)
        new[f"obs.mean.{leaf.path}"], new[f"obs.var.{leaf.path}"] = merged
    new["obs.count"] = stats["obs.count"] + weight.sum()
    if normalize_returns:
        new["ret.mean"], new["ret.var"] = _merge_moments(
            target, weight, weight.sum(), stats["ret.mean"], stats["ret.var"], stats["ret.count"]
        )
        new["ret.count"] = stats["ret.count"] + weight.sum()
    return new


def _merge_moments(
    x: Any, weight: Any, added: Any, mean: Any, var: Any, count: Any
) -> tuple[Any, Any]:
    """Chan et al.: moments of two sets from the moments of each; (T, B) are the axes reduced."""
    n = jnp.maximum(added, 1.0)
    batch_mean = (x * weight).sum((0, 1)) / n
    batch_var = (jnp.square(x - batch_mean) * weight).sum((0, 1)) / n
    total = count + n
    shift = batch_mean - mean
    new_mean = mean + shift * n / total
    new_var = (var * count + batch_var * n + jnp.square(shift) * count * n / total) / total
    return new_mean, new_var


def values(network: Network, params: Any, stats: Any, observation: dict[str, Any]) -> Any:
    """(T+1, B) values of every observation."""
    steps, lanes = next(iter(observation.values())).shape[:2]
    features = network.encode(jnp, params, stats, flatten_steps(observation))
    return network.value(jnp, params, stats, features).reshape(steps, lanes)
