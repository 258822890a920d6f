"""IMPALA: policy gradient with V-trace targets (Espeholt et al. 2018).

Sibling of `ppo`: here the age of each step's weights is corrected by its behaviour
log-probability, so lanes stay whole and targets are made anew for each gradient step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rookery.algorithms.networks import Network
from rookery.algorithms.optimizer import (
    Batch,
    Hyper,
    Metrics,
    Objective,
    Prepared,
    ends,
    flatten_steps,
    masked_mean,
    masked_normalize,
    trained_rows,
    values,
)
from rookery.algorithms.returns import vtrace
from rookery.config.models import ImpalaConfig


def make_order(
    config: ImpalaConfig, rng: np.random.Generator, steps: int, lanes: int
) -> np.ndarray:
    """A fresh permutation of the lanes per epoch, cut into minibatches."""
    epochs = [rng.permutation(lanes) for _ in range(config.epochs)]
    return np.concatenate(epochs).astype(np.int32).reshape(-1, lanes // config.minibatches)


def make_objective(network: Network, config: ImpalaConfig) -> Objective:
    """The objective for this network; choices that change its shape are made here, once."""
    act = network.distribution

    def prepare(params: Any, stats: Any, batch: Batch, hyper: Hyper) -> Prepared:
        weight = trained_rows(batch).astype(jnp.float32)
        value_t = values(network, params, stats, batch.observation)
        rows = batch._replace(
            order=None, truncated=ends(batch)
        )  # lanes stay whole, so once is enough
        return Prepared(rows, value_t[:-1], _on_policy_targets(rows, value_t, hyper), weight)

    def take(rows: Batch, lanes: Any) -> Batch:
        mini: Batch = jax.tree.map(lambda x: x[:, lanes], rows)
        return mini

    def loss(params: Any, mini: Batch, stats: Any, hyper: Hyper) -> tuple[Any, Metrics]:
        steps, lanes = mini.reward.shape
        features = network.encode(jnp, params, stats, flatten_steps(mini.observation))
        scale = jnp.sqrt(stats["ret.var"] + 1e-6)
        scaled_value_t = network.scaled_value(jnp, params, features).reshape(steps + 1, lanes)
        value_t = jax.lax.stop_gradient(scaled_value_t) * scale + stats["ret.mean"]
        now = features[: steps * lanes]
        theta, extra = network.policy(jnp, params, now), params.get("log_std")
        mask = None if mini.mask is None else flatten_steps(mini.mask[:-1])
        action = flatten_steps(mini.action)
        known = trained_rows(mini)
        weight = known.astype(jnp.float32)
        log_prob = act.log_prob(jnp, theta, extra, mask, action).reshape(steps, lanes)
        live_log_ratio = jnp.where(known, log_prob - mini.log_prob, 0.0)
        log_ratio = jax.lax.stop_gradient(live_log_ratio)
        ratio = jnp.exp(log_ratio)
        targets = vtrace(
            mini.reward,
            mini.terminated,
            mini.truncated,
            value_t,
            log_ratio,
            hyper["gamma"],
            hyper["trace_lambda"],
            hyper["rho_clip"],
            hyper["c_clip"],
        )
        advantage = targets.advantage / scale
        if config.normalize_advantages:
            advantage = masked_normalize(targets.advantage, weight)
        if config.clip is None:
            policy_loss = -masked_mean(log_prob * advantage, weight)
        else:
            # the ratio itself stands where V-trace's clipped one stood
            advantage = advantage / jnp.minimum(hyper["rho_clip"], ratio)
            live = jnp.exp(live_log_ratio)
            near = jnp.clip(live, 1 - config.clip, 1 + config.clip)
            policy_loss = -masked_mean(jnp.minimum(live * advantage, near * advantage), weight)
        target = (targets.value - stats["ret.mean"]) / scale
        value_loss = masked_mean(jnp.square(scaled_value_t[:-1] - target), weight)
        entropy_t = act.entropy(jnp, theta, extra, mask).reshape(steps, lanes)
        entropy = masked_mean(entropy_t, weight)
        total = policy_loss + hyper["value_coef"] * value_loss - hyper["entropy_coef"] * entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": masked_mean(ratio - 1 - log_ratio, weight),
            "clip_fraction": masked_mean((ratio > hyper["rho_clip"]).astype(jnp.float32), weight),
            "ratio_error": jnp.max(jnp.abs(ratio - 1) * weight),
        }

    return Objective(network, prepare, take, loss, config.normalize_returns)


def _on_policy_targets(batch: Batch, value_t: Any, hyper: Hyper) -> Any:
    """Value targets of the batch before its gradient steps, for the statistics."""
    zeros = jnp.zeros_like(batch.reward)
    return vtrace(
        batch.reward,
        batch.terminated,
        batch.truncated,
        value_t,
        zeros,
        hyper["gamma"],
        hyper["trace_lambda"],
        hyper["rho_clip"],
        hyper["c_clip"],
    ).value
