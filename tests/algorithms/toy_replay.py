"""Actions are repeated as far as they were rewarded, out of a memory of many batches.

An algorithm with an update of its own: the memory is in its train state, and its order says which
places of it are learned from. It needs nobody's log-probability, so play of any age will do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from rookery.algorithms import Algorithm
from rookery.config.algorithm import AlgorithmConfig


class RepeatConfig(AlgorithmConfig):
    """Rewarded actions, repeated."""

    kind: str = "toy_replay:Repeat"
    capacity: int = Field(default=2048, ge=1, description="rows of the memory")
    passes: int = Field(default=8, ge=1, description="gradient steps per update")


class Repeat(Algorithm):
    Config = RepeatConfig
    corrects_staleness = True
    needs_log_prob = False

    config: RepeatConfig

    def make_order(self, rng: np.random.Generator, steps: int, lanes: int) -> np.ndarray:
        shape = self.config.passes, 256
        return rng.integers(self.config.capacity, size=shape, dtype=np.int32)

    def init_extra(self, network: Any, params: Any) -> dict[str, Any]:
        rows = self.config.capacity
        seen = {leaf.path: leaf for leaf in network.spec.observation}
        return {
            **{f"seen.{p}": np.zeros((rows, *leaf.shape), leaf.dtype) for p, leaf in seen.items()},
            "action": np.zeros(rows, np.int32),
            "reward": np.zeros(rows, np.float32),
            "weight": np.zeros(rows, np.float32),
            "pointer": np.zeros((), np.int32),
        }

    def make_update(self, network: Any) -> Any:
        import jax
        import jax.numpy as jnp
        from jax.flatten_util import ravel_pytree

        from rookery.algorithms.objective import flatten_steps
        from rookery.algorithms.optimizer import adam
        from rookery.algorithms.statistics import masked_mean
        from rookery.algorithms.train_state import TrainState

        def remember(extra: Any, batch: Any) -> Any:
            steps = batch.steps
            seen = {f"seen.{leaf}": x[:-1] for leaf, x in steps.observation.items()}
            weight = steps.valid.astype(jnp.float32)
            told = {**seen, "action": steps.action, "reward": steps.reward, "weight": weight}
            places = (extra["pointer"] + jnp.arange(weight.size)) % self.config.capacity
            rows = flatten_steps(told)
            kept = {name: extra[name].at[places].set(x) for name, x in rows.items()}
            return {**kept, "pointer": (extra["pointer"] + weight.size) % self.config.capacity}

        def loss(params: Any, stats: Any, rows: Any) -> Any:
            observation = {n.removeprefix("seen."): x for n, x in rows.items() if "seen." in n}
            theta = network.policy(jnp, params, network.encode(jnp, params, stats, observation))
            log_prob = network.distribution.log_prob(jnp, theta, None, None, rows["action"])
            return -masked_mean(log_prob * rows["reward"], rows["weight"])

        def update(state: Any, batch: Any, hyper: Any) -> Any:
            extra = remember(state.extra, batch)
            flat, undo = ravel_pytree(state.params)

            def step(carry: Any, places: Any) -> Any:
                rows = {name: x[places] for name, x in extra.items() if name != "pointer"}
                found = jax.value_and_grad(lambda flat: loss(undo(flat), state.stats, rows))
                value, gradient = found(carry[0])
                return adam(*carry, gradient, hyper["learning_rate"]), value

            (flat, optimizer), losses = jax.lax.scan(step, (flat, state.optimizer), batch.order)
            return TrainState(undo(flat), optimizer, state.stats, extra), {"loss": losses.mean()}

        return update
