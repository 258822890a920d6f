"""Means over the rows that count, and a policy's running statistics of what it saw and got.

A crew of learners trains each batch together, every one on its own lanes of it. Inside an update
that is compiled for a crew, `total` sums over all of them; elsewhere it changes nothing.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from rookery.algorithms.batch import Batch
from rookery.algorithms.networks import Network, Stats

LEARNERS = "learners"  # the axis along which a crew shares a batch


def in_crew() -> bool:
    """Whether what is traced now will be computed by several learners together."""
    return LEARNERS in jax.sharding.get_abstract_mesh().manual_axes


def total(x: Any) -> Any:
    """Summed over the crew's learners; as it is where there is one."""
    return jax.lax.psum(x, LEARNERS) if in_crew() else x  # type: ignore[no-untyped-call]


def highest(x: Any) -> Any:
    """The highest of the crew's learners; as it is where there is one."""
    return jax.lax.pmax(x, LEARNERS) if in_crew() else x  # type: ignore[no-untyped-call]


def masked_mean(x: Any, weight: Any) -> Any:
    """Over one's own rows: what losses are made of, which a crew's update puts together."""
    return (x * weight).sum() / jnp.maximum(weight.sum(), 1.0)


def masked_normalize(x: Any, weight: Any) -> Any:
    """By mean and deviation of the whole crew's rows."""
    mean = _whole_mean(x, weight)
    variance = _whole_mean(jnp.square(x - mean), weight)
    return (x - mean) / (jnp.sqrt(variance) + 1e-8)


def _whole_mean(x: Any, weight: Any) -> Any:
    """Over the whole crew's rows."""
    if not in_crew():
        return masked_mean(x, weight)
    found = total(jnp.stack([(x * weight).sum(), weight.sum()]))  # in one message
    return found[0] / jnp.maximum(found[1], 1.0)


def explained_variance(predicted: Any, target: Any, weight: Any) -> Any:
    """1 when the value network is right, 0 when it knows no more than the mean."""
    error = target - predicted
    error_variance = _whole_mean(jnp.square(error - _whole_mean(error, weight)), weight)
    variance = _whole_mean(jnp.square(target - _whole_mean(target, weight)), weight)
    return jnp.where(variance > 1e-8, 1.0 - error_variance / jnp.maximum(variance, 1e-8), 0.0)


def update_stats(
    network: Network, normalize_returns: bool, stats: Stats, batch: Batch, target: Any, weight: Any
) -> Stats:
    """Fold one batch into the running statistics; each valid step counts once.

    The caller does this after the gradient steps, so that a batch is trained with the statistics
    that its actors played with.
    """
    new, added = dict(stats), total(weight.sum())
    for leaf in network.normalized_leaves:
        x = batch.steps.observation[leaf.path][:-1].astype(jnp.float32)
        w = weight.reshape(*weight.shape, *([1] * len(leaf.shape)))
        mean, var, count = (
            stats[f"obs.mean.{leaf.path}"],
            stats[f"obs.var.{leaf.path}"],
            stats["obs.count"],
        )
        merged = _merge_moments(x, w, added, mean, var, count)
        new[f"obs.mean.{leaf.path}"], new[f"obs.var.{leaf.path}"] = merged
    new["obs.count"] = stats["obs.count"] + added
    if normalize_returns:
        new["ret.mean"], new["ret.var"] = _merge_moments(
            target, weight, added, stats["ret.mean"], stats["ret.var"], stats["ret.count"]
        )
        new["ret.count"] = stats["ret.count"] + added
    return new


def _merge_moments(
    x: Any, weight: Any, added: Any, mean: Any, var: Any, count: Any
) -> tuple[Any, Any]:
    """Chan et al.: moments of two sets from the moments of each; (T, B) are the axes reduced."""
    n = jnp.maximum(added, 1.0)
    batch_mean = total((x * weight).sum((0, 1))) / n
    batch_var = total((jnp.square(x - batch_mean) * weight).sum((0, 1))) / n
    both = count + n
    shift = batch_mean - mean
    new_mean = mean + shift * n / both
    new_var = (var * count + batch_var * n + jnp.square(shift) * count * n / both) / both
    return new_mean, new_var
