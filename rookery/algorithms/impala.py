"""IMPALA: policy gradient with V-trace targets (Espeholt et al. 2018).

Sibling of `ppo`: here the age of each step's weights is corrected by its behaviour
log-probability, so lanes stay whole and targets are made anew for each gradient step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from rookery.algorithms import Algorithm, largest_divisor
from rookery.config import tuned
from rookery.config.algorithm import ActorCriticConfig
from rookery.config.part import LIVE

if TYPE_CHECKING:
    import numpy as np

    from rookery.algorithms.batch import Batch
    from rookery.algorithms.networks import Network
    from rookery.algorithms.objective import Objective, Prepared
    from rookery.algorithms.returns import Targets
    from rookery.algorithms.train_state import Hyper, Metrics
    from rookery.messages.steps import Steps


class ImpalaConfig(ActorCriticConfig):
    """Importance-weighted actor-learner: V-trace corrects for the age of the weights."""

    kind: Literal["impala"] = "impala"
    trace_lambda: float = Field(default=0.95, ge=0, le=1, json_schema_extra=LIVE)
    rho_clip: float = Field(default=1.0, gt=0, json_schema_extra=LIVE)
    c_clip: float = Field(default=1.0, gt=0, json_schema_extra=LIVE)
    clip: float | None = Field(
        default=0.2,
        gt=0,
        description="bounds each step of the policy as PPO does, which makes several passes safe; "
        "plain policy gradient when null",
    )
    epochs: int = Field(default=4, ge=1, le=100, description="passes over a batch")
    minibatches: int = Field(default=4, ge=1, description="parts of a batch, cut across lanes")
    normalize_advantages: bool = Field(default=True, description="per minibatch")


class Impala(Algorithm):
    """Learns from play of any age whose log-probability is known."""

    Config = ImpalaConfig
    corrects_staleness = True
    tuned = tuned.IMPALA

    config: ImpalaConfig

    def check(self, steps: int, lanes: int) -> None:
        if lanes % self.config.minibatches:
            raise ValueError(
                f"algorithm.minibatches={self.config.minibatches} does not divide "
                f"{lanes} lanes (actors.envs_per_actor x learner.fragments_per_batch)"
            )

    def fitted(self, steps: int, lanes: int, learners: int = 1) -> ImpalaConfig:
        count = largest_divisor(lanes // learners, self.config.minibatches)
        return self.config.model_copy(update={"minibatches": count})

    def shared(self, steps: int, lanes: int, learners: int) -> ImpalaConfig:
        own, parts = lanes // learners, self.config.minibatches
        if own % parts:
            raise ValueError(
                f"algorithm.minibatches={parts} does not divide the {own} lanes that each of "
                f"learner.count={learners} gets (actors.envs_per_actor x "
                f"learner.fragments_per_batch / learner.count): set it to "
                f"{largest_divisor(own, parts)}"
            )
        return self.config

    def make_order(self, rng: np.random.Generator, steps: int, lanes: int) -> np.ndarray:
        """A fresh permutation of the lanes per epoch, cut into minibatches."""
        import numpy as np

        epochs = [rng.permutation(lanes) for _ in range(self.config.epochs)]
        return np.concatenate(epochs).astype(np.int32).reshape(-1, lanes // self.config.minibatches)

    def make_objective(self, network: Network) -> Objective:
        """Choices that change the shape of the update are made here, once."""
        import jax
        import jax.numpy as jnp

        from rookery.algorithms.objective import (
            Objective,
            Prepared,
            ends,
            flatten_steps,
            heads,
            log_ratio,
            trained_rows,
            values,
        )
        from rookery.algorithms.returns import vtrace
        from rookery.algorithms.statistics import masked_mean, masked_normalize

        config = self.config
        act = network.distribution

        def targets_of(steps: Steps, value_t: Any, ratio: Any, hyper: Hyper) -> Targets:
            return vtrace(
                steps.reward,
                steps.terminated,
                steps.truncated,
                value_t,
                ratio,
                hyper["gamma"],
                hyper["trace_lambda"],
                hyper["rho_clip"],
                hyper["c_clip"],
            )

        def prepare(params: Any, stats: Any, extra: Any, batch: Batch, hyper: Hyper) -> Prepared:
            weight = trained_rows(batch.steps).astype(jnp.float32)
            value_t = values(network, params, stats, batch.steps.observation)
            rows = batch.steps._replace(truncated=ends(batch.steps))  # lanes stay whole: once
            on_policy = targets_of(rows, value_t, jnp.zeros_like(rows.reward), hyper)
            return Prepared(rows, value_t[:-1], on_policy.value, weight)

        def take(rows: Steps, lanes: Any) -> Steps:
            mini: Steps = jax.tree.map(lambda x: x[:, lanes], rows)
            return mini

        def loss(params: Any, mini: Steps, stats: Any, hyper: Hyper) -> tuple[Any, Metrics]:
            steps, lanes = mini.reward.shape
            theta, scaled_value_t = heads(network, params, stats, mini.observation)
            scale, extra = jnp.sqrt(stats["ret.var"] + 1e-6), params.get("log_std")
            value_t = jax.lax.stop_gradient(scaled_value_t) * scale + stats["ret.mean"]
            mask = None if mini.mask is None else flatten_steps(mini.mask[:-1])
            action = flatten_steps(mini.action)
            known = trained_rows(mini)
            weight = known.astype(jnp.float32)
            log_prob = act.log_prob(jnp, theta, extra, mask, action).reshape(steps, lanes)
            live_log_ratio = log_ratio(log_prob, mini.log_prob, known)
            fixed_log_ratio = jax.lax.stop_gradient(live_log_ratio)
            ratio = jnp.exp(fixed_log_ratio)
            targets = targets_of(mini, value_t, fixed_log_ratio, hyper)
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
            cut_off = (ratio > hyper["rho_clip"]).astype(jnp.float32)
            total = policy_loss + hyper["value_coef"] * value_loss - hyper["entropy_coef"] * entropy
            return total, {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                "kl": masked_mean(ratio - 1 - fixed_log_ratio, weight),
                "clip_fraction": masked_mean(cut_off, weight),
                "ratio_error": jnp.max(jnp.abs(ratio - 1) * weight),
            }

        return Objective(
            network,
            prepare,
            take,
            loss,
            config.normalize_returns,
            weigh=lambda mini: trained_rows(mini).sum(),
        )
