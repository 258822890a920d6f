"""IMPALA: policy gradient with V-trace targets (Espeholt et al. 2018).

Sibling of `ppo`: the same pure update, but the age of each step's weights is corrected by its
behaviour log-probability, so lanes stay whole and targets are made anew for each gradient step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from rookery.algorithms.networks import Network
from rookery.algorithms.returns import vtrace
from rookery.algorithms.training import (
    Batch,
    Hyper,
    Metrics,
    TrainState,
    Update,
    explained_variance,
    flatten_steps,
    gradient_step,
    masked_mean,
    masked_normalize,
    update_stats,
    values,
)
from rookery.config import ImpalaConfig


def make_order(
    config: ImpalaConfig, rng: np.random.Generator, steps: int, lanes: int
) -> np.ndarray:
    """A fresh permutation of the lanes per epoch, cut into minibatches."""
    epochs = [rng.permutation(lanes) for _ in range(config.epochs)]
    return np.concatenate(epochs).astype(np.int32).reshape(-1, lanes // config.minibatches)


def make_update(network: Network, config: ImpalaConfig) -> Update:
    """The update for this network; choices that change its shape are made here, once."""
    act = network.distribution

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
        known = mini.valid & ~jnp.isnan(mini.log_prob)
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

    def update(state: TrainState, batch: Batch, hyper: Hyper) -> tuple[TrainState, Metrics]:
        params, optimizer, stats = state
        weight = (batch.valid & ~jnp.isnan(batch.log_prob)).astype(jnp.float32)
        before = values(network, params, stats, batch.observation)
        targets = _on_policy_targets(batch, before, hyper)

        def step(carry: Any, lanes: Any) -> tuple[Any, Metrics]:
            flat, optimizer = carry
            mini = jax.tree.map(lambda x: x[:, lanes], batch._replace(order=None))

            def flat_loss(flat: Any) -> tuple[Any, Metrics]:
                return loss(unravel(flat), mini, stats, hyper)

            gradient, metrics = jax.grad(flat_loss, has_aux=True)(flat)
            flat, optimizer, norm = gradient_step(flat, optimizer, gradient, hyper)
            return (flat, optimizer), {**metrics, "grad_norm": norm}

        flat, unravel = ravel_pytree(params)
        (flat, optimizer), trace = jax.lax.scan(step, (flat, optimizer), batch.order)
        metrics = {name: series.mean() for name, series in trace.items()}
        metrics["first_ratio_error"] = trace["ratio_error"][0]
        metrics["gradient_steps"] = jnp.float32(batch.order.shape[0])
        del metrics["ratio_error"]
        metrics["explained_variance"] = explained_variance(before[:-1], targets, weight)
        stats = update_stats(network, config.normalize_returns, stats, batch, targets, weight)
        return TrainState(unravel(flat), optimizer, stats), metrics

    return update


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
