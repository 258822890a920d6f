"""The policy's networks, as pure functions of flat parameter dictionaries.

A policy and a value MLP each stand on the encoded observation; images pass a small CNN first, which
both share. An encoder, where the config names one, is that CNN and dense layers above all leaves,
so that several policies can learn one way of seeing. Functions take the array namespace `xp`, numpy
or jax.numpy, as their first argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery import seeds
from rookery.algorithms.distributions import Distribution, distribution_for
from rookery.config.models import NetworkConfig
from rookery.spaces import Continuous, Leaf, SeatSpec

Params = dict[str, Any]  # "pi.0.w" -> array
Stats = dict[str, Any]  # "obs.mean.<leaf>" -> array

NORMALIZED_LIMIT = 10.0
_EPSILON = 1e-6
_ONE_HOT = ("discrete", "multi_discrete")
_CRITIC = ("v.", "ret.")  # acting needs neither the value network nor the returns' scale


@dataclass(frozen=True)
class Network:
    """The shape of a policy: which arrays it has and how they act."""

    spec: SeatSpec
    config: NetworkConfig

    @property
    def distribution(self) -> Distribution:
        return distribution_for(self.spec.action, self.config.gaussian)

    def init(self, rng: np.random.Generator) -> Params:
        """Orthogonal weights, zero biases; a small last layer makes the first policy near even."""
        params: Params = {}
        width = 0
        for leaf in self.spec.observation:
            width += self._init_leaf(rng, params, leaf)
        for layer, units in enumerate(self._encoder_layers):
            params[f"enc.{layer}.w"] = self._weights(rng, width, units, first=not layer)
            params[f"enc.{layer}.b"] = np.zeros(units, np.float32)
            width = units
        for torso, outputs, gain in (
            ("pi", self.distribution.parameters, 0.01),
            ("v", 1, 1.0),
        ):
            inputs = width
            for layer, units in enumerate(self.config.hidden):
                first = not layer and not self._encoder_layers
                params[f"{torso}.{layer}.w"] = self._weights(rng, inputs, units, first)
                params[f"{torso}.{layer}.b"] = np.zeros(units, np.float32)
                inputs = units
            params[f"{torso}.out.w"] = orthogonal(rng, inputs, outputs, gain)
            params[f"{torso}.out.b"] = np.zeros(outputs, np.float32)
        if isinstance(self.spec.action, Continuous):
            size = math.prod(self.spec.action.shape)
            params["log_std"] = np.full(size, self._initial_log_std(size), np.float32)
        return params

    def _weights(
        self, rng: np.random.Generator, inputs: int, units: int, first: bool
    ) -> np.ndarray:
        """A hidden layer. Of many one-hot inputs one speaks: its row is as long as of a few."""
        hot = first and all(leaf.kind in _ONE_HOT for leaf in self.spec.observation)
        return orthogonal(rng, inputs, units, math.sqrt(2 * max(1, inputs / units) if hot else 2))

    def _initial_log_std(self, size: int) -> float:
        """Noise in many components adds up: measured, see docs/decisions/0033."""
        chosen = self.config.initial_log_std
        return -0.25 * math.log(max(1, size)) if chosen is None else chosen

    def init_stats(self) -> Stats:
        """Running statistics of raw observations and of returns; a count of 0 means identity."""
        stats: Stats = {
            "ret.mean": np.zeros((), np.float32),
            "ret.var": np.ones((), np.float32),
            "ret.count": np.zeros((), np.float32),
            "obs.count": np.zeros((), np.float32),
        }
        for leaf in self.normalized_leaves:
            stats[f"obs.mean.{leaf.path}"] = np.zeros(leaf.shape, np.float32)
            stats[f"obs.var.{leaf.path}"] = np.ones(leaf.shape, np.float32)
        return stats

    @property
    def normalized_leaves(self) -> tuple[Leaf, ...]:
        if not self.config.normalize_observations:
            return ()
        return tuple(leaf for leaf in self.spec.observation if leaf.kind == "box")

    @property
    def encoding_learns(self) -> bool:
        """Whether encoding has parameters, so that features change with each gradient step."""
        images = any(leaf.kind == "image" for leaf in self.spec.observation)
        return self.config.encoder is not None or images

    def encoder_names(self, params: Params) -> tuple[str, ...]:
        """Which parameters belong to the encoder; none where the config names no encoder."""
        if self.config.encoder is None:
            return ()
        return tuple(name for name in params if name.startswith(("enc.", "conv.")))

    def acting_arrays(self, params: Params, stats: Stats) -> dict[str, np.ndarray]:
        """What acting needs, as numpy; the value network and returns stay with the learner."""
        return _part(params, stats, lambda name: not name.startswith(_CRITIC))

    def critic_arrays(self, params: Params, stats: Stats) -> dict[str, np.ndarray]:
        """The rest: with both, a policy can act and say what it expects."""
        return _part(params, stats, lambda name: name.startswith(_CRITIC))

    def encode(self, xp: Any, params: Params, stats: Stats, observation: dict[str, Any]) -> Any:
        """(N, ...) raw leaves -> (N, features) float32."""
        parts = [
            self._encode_leaf(xp, params, stats, leaf, observation[leaf.path])
            for leaf in self.spec.observation
        ]
        x = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)
        return self._dense(xp, params, "enc", len(self._encoder_layers), x)

    def policy(self, xp: Any, params: Params, features: Any) -> Any:
        """(N, distribution parameters)."""
        return self._mlp(xp, params, "pi", features)

    def value(self, xp: Any, params: Params, stats: Stats, features: Any) -> Any:
        """(N,) in the scale of raw returns."""
        scaled = self._mlp(xp, params, "v", features)[..., 0]
        return scaled * xp.sqrt(stats["ret.var"] + _EPSILON) + stats["ret.mean"]

    def scaled_value(self, xp: Any, params: Params, features: Any) -> Any:
        """(N,) as the network predicts it."""
        return self._mlp(xp, params, "v", features)[..., 0]

    def _mlp(self, xp: Any, params: Params, torso: str, x: Any) -> Any:
        x = self._dense(xp, params, torso, len(self.config.hidden), x)
        return _times(xp, x, params[f"{torso}.out.w"]) + params[f"{torso}.out.b"]

    def _dense(self, xp: Any, params: Params, name: str, layers: int, x: Any) -> Any:
        for layer in range(layers):
            x = _times(xp, x, params[f"{name}.{layer}.w"]) + params[f"{name}.{layer}.b"]
            x = xp.tanh(x) if self.config.activation == "tanh" else xp.maximum(x, 0)
        return x

    @property
    def _encoder_layers(self) -> tuple[int, ...]:
        return () if self.config.encoder is None else self.config.encoder_hidden

    def _init_leaf(self, rng: np.random.Generator, params: Params, leaf: Leaf) -> int:
        """Add the leaf's own parameters and return how many features it becomes."""
        if leaf.kind in _ONE_HOT:
            return sum(leaf.sizes)
        if leaf.kind != "image":
            return math.prod(leaf.shape)
        height, width, channels = leaf.shape
        for layer, units in enumerate(self.config.channels):
            stride = conv_stride(height, width)
            if min(height, width) < 3:
                break
            weights = orthogonal(rng, 9 * channels, units, math.sqrt(2))
            params[f"conv.{leaf.path}.{layer}.w"] = weights
            params[f"conv.{leaf.path}.{layer}.b"] = np.zeros(units, np.float32)
            height, width = (height - 3) // stride + 1, (width - 3) // stride + 1
            channels = units
        return height * width * channels

    def _encode_leaf(self, xp: Any, params: Params, stats: Stats, leaf: Leaf, x: Any) -> Any:
        if leaf.kind == "discrete":
            return one_hot(xp, x, leaf.sizes[0])
        if leaf.kind == "multi_discrete":
            parts = [one_hot(xp, x[..., i], n) for i, n in enumerate(leaf.sizes)]
            return xp.concatenate(parts, axis=-1)
        x = x.astype(np.float32)
        if leaf.kind == "image":
            return self._convolve(xp, params, leaf, x)
        if f"obs.mean.{leaf.path}" in stats:
            scale = xp.sqrt(stats[f"obs.var.{leaf.path}"] + _EPSILON)
            x = (x - stats[f"obs.mean.{leaf.path}"]) / scale
            x = xp.clip(x, -NORMALIZED_LIMIT, NORMALIZED_LIMIT)
        return x.reshape(x.shape[0], -1)

    def _convolve(self, xp: Any, params: Params, leaf: Leaf, x: Any) -> Any:
        if math.isfinite(leaf.low) and math.isfinite(leaf.high) and leaf.high > leaf.low:
            x = (x - np.float32(leaf.low)) * np.float32(1.0 / (leaf.high - leaf.low))
        for layer in range(len(self.config.channels)):
            name = f"conv.{leaf.path}.{layer}"
            if f"{name}.w" not in params:
                break
            x = _times(xp, patches(xp, x, conv_stride(*x.shape[1:3])), params[f"{name}.w"])
            x = xp.maximum(x + params[f"{name}.b"], 0)
        return x.reshape(x.shape[0], -1)


def initial_arrays(network: Network, seed: int, *place: int) -> tuple[Params, Stats]:
    """The parameters and statistics that a run begins with; `place` tells its policies apart."""
    return network.init(seeds.generator(seed, "network", *place)), network.init_stats()


def _part(params: Params, stats: Stats, wanted: Callable[[str], bool]) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in {**params, **stats}.items() if wanted(name)}


def _times(xp: Any, x: Any, w: Any) -> Any:
    """x @ w."""
    if xp is np:
        return x @ w
    from rookery.algorithms.products import product  # imports JAX

    return product(x, w)


def orthogonal(rng: np.random.Generator, inputs: int, outputs: int, gain: float) -> np.ndarray:
    """A random (inputs, outputs) matrix with orthonormal rows or columns, times `gain`."""
    tall = rng.standard_normal((max(inputs, outputs), min(inputs, outputs)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))
    return np.ascontiguousarray(gain * (q if inputs >= outputs else q.T), dtype=np.float32)


def one_hot(xp: Any, index: Any, n: int) -> Any:
    return (index[..., None] == xp.arange(n)).astype(np.float32)


def conv_stride(height: int, width: int) -> int:
    """Large images are halved by each layer, small ones keep their detail."""
    return 2 if min(height, width) > 32 else 1


def patches(xp: Any, x: Any, stride: int) -> Any:
    """(N, H, W, C) -> (N, H', W', 9 C): 3x3 windows, so that a convolution is one matmul.

    On a CPU this beats XLA's own convolution where it hurts, in the gradient.
    """
    rows = (x.shape[1] - 3) // stride + 1
    columns = (x.shape[2] - 3) // stride + 1
    windows = [
        x[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(3)
        for j in range(3)
    ]
    return xp.concatenate(windows, axis=-1)
