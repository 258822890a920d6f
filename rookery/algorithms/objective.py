"""An objective: what an algorithm makes of a batch, and the loss that gradient steps lower.

With it come the few things that objectives say of a batch's rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rookery.algorithms import largest_divisor
from rookery.algorithms.batch import Batch
from rookery.algorithms.networks import Network, Params, Stats
from rookery.algorithms.train_state import Extra, Hyper, Metrics
from rookery.messages.steps import Steps

PIECE = 8 << 20  # numbers in the observations that are encoded at once: 32 MB as float32


class Prepared(NamedTuple):
    """A batch made ready for its gradient steps; a pytree."""

    rows: Any  # what minibatches are taken from
    value_t: Any  # (T, B) as the value network said before the first gradient step
    target: Any  # (T, B) what it should have said
    weight: Any  # (T, B) float32: 1 on rows that are trained on


def keep_extra(extra: Extra, params: Params, batch: Batch, hyper: Hyper) -> Extra:
    return extra


@dataclass(frozen=True)
class Objective:
    """Pure functions. What `loss` needs of the extra state, `prepare` puts into the rows."""

    network: Network
    prepare: Callable[[Params, Stats, Extra, Batch, Hyper], Prepared]
    take: Callable[[Any, Any], Any]  # rows and an index from the order -> a minibatch
    loss: Callable[[Params, Any, Stats, Hyper], tuple[Any, Metrics]]  # of a minibatch
    normalize_returns: bool = False
    kl_stop: float | None = None  # the metric `kl` past which the other gradient steps are skipped
    renew: Callable[[Extra, Params, Batch, Hyper], Extra] = keep_extra  # after the gradient steps
    weigh: Callable[[Any], Any] | None = None
    """The rows of a minibatch that its loss and its metrics are means of; None: they are no means,
    and several learners cannot put theirs together."""


def trained_rows(steps: Steps) -> Any:
    """(T, B) bool: rows where the policy acted and its behaviour is known."""
    return steps.valid & ~jnp.isnan(steps.log_prob)


def log_ratio(log_prob: Any, behaviour: Any, known: Any) -> Any:
    """How much likelier an action has become, as a logarithm; 0 where that is not known.

    Within bounds whose exponential float32 can multiply with and divide by.
    """
    return jnp.where(known, jnp.clip(log_prob - behaviour, -20.0, 20.0), 0.0)


def ends(steps: Steps) -> Any:
    """(T, B) bool: where a trajectory is cut off, to be bootstrapped from the next row's value.

    That is where the environment truncated, and where the next row is not valid: a lane may hold
    several trajectories one after the other, and one that goes on later is followed by a row that
    only shows its next observation. It is also where somebody else decides in the next row: what
    follows is no return of this decider.
    """
    same = steps.valid[1:] & (steps.player[1:] == steps.player[:-1])
    goes_on = jnp.concatenate([same, jnp.ones_like(same[:1])])
    return steps.truncated | (steps.valid & ~goes_on & ~steps.terminated)


def flatten_steps(tree: Any) -> Any:
    """(T, B, ...) -> (T * B, ...)."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), tree)


def values(network: Network, params: Any, stats: Any, observation: dict[str, Any]) -> Any:
    """(T+1, B) values of every observation."""
    steps, lanes = next(iter(observation.values())).shape[:2]

    def of(rows: dict[str, Any]) -> Any:
        return network.value(jnp, params, stats, network.encode(jnp, params, stats, rows))

    return in_pieces(of, flatten_steps(observation)).reshape(steps, lanes)


def heads(network: Network, params: Any, stats: Any, observation: dict[str, Any]) -> Any:
    """(T * B, ...) the policy's parameters before each action, and (T+1, B) scaled values."""
    steps, lanes = next(iter(observation.values())).shape[:2]
    before = (steps - 1) * lanes

    def of(rows: dict[str, Any]) -> Any:
        features = network.encode(jnp, params, stats, rows)
        theta = network.policy(jnp, params, features[:before])
        return theta, network.scaled_value(jnp, params, features)

    theta, value = in_pieces(of, flatten_steps(observation))
    return theta[:before], value.reshape(steps, lanes)


def in_pieces(work: Callable[[dict[str, Any]], Any], flat: dict[str, Any]) -> Any:
    """`work` of all rows; of many large observations a piece at a time, since a frame of 84x84x4
    bytes takes 800 kB while it is encoded."""
    rows = next(iter(flat.values())).shape[0]
    numbers = sum(math.prod(x.shape[1:]) for x in flat.values())
    piece = largest_divisor(rows, max(1, min(rows, PIECE // max(1, numbers))))
    if piece == rows:
        return work(flat)
    pieces = jax.tree.map(lambda x: x.reshape(-1, piece, *x.shape[1:]), flat)
    found = jax.lax.map(jax.checkpoint(work), pieces)  # its gradient too
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), found)
