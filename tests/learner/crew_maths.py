"""One update by two learners and by one, on the same rows; prints how far apart they end as JSON.

A process of its own, with two devices: JAX counts them once in a process's life.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from rookery.algorithms.batch import Batch
from rookery.algorithms.impala import ImpalaConfig
from rookery.algorithms.networks import Network
from rookery.algorithms.policies import PolicySetup
from rookery.algorithms.ppo import PPOConfig
from rookery.config.algorithm import AlgorithmConfig
from rookery.config.models import NetworkConfig
from rookery.learner.collective import Axis
from rookery.learner.trainer import Trainer
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader
from rookery.messages.frame import Arrays
from rookery.messages.steps import Steps
from rookery.spaces import Categorical, Leaf, SeatSpec

MODELS = {"ppo": PPOConfig, "impala": ImpalaConfig}
T, B, LEARNERS = 8, 8, 2
SPEC = SeatSpec((Leaf("", "box", (3,), "float32"),), Categorical(3))
CASES: dict[str, dict[str, Any]] = {
    "ppo stopped": {"kind": "ppo", "minibatch_size": 16, "epochs": 4, "kl_stop": 1e-4},
    "impala": {"kind": "impala", "minibatches": 2, "epochs": 2},
    "ppo with an encoder": {"kind": "ppo", "minibatch_size": 16, "epochs": 2},
}


class BothHere:
    """A crew in one process: each device is a learner."""

    size = LEARNERS

    def __init__(self) -> None:
        self.jit = Axis(0, LEARNERS).jit

    def own(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return batches

    def hand_out(self, group: int, batches: tuple[Batch, ...], scalars: Any) -> tuple[Batch, ...]:
        return batches

    def keep_turn(self, running: Any) -> None: ...

    def align(self, lanes: Mapping[str, int], arrays: Callable[[], Arrays]) -> None: ...

    def wait(self) -> None: ...


def policies(case: str, algorithm: AlgorithmConfig) -> list[PolicySetup]:
    if case != "ppo with an encoder":
        return [PolicySetup("main", Network(SPEC, NetworkConfig(hidden=(8,))), algorithm, B)]
    network = Network(SPEC, NetworkConfig(hidden=(8,), encoder="eye", encoder_hidden=(8,)))
    return [PolicySetup(name, network, algorithm, B) for name in ("main", "other")]


def fragment(policy: str, seed: int) -> Fragment:
    """Most rows of the second learner's lanes are not trained on: shares of rows differ."""
    rng = np.random.default_rng(seed)
    valid = rng.random((T, B)) < np.where(np.arange(B) < B // 2, 0.95, 0.3)
    nothing = np.zeros((T, B), np.uint8)
    header = FragmentHeader(
        run="r",
        policy=policy,
        actor="0.1",
        sequence=0,
        first_step=0,
        steps=int(valid.sum()),
        version=WeightsVersion(1, 0),
        seats=("seat",),
        players=("policy",),
    )
    steps = Steps(
        observation={"": rng.standard_normal((T + 1, B, 3)).astype(np.float32) + 2},
        action=rng.integers(0, 3, (T, B)).astype(np.int32),
        reward=rng.standard_normal((T, B)).astype(np.float32),
        terminated=rng.random((T, B)) < 0.1,
        truncated=np.zeros((T, B), np.bool_),
        valid=valid,
        log_prob=np.full((T, B), -1.1, np.float32),
        seat=nothing,
        player=nothing,
        behind=nothing,
    )
    return Fragment(header, steps)


def of_whole(kind: str, order: np.ndarray) -> np.ndarray:
    """The order by which one learner takes the rows that two take together."""
    own, width = B // LEARNERS, order.shape[1] // LEARNERS
    found = np.empty_like(order)
    for learner in range(LEARNERS):
        mine = slice(learner * width, (learner + 1) * width)
        local = order[:, mine]
        step, lane = (local // own, local % own) if kind == "ppo" else (0, local)
        found[:, mine] = step * B + learner * own + lane
    return found


def compare(case: str) -> dict[str, Any]:
    algorithm = MODELS[CASES[case]["kind"]](**CASES[case])
    setups = policies(case, algorithm)
    crew, alone = Trainer(setups, T, 0, BothHere()), Trainer(setups, T, 0)
    played = {setup.name: [fragment(setup.name, i)] for i, setup in enumerate(setups)}
    gaps, told = {}, []
    for _ in range(3):
        for ours, theirs in zip(crew._groups, alone._groups, strict=True):
            theirs._orders = {n: of_whole(algorithm.kind, o) for n, o in ours._orders.items()}
        together, single = crew.update(played, 0.0), alone.update(played, 0.0)
        told.append(single["main"])
        for policy, values in single.items():
            for name, value in values.items():
                gap = abs(value - together[policy][name]) / max(1.0, abs(value))
                gaps[f"metric {name}"] = max(gap, gaps.get(f"metric {name}", 0.0))
    saved = alone.save()
    for name, array in crew.save().items():
        if "learner." not in name:
            gaps[name] = float(np.abs(array - saved[name]).max())
    steps = len(alone._groups[0]._orders["main"])
    return {"gaps": gaps, "last": told[-1], "all_steps": steps}


if __name__ == "__main__":
    assert len(jax.devices()) == LEARNERS
    print(json.dumps({case: compare(case) for case in sys.argv[1:] or CASES}))
