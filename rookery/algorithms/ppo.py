"""PPO: clipped policy gradient, several passes over each batch (Schulman et al. 2017).

Values and advantages are made once per batch, so minibatches are rows from anywhere in it.
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
    from rookery.algorithms.train_state import Hyper, Metrics


class PPOConfig(ActorCriticConfig):
    """Proximal policy optimisation: several clipped passes over each batch."""

    kind: Literal["ppo"] = "ppo"
    gae_lambda: float = Field(default=0.95, ge=0, le=1, json_schema_extra=LIVE)
    clip: float = Field(default=0.2, gt=0, json_schema_extra=LIVE)
    epochs: int = Field(default=4, ge=1, le=100, description="passes over a batch")
    minibatch_size: int = Field(default=256, ge=1, description="agent steps per gradient step")
    value_clip: float | None = Field(default=None, gt=0, description="off when null")
    kl_stop: float | None = Field(
        default=None, gt=0, description="skip the rest of a batch past this KL; off when null"
    )
    normalize_advantages: bool = Field(default=True, description="per minibatch")


class PPO(Algorithm):
    """Learns from its own newest play: its ratio is bounded, not corrected."""

    Config = PPOConfig
    tuned = tuned.PPO

    config: PPOConfig

    def check(self, steps: int, lanes: int) -> None:
        if steps * lanes % self.config.minibatch_size:
            raise ValueError(
                f"algorithm.minibatch_size={self.config.minibatch_size} does not divide a batch of "
                f"{steps * lanes} steps (actors.rollout_steps x actors.envs_per_actor x "
                "learner.fragments_per_batch)"
            )

    def fitted(self, steps: int, lanes: int, learners: int = 1) -> PPOConfig:
        most = max(1, self.config.minibatch_size // learners)
        size = learners * largest_divisor(steps * lanes // learners, most)
        return self.config.model_copy(update={"minibatch_size": size})

    def shared(self, steps: int, lanes: int, learners: int) -> PPOConfig:
        size = self.config.minibatch_size
        if size % learners:
            near = learners * max(1, size // learners)
            raise ValueError(
                f"algorithm.minibatch_size={size} cannot be shared by learner.count={learners}: "
                f"set it to a multiple, like {near}"
            )
        return self.config.model_copy(update={"minibatch_size": size // learners})

    def why_alone(self) -> str | None:
        stop = self.config.kl_stop
        if stop is None:
            return None
        return f"has kl_stop={stop:g}, which would stop both: set kl_stop to null"

    def make_order(self, rng: np.random.Generator, steps: int, lanes: int) -> np.ndarray:
        """A fresh permutation of the rows per epoch, cut into minibatches.

        Made on the host: inside XLA a permutation costs as much as half of the update.
        """
        import numpy as np

        rows = steps * lanes
        epochs = [rng.permutation(rows) for _ in range(self.config.epochs)]
        return np.concatenate(epochs).astype(np.int32).reshape(-1, self.config.minibatch_size)

    def make_objective(self, network: Network) -> Objective:
        """Choices that change the shape of the update are made here, once."""
        import jax
        import jax.numpy as jnp

        from rookery.algorithms.objective import (
            Objective,
            Prepared,
            ends,
            flatten_steps,
            log_ratio,
            trained_rows,
            values,
        )
        from rookery.algorithms.returns import gae
        from rookery.algorithms.statistics import masked_mean, masked_normalize

        config = self.config
        act = network.distribution

        def prepare(params: Any, stats: Any, extra: Any, batch: Batch, hyper: Hyper) -> Prepared:
            steps = batch.steps
            weight = trained_rows(steps).astype(jnp.float32)
            value_t = values(network, params, stats, steps.observation)
            targets = gae(
                steps.reward,
                steps.terminated,
                ends(steps),
                value_t,
                hyper["gamma"],
                hyper["gae_lambda"],
            )
            scale = jnp.sqrt(stats["ret.var"] + 1e-6)
            rows = flatten_steps(
                {
                    "features": steps.observation,  # with those after the last step: no copy of all
                    "action": steps.action,
                    "log_prob": steps.log_prob,
                    "weight": weight,
                    "advantage": targets.advantage,
                    "target": (targets.value - stats["ret.mean"]) / scale,
                    "value": (value_t[:-1] - stats["ret.mean"]) / scale,
                    "mask": None if steps.mask is None else steps.mask[:-1],
                }
            )
            if not network.encoding_learns:  # no parameters: once will do, not once per epoch
                now = jax.tree.map(lambda x: x[: weight.size], rows["features"])
                rows["features"] = network.encode(jnp, params, stats, now)
            return Prepared(rows, value_t[:-1], targets.value, weight)

        def take(rows: Any, index: Any) -> Any:
            return jax.tree.map(lambda x: x[index], rows)

        def loss(
            params: Any, mini: dict[str, Any], stats: Any, hyper: Hyper
        ) -> tuple[Any, Metrics]:
            features = mini["features"]
            if network.encoding_learns:
                features = network.encode(jnp, params, stats, features)
            theta, extra = network.policy(jnp, params, features), params.get("log_std")
            weight, advantage = mini["weight"], mini["advantage"]
            log_prob = act.log_prob(jnp, theta, extra, mini["mask"], mini["action"])
            moved = log_ratio(log_prob, mini["log_prob"], weight > 0)
            ratio = jnp.exp(moved)
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
                "kl": masked_mean(ratio - 1 - moved, weight),
                "clip_fraction": masked_mean(outside, weight),
                "ratio_error": jnp.max(jnp.abs(ratio - 1) * weight),
            }

        return Objective(
            network,
            prepare,
            take,
            loss,
            config.normalize_returns,
            config.kl_stop,
            weigh=lambda mini: mini["weight"].sum(),
        )
