"""Means over the rows that count, and a policy's running statistics of what it saw and got."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from rookery.algorithms.batch import Batch
from rookery.algorithms.networks import Network, Stats


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
        x = batch.steps.observation[leaf.path][:-1].astype(jnp.float32)
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
