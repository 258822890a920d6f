"""Train states: everything that an update changes, as pytrees of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rookery.algorithms.batch import Batch
from rookery.algorithms.networks import Params, Stats
from rookery.algorithms.optimizer import Moments, init_moments

Extra = dict[str, Any]  # an algorithm's own arrays by name: "target.v.0.w", "memory.reward"
Hyper = dict[str, Any]  # live hyperparameters, scalars
Metrics = dict[str, Any]  # scalars


class TrainState(NamedTuple):
    """Of a policy."""

    params: Params  # without the encoder's where it has one
    optimizer: Moments
    stats: Stats
    extra: Extra


class EncoderState(NamedTuple):
    """Of an encoder."""

    params: Params
    optimizer: Moments


class GroupState(NamedTuple):
    """Of policies that are updated together."""

    encoder: EncoderState | None  # None: a policy by itself
    policies: tuple[TrainState, ...]

    def params(self, member: int) -> Params:
        """All parameters of a policy, its encoder's included."""
        encoder = {} if self.encoder is None else self.encoder.params
        return {**encoder, **self.policies[member].params}


PolicyUpdate = Callable[[TrainState, Batch, Hyper], tuple[TrainState, Metrics]]
Update = Callable[
    [GroupState, tuple[Batch, ...], tuple[Hyper, ...]], tuple[GroupState, tuple[Metrics, ...]]
]


def init_state(params: Params, stats: Stats, extra: Extra) -> TrainState:
    return TrainState(params, init_moments(params), stats, extra)
