"""What a policy thinks of a moment: the probabilities of its actions, and what it expects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rookery.algorithms.distributions import log_softmax
from rookery.algorithms.networks import Network
from rookery.players import Decision
from rookery.spaces import Categorical, Continuous, MultiCategorical
from rookery.viewing import ActionOption, ChoiceHead, NumberHead

ALL_SHOWN = 18  # actions; of more, only the most probable
MOST_SHOWN = 12


class Thought(NamedTuple):
    heads: list[ChoiceHead | NumberHead]
    value: float | None  # None: the weights have no value network


def think(
    network: Network,
    arrays: Mapping[str, Any],
    observation: dict[str, np.ndarray],
    mask: np.ndarray | None,
    decision: Decision,
    names: Sequence[str] = (),
) -> Thought:
    """Of one lane, as `PolicyPlayer` decided it."""
    known = dict(arrays)
    features = network.encode(np, known, known, observation)
    theta, extra = network.policy(np, known, features), known.get("log_std")
    value = None
    if "v.out.w" in known:
        value = _finite(network.value(np, known, known, features)[0])
    legal = None if mask is None else mask[0]
    match network.spec.action:
        case Categorical():
            return Thought([_choice(theta[0], legal, names)], value)
        case MultiCategorical(sizes=sizes):
            cuts = np.cumsum(sizes)[:-1]
            masks = [None] * len(sizes) if legal is None else np.split(legal, cuts)
            parts = zip(np.split(theta[0], cuts), masks, strict=True)
            return Thought([_choice(part, allowed) for part, allowed in parts], value)
        case Continuous() as space:
            return Thought(_numbers(network, space, theta, extra, decision), value)


def _choice(logits: np.ndarray, legal: np.ndarray | None, names: Sequence[str] = ()) -> ChoiceHead:
    allowed = np.ones(len(logits), bool) if legal is None else legal
    p = np.exp(log_softmax(np, np.where(allowed, logits, np.float32(-1e9))))
    shown = range(len(p)) if len(p) <= ALL_SHOWN else np.argsort(-p, kind="stable")[:MOST_SHOWN]
    options = [
        ActionOption(i, names[i] if i < len(names) else "", float(p[i]), bool(allowed[i]))
        for i in map(int, shown)
    ]
    return ChoiceHead(len(p), int(allowed.sum()), options)


def _numbers(
    network: Network, space: Continuous, theta: np.ndarray, extra: Any, decision: Decision
) -> list[ChoiceHead | NumberHead]:
    def units(action: Any) -> np.ndarray:
        return np.asarray(network.distribution.to_environment(np, action), float).reshape(-1)

    std = np.exp(np.asarray(extra))
    mean, near, far = units(theta), units(theta - std), units(theta + std)
    played = np.asarray(decision.to_environment, float).reshape(-1)
    return [
        NumberHead(
            _finite(space.low[i]),
            _finite(space.high[i]),
            *(float(x[i]) for x in (mean, near, far, played)),
        )
        for i in range(len(mean))
    ]


def _finite(number: Any) -> float | None:
    return float(number) if math.isfinite(number) else None
