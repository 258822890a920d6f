"""REINFORCE against a slow copy of the value network: the one file of a new algorithm."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import Field

from rookery.algorithms import Algorithm
from rookery.config.algorithm import AlgorithmConfig
from rookery.config.part import LIVE


class ReinforceConfig(AlgorithmConfig):
    """REINFORCE with a target network."""

    kind: Literal["reinforce"] = "reinforce"
    gamma: float = Field(default=0.9, ge=0, le=1, json_schema_extra=LIVE)
    tau: float = Field(default=0.5, ge=0, le=1, json_schema_extra=LIVE)
    passes: int = Field(default=4, ge=1, description="over a batch")


class Reinforce(Algorithm):
    Config = ReinforceConfig

    config: ReinforceConfig

    def make_order(self, rng: np.random.Generator, steps: int, lanes: int) -> np.ndarray:
        return np.zeros((self.config.passes, 1), np.int32)  # the whole batch each time

    def init_extra(self, network: Any, params: Any) -> dict[str, Any]:
        return {name: np.array(x) for name, x in params.items() if name.startswith("v.")}

    def make_objective(self, network: Any) -> Any:
        import jax.numpy as jnp

        from rookery.algorithms.objective import (
            Objective,
            Prepared,
            ends,
            flatten_steps,
            trained_rows,
            values,
        )
        from rookery.algorithms.returns import gae
        from rookery.algorithms.statistics import masked_mean

        act = network.distribution

        def prepare(params: Any, stats: Any, extra: Any, batch: Any, hyper: Any) -> Prepared:
            steps = batch.steps
            slow = values(network, {**params, **extra}, stats, steps.observation)
            targets = gae(
                steps.reward, steps.terminated, ends(steps), slow, hyper["gamma"], np.float32(1)
            )
            weight = trained_rows(steps).astype(np.float32)
            now = {leaf: x[:-1] for leaf, x in steps.observation.items()}
            rows = (now, steps.action, targets.advantage, targets.value, weight)
            return Prepared(flatten_steps(rows), slow[:-1], targets.value, weight)

        def take(rows: Any, index: Any) -> Any:
            return rows

        def loss(params: Any, rows: Any, stats: Any, hyper: Any) -> Any:
            observation, action, advantage, target, weight = rows
            features = network.encode(jnp, params, stats, observation)
            log_prob = act.log_prob(jnp, network.policy(jnp, params, features), None, None, action)
            error = jnp.square(network.value(jnp, params, stats, features) - target)
            policy_loss = -masked_mean(log_prob * advantage, weight)
            return policy_loss + masked_mean(error, weight), {"policy_loss": policy_loss}

        def renew(extra: Any, params: Any, batch: Any, hyper: Any) -> Any:
            return {name: x + hyper["tau"] * (params[name] - x) for name, x in extra.items()}

        return Objective(network, prepare, take, loss, renew=renew)
