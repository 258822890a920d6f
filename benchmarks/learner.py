"""How long one update takes, and where the rest of a learner's turn goes.

    python benchmarks/learner.py [--updates 50] [--json]

Every row is measured in the same run on made-up fragments: the compiled update alone, and beside it
what the learner does around it (decode a fragment, encode weights, make the next permutation). The
last column is the ratio of the whole turn to the update alone: 1 would be a perfect learner.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader, decode_fragment, encode_fragment
from rookery.messages.steps import Steps
from rookery.messages.weights import Weights, WeightsHeader, encode_weights
from rookery.spaces import Categorical, Leaf, SeatSpec
from rookery.worker.xla import prepare_xla

CARTPOLE = SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))
SHAPES = {  # algorithm, slots, T, minibatch or minibatches, epochs
    "ppo 128 x 32, minibatch 512": ("ppo", 128, 32, {"minibatch_size": 512, "epochs": 4}),
    "ppo 256 x 32, minibatch 1024": ("ppo", 256, 32, {"minibatch_size": 1024, "epochs": 4}),
    "ppo 64 x 64, minibatch 1024, 6 epochs": (
        "ppo",
        64,
        64,
        {"minibatch_size": 1024, "epochs": 6},
    ),
    "impala 64 x 32, 4 minibatches": ("impala", 64, 32, {"minibatches": 4, "epochs": 4}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=50)
    parser.add_argument("--only", choices=SHAPES, help="one row alone")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    prepare_xla(threads=1)
    chosen = [arguments.only] if arguments.only else list(SHAPES)
    rows = {name: measure(SHAPES[name], arguments.updates) for name in chosen}
    if arguments.json:
        print(json.dumps(rows))
        return
    columns = ("steps/s", "update ms", "decode ms", "encode ms", "permute ms", "turn / update")
    print(f"{'':40}" + "".join(f"{column:>15}" for column in columns))
    for name, row in rows.items():
        print(f"{name:40}" + "".join(f"{row[column]:>15,.2f}" for column in columns))


def measure(shape: tuple[str, int, int, dict[str, int]], updates: int) -> dict[str, float]:
    from rookery.algorithms.networks import Network
    from rookery.algorithms.policies import PolicySetup
    from rookery.learner.trainer import Trainer

    kind, slots, steps, options = shape
    config = build(
        {
            "environment": {"id": "benchmark"},
            "algorithm": {"kind": kind, **options},
            "actors": {"envs_per_actor": slots, "rollout_steps": steps},
        }
    )
    network = Network(CARTPOLE, config.network)
    policy = PolicySetup("main", network, config.algorithm, config.batch_lanes)
    trainer = Trainer([policy], steps, config.seed)
    trainer.compile()
    fragment = make_fragment(config)
    payload = encode_fragment(fragment)
    header = WeightsHeader(run="r", policy="main", version=WeightsVersion(1, 1), env_steps=0)
    trainer.update({"main": [fragment]}, 0.0)
    turns = median_ms(lambda: _turn(trainer, payload, header), updates)
    update = median_ms(lambda: trainer.update({"main": [fragment]}, 0.0), updates)
    permute = median_ms(lambda: trainer._groups[0].permute({"main": None}), updates)
    return {
        "steps/s": 1000 * slots * steps / turns,
        "update ms": update,
        "decode ms": median_ms(lambda: decode_fragment(payload), updates),
        "encode ms": median_ms(
            lambda: encode_weights(Weights(header, trainer.acting_arrays()["main"])), updates
        ),
        "permute ms": permute,
        "turn / update": turns / update,
    }


def _turn(trainer: Any, payload: bytes, header: WeightsHeader) -> None:
    trainer.update({"main": [decode_fragment(payload)]}, 0.0)
    encode_weights(Weights(header, trainer.acting_arrays()["main"]))


def median_ms(work: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return 1000 * statistics.median(taken)


def make_fragment(config: RunConfig) -> Fragment:
    steps, lanes = config.actors.rollout_steps, config.actors.envs_per_actor
    rng = np.random.default_rng(0)
    terminated = rng.random((steps, lanes)) < 0.02
    return Fragment(
        header=FragmentHeader(
            run="r",
            policy="main",
            actor="0.1",
            sequence=0,
            first_step=0,
            steps=steps * lanes,
            version=WeightsVersion(1, 0),
            seats=("player_0",),
            players=("policy",),
        ),
        steps=Steps(
            observation={"": rng.standard_normal((steps + 1, lanes, 4), np.float32)},
            action=rng.integers(0, 2, (steps, lanes)).astype(np.int32),
            reward=np.ones((steps, lanes), np.float32),
            terminated=terminated,
            truncated=np.zeros_like(terminated),
            valid=np.ones_like(terminated),
            log_prob=np.full((steps, lanes), -0.69, np.float32),
            seat=np.zeros((steps, lanes), np.uint8),
            player=np.zeros((steps, lanes), np.uint8),
            behind=np.zeros((steps, lanes), np.uint8),
        ),
    )


if __name__ == "__main__":
    main()
