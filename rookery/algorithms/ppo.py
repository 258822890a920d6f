"""PPO: clipped policy gradient, several passes over each batch (Schulman et al. 2017).

The update of a batch is one pure function of (train state, batch, live hyperparameters), compiled
once: values, advantages, all epochs and minibatches, and the running statistics.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from rookery.algorithms.networks import Network
from rookery.algorithms.returns import gae
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
from rookery.config import PPOConfig


def make_order(config: PPOConfig, rng: np.random.Generator, steps: int, lanes: int) -> np.ndarray:
    """A fresh permutation of the rows per epoch, cut into minibatches.

    Made on the host: inside XLA a permutation costs as much as half of the update.
    """
    rows = steps * lanes
    epochs = [rng.permutation(rows) for _ in range(config.epochs)]
    return np.concatenate(epochs).astype(np.int32).reshape(-1, config.minibatch_size)


def make_update(network: Network, config: PPOConfig) -> Update:
    """The update for this network; choices that change its shape are made here, once."""
    act = network.distribution
    has_images = any(leaf.kind == "image" for leaf in network.spec.observation)

    def loss(params: Any, mini: dict[str, Any], stats: Any, hyper: Hyper) -> tuple[Any, Metrics]:
        features = mini["features"]
        if has_images:
            features = network.encode(jnp, params, stats, features)
        theta, extra = network.policy(jnp, params, features), params.get("log_std")
        weight, advantage = mini["weight"], mini["advantage"]
        log_prob = act.log_prob(jnp, theta, extra, mini["mask"], mini["action"])
        log_ratio = jnp.where(weight > 0, log_prob - mini["log_prob"], 0.0)
        ratio = jnp.exp(log_ratio)
        if config.normalize_advantages:
            advantage = masked_normalize(advantage, weight)
        clipped = jnp.clip(ratio, 1 - hyper["clip"], 1 + hyper["clip"])
        policy_loss = -masked_mean(jnp.minimum(ratio * advantage, clipped * advantage), weight)
        value = network.scaled_value(jnp, params, features)
        error = jnp.square(value - mini["target"])
        if config.value_clip is not None:
            near = jnp.clip(value - mini["value"], -config.value_clip, config.value_clip)
            error = jnp.maximum(error, jnp.square(mini["value"] + near - mini["target"]))
        value_loss = masked_mean(error, weight)
        entropy = masked_mean(act.entropy(jnp, theta, extra, mini["mask"]), weight)
        total = policy_loss + hyper["value_coef"] * value_loss - hyper["entropy_coef"] * entropy
        outside = (jnp.abs(ratio - 1) > hyper["clip"]).astype(jnp.float32)
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": masked_mean(ratio - 1 - log_ratio, weight),
            "clip_fraction": masked_mean(outside, weight),
            "ratio_error": jnp.max(jnp.abs(ratio - 1) * weight),
        }

    def update(state: TrainState, batch: Batch, hyper: Hyper) -> tuple[TrainState, Metrics]:
        params, optimizer, stats = state
        known = batch.valid & ~jnp.isnan(batch.log_prob)
        weight = known.astype(jnp.float32)
        value_t = values(network, params, stats, batch.observation)
        targets = gae(
            batch.reward,
            batch.terminated,
            batch.truncated,
            value_t,
            hyper["gamma"],
            hyper["gae_lambda"],
        )
        scale = jnp.sqrt(stats["ret.var"] + 1e-6)
        now = {leaf: x[:-1] for leaf, x in batch.observation.items()}
        rows = flatten_steps(
            {
                "features": now,
                "action": batch.action,
                "log_prob": batch.log_prob,
                "weight": weight,
                "advantage": targets.advantage,
                "target": (targets.value - stats["ret.mean"]) / scale,
                "value": (value_t[:-1] - stats["ret.mean"]) / scale,
                "mask": None if batch.mask is None else batch.mask[:-1],
            }
        )
        if not has_images:  # then encoding has no parameters: do it once, not once per epoch
            rows["features"] = network.encode(jnp, params, stats, rows["features"])

        def step(carry: Any, index: Any) -> tuple[Any, Metrics]:
            flat, optimizer, go = carry
            mini = jax.tree.map(lambda x: x[index], rows)

            def flat_loss(flat: Any) -> tuple[Any, Metrics]:
                return loss(unravel(flat), mini, stats, hyper)

            def learn(operand: Any) -> tuple[Any, Any, Metrics]:
                flat, optimizer = operand
                gradient, metrics = jax.grad(flat_loss, has_aux=True)(flat)
                flat, optimizer, norm = gradient_step(flat, optimizer, gradient, hyper)
                return flat, optimizer, {**metrics, "grad_norm": norm}

            if config.kl_stop is None:
                flat, optimizer, metrics = learn((flat, optimizer))
                return (flat, optimizer, go), {**metrics, "used": jnp.float32(1)}
            shapes = jax.eval_shape(learn, (flat, optimizer))[2]
            blank = {name: jnp.zeros(s.shape, s.dtype) for name, s in shapes.items()}
            flat, optimizer, metrics = jax.lax.cond(
                go, learn, lambda operand: (*operand, blank), (flat, optimizer)
            )
            used = go.astype(jnp.float32)
            return (flat, optimizer, go & (metrics["kl"] <= config.kl_stop)), {
                **metrics,
                "used": used,
            }

        flat, unravel = ravel_pytree(params)
        (flat, optimizer, _), trace = jax.lax.scan(
            step, (flat, optimizer, jnp.bool_(True)), batch.order
        )
        first_ratio_error = trace.pop("ratio_error")[0]
        used = trace.pop("used")
        metrics = {name: masked_mean(values, used) for name, values in trace.items()}
        metrics["first_ratio_error"] = first_ratio_error
        metrics["gradient_steps"] = used.sum()
        metrics["explained_variance"] = explained_variance(value_t[:-1], targets.value, weight)
        stats = update_stats(network, config.normalize_returns, stats, batch, targets.value, weight)
        return TrainState(unravel(flat), optimizer, stats), metrics

    return update
