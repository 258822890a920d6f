"""Advantages and value targets as pure functions over time-major arrays.

Rows follow the contract of a fragment: `value_t` has T+1 entries along the first axis, one per
observation; `reward`, `terminated` and `truncated` have T. A terminated step bootstraps from 0, a
truncated one from the value of its final observation, which is the next row; nothing flows back
over either. Rows that only reset a slot are cut off on both sides by that rule and are masked by
the caller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class Targets(NamedTuple):
    advantage: Any  # (T, ...)
    value: Any  # (T, ...) what the value network should have said


def _check(reward: Any, terminated: Any, truncated: Any, value_t: Any) -> None:
    assert reward.shape == terminated.shape == truncated.shape, "T x B must agree"
    assert value_t.shape == (reward.shape[0] + 1, *reward.shape[1:]), "values need T+1 rows"


def gae(
    reward: Any, terminated: Any, truncated: Any, value_t: Any, gamma: Any, gae_lambda: Any
) -> Targets:
    """Generalised advantage estimation (Schulman et al. 2016, equation 16)."""
    _check(reward, terminated, truncated, value_t)
    delta = reward + gamma * jnp.where(terminated, 0.0, value_t[1:]) - value_t[:-1]
    decay = gamma * gae_lambda * (1.0 - (terminated | truncated))

    def backward(advantage: Any, row: Any) -> tuple[Any, Any]:
        delta_t, decay_t = row
        advantage = delta_t + decay_t * advantage
        return advantage, advantage

    _, advantage = jax.lax.scan(backward, jnp.zeros_like(value_t[0]), (delta, decay), reverse=True)
    return Targets(advantage, advantage + value_t[:-1])


def vtrace(
    reward: Any,
    terminated: Any,
    truncated: Any,
    value_t: Any,
    log_ratio: Any,
    gamma: Any,
    trace_lambda: Any,
    rho_clip: Any,
    c_clip: Any,
) -> Targets:
    """V-trace (Espeholt et al. 2018, equation 1 and section 4.2).

    `log_ratio` is log pi(a) - log mu(a) of the learner's policy over the behaviour's.
    """
    _check(reward, terminated, truncated, value_t)
    assert log_ratio.shape == reward.shape, "one ratio per step"
    ratio = jnp.exp(log_ratio)
    rho = jnp.minimum(rho_clip, ratio)
    c = trace_lambda * jnp.minimum(c_clip, ratio)
    done = terminated | truncated
    next_value = jnp.where(terminated, 0.0, value_t[1:])
    delta = rho * (reward + gamma * next_value - value_t[:-1])
    decay = gamma * c * (1.0 - done)

    def backward(excess: Any, row: Any) -> tuple[Any, Any]:
        delta_t, decay_t = row
        excess = delta_t + decay_t * excess  # v_t - V(x_t)
        return excess, excess

    _, excess = jax.lax.scan(backward, jnp.zeros_like(value_t[0]), (delta, decay), reverse=True)
    target = value_t[:-1] + excess
    beyond = jnp.concatenate([target[1:], value_t[-1:]])
    next_target = jnp.where(terminated, 0.0, jnp.where(done, value_t[1:], beyond))
    advantage = rho * (reward + gamma * next_target - value_t[:-1])
    return Targets(advantage, target)
