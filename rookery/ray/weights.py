"""The weights that a runner plays with, as they cross a process: each policy's, as a message.

weights = rookery.ray.load_weights("last")                  # out of a run
weights = RunnerWeights.of({"main": arrays}, number=7)      # out of your own learner
ray.get([runner.set_weights.remote(ray.put(weights)) for runner in runners])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rookery.checkpoints.policies import FrozenPolicy, load_policy
from rookery.control.home import Home
from rookery.errors import InputError, MessageError, UnknownName
from rookery.messages import WeightsVersion
from rookery.messages.frame import Arrays
from rookery.messages.weights import Weights, WeightsHeader, decode_weights, encode_weights

GENERATION = 1  # of weights that no learner of ours has numbered


@dataclass(frozen=True)
class RunnerWeights:
    """What acting needs of each policy: parameters and the observations' statistics."""

    policies: dict[str, Weights]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes, ...]]:
        return decode_runner_weights, tuple(encode_weights(w) for w in self.policies.values())

    def __getitem__(self, policy: str) -> Arrays:
        return self.policies[policy].arrays

    @staticmethod
    def of(
        weights: RunnerWeights | FrozenPolicy | Weights | Mapping[str, Arrays], number: int = 0
    ) -> RunnerWeights:
        """Of a policy out of a run, a message, or arrays by policy, which then get the number."""
        if isinstance(weights, RunnerWeights):
            return weights
        if isinstance(weights, Weights):
            return RunnerWeights({weights.header.policy: weights})
        if isinstance(weights, FrozenPolicy):
            frozen = _message(
                weights.policy, weights.arrays, weights.number, weights.run, weights.env_steps
            )
            return RunnerWeights({weights.policy: frozen})
        if not isinstance(weights, Mapping):
            raise InputError(
                f"{type(weights).__name__} is no kind of weights: pass RunnerWeights, a policy of "
                "a run, or {policy: {name: array}}"
            )
        return RunnerWeights({p: _message(p, arrays, number) for p, arrays in weights.items()})


def _message(
    policy: str, arrays: Mapping[str, Any], number: int, run: str = "", env_steps: int = 0
) -> Weights:
    if not isinstance(arrays, Mapping):
        raise InputError(f"weights of policy {policy!r}: pass {{name: array}} for each policy")
    header = WeightsHeader(
        run=run, policy=policy, version=WeightsVersion(GENERATION, number), env_steps=env_steps
    )
    return Weights(header, {name: np.ascontiguousarray(array) for name, array in arrays.items()})


def decode_runner_weights(*payloads: bytes) -> RunnerWeights:
    found = [decode_weights(payload) for payload in payloads]
    policies = {weights.header.policy: weights for weights in found}
    if len(policies) != len(found):
        raise MessageError("weights of one policy twice")
    return RunnerWeights(policies)


def load_weights(
    run: str = "last",
    policy: str | None = None,
    version: int | None = None,
    home: str | Path | None = None,
) -> RunnerWeights:
    """A policy out of a run: of the version if that is in its league, else the newest.

    The run is named by its id, a unique prefix of it, or `last`; the policy is the first unless
    one is named.
    """
    return RunnerWeights.of(frozen_policy(run, policy, version, home))


def frozen_policy(
    run: str, policy: str | None, version: int | None, home: str | Path | None
) -> FrozenPolicy:
    return load_policy(home_at(home).find_files(run), version, policy)


def home_at(home: str | Path | None) -> Home:
    return Home(Path(home).absolute()) if home is not None else Home.default()


def check_fit(weights: RunnerWeights, known: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Raise one line where weights are not those of these policies' networks."""
    for policy, message in weights.policies.items():
        if policy not in known:
            raise UnknownName("policy", policy, known, f"(policies here: {', '.join(known)})")
        mine, theirs = known[policy], message.arrays
        if mine.keys() != theirs.keys():
            odd = sorted(mine.keys() ^ theirs.keys())
            raise InputError(
                f"weights of another network than policy {policy!r} has: only one of the two has "
                f"{', '.join(odd[:3])}{' ...' if len(odd) > 3 else ''}"
            )
        for name, array in theirs.items():
            if array.shape != mine[name].shape:
                raise InputError(
                    f"weights of another network than policy {policy!r} has: {name} has shape "
                    f"{array.shape}, not {mine[name].shape}"
                )
