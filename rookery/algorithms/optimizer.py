"""Adam over the parameters as one flat vector.

A gradient step is a handful of operations whatever the network, which halves the time to trace and
compile it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from rookery.algorithms.networks import Params

_BETA_MEAN, _BETA_SQUARE, _ADAM_EPSILON = 0.9, 0.999, 1e-5


class Moments(NamedTuple):
    """Adam's state; a pytree."""

    mean: Any
    square: Any
    count: Any


def init_moments(params: Params) -> Moments:
    """In numpy: an eager JAX operation here would cost a compile each."""
    size = sum(array.size for array in params.values())
    zeros = np.zeros(size, np.float32)
    return Moments(zeros, zeros.copy(), np.zeros((), np.int32))


def adam(flat: Any, moments: Moments, gradient: Any, learning_rate: Any) -> tuple[Any, Moments]:
    """One step of Adam (Kingma and Ba 2015)."""
    count = moments.count + 1
    mean = _BETA_MEAN * moments.mean + (1 - _BETA_MEAN) * gradient
    square = _BETA_SQUARE * moments.square + (1 - _BETA_SQUARE) * jnp.square(gradient)
    unbiased_mean = mean / (1 - _BETA_MEAN**count)
    unbiased_square = square / (1 - _BETA_SQUARE**count)
    step = unbiased_mean / (jnp.sqrt(unbiased_square) + _ADAM_EPSILON)
    return flat - learning_rate * step, Moments(mean, square, count)
