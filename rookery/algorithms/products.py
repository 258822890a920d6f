"""A matrix product whose gradient is fast on a CPU.

XLA takes the gradient of the weights as x^T g. Where that is a tall matrix, as in a network's last
layer or a convolution, its CPU backend is many times slower than for the transpose of it: 42
against 2.6 us for 512 rows, 64 inputs and 2 outputs; 3.5 against 1.9 ms for 8192 rows, 288 inputs
and 32 outputs. CartPole-v1's whole update takes 0.93 of its time with it.
"""

from __future__ import annotations

from typing import Any

import jax


@jax.custom_vjp
def product(x: Any, w: Any) -> Any:
    """(..., inputs) @ (inputs, outputs)."""
    return x @ w


def _forward(x: Any, w: Any) -> tuple[Any, tuple[Any, Any]]:
    return x @ w, (x, w)


def _backward(kept: tuple[Any, Any], g: Any) -> tuple[Any, Any]:
    x, w = kept
    rows, g_rows = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    if g_rows.shape[1] >= rows.shape[1]:
        return g @ w.T, rows.T @ g_rows
    turned = _as_written(_as_written(g_rows.T) @ rows)
    return g @ w.T, turned.T


def _as_written(x: Any) -> Any:
    """Without it XLA would turn the product into x^T g again."""
    return jax.lax.optimization_barrier(x)  # type: ignore[no-untyped-call]


product.defvjp(_forward, _backward)
