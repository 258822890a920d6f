"""What every algorithm's update shares: train state, batch, gradient step, running statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rookery.algorithms.networks import Network, Params, Stats


class TrainState(NamedTuple):
    """Everything an update changes; a pytree."""

    params: Params
    optimizer: Any
    stats: Stats


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
Update = Callable[[TrainState, Batch, Hyper], tuple[TrainState, Metrics]]

ADAM = optax.scale_by_adam(eps=1e-5)


def init_state(params: Params, stats: Stats) -> TrainState:
    params = {name: jnp.asarray(value) for name, value in params.items()}
    stats = {name: jnp.asarray(value) for name, value in stats.items()}
    return TrainState(params, ADAM.init(params), stats)


def gradient_step(
    params: Params, optimizer: Any, gradient: Params, hyper: Hyper
) -> tuple[Params, Any, Any]:
    """Clip by the global norm, Adam, step; returns the norm before the clip."""
    norm = optax.global_norm(gradient)
    scale = jnp.minimum(1.0, hyper["max_grad_norm"] / (norm + 1e-6))
    gradient = jax.tree.map(lambda g: g * scale, gradient)
    step, optimizer = ADAM.update(gradient, optimizer)
    params = jax.tree.map(lambda p, s: p - hyper["learning_rate"] * s, params, step)
    return params, optimizer, norm


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
