"""How much faster two learners with a thread each train than one, on an image policy.

    python benchmarks/learner_group.py [--updates 6] [--rounds 3] [--learners 2] [--json]

Made-up frames, and no actors: what is measured is the learners' turn, from fragments at hand to the
next weights, with what a leader hands to its followers over their lines. One learner and a crew of
them take turns in one run, each in processes of their own, so that both see the same machine; the
ratio is that of the medians. It cannot be above the number of cores that are free.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from rookery.bus.open import open_bus
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.learner.crew import Bond, answer, call
from rookery.learner.generations import claim
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader
from rookery.messages.steps import Steps
from rookery.spaces import Categorical, Leaf, SeatSpec
from rookery.worker.xla import prepare_xla

FRAME = (84, 84, 4)
IMAGES = SeatSpec((Leaf("", "image", FRAME, "uint8"),), Categorical(6))
SLOTS, STEPS = 16, 32
HERE = "127.0.0.1"
PROMISED = 1.5  # of two learners, on two free cores


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--updates", type=int, default=6, help="that are timed in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--as", dest="role", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        index, size, bus = arguments.role
        work(int(index), int(size), bus, arguments.updates)
        return
    rates: dict[int, list[float]] = {1: [], arguments.learners: []}
    for _ in range(arguments.rounds):
        for size, found in rates.items():
            found.append(measure(size, arguments.updates))
    one, several = (statistics.median(found) for found in rates.values())
    ratio = several / one
    row = {
        "one learner, samples/s": one,
        f"{arguments.learners} learners, samples/s": several,
        "ratio": ratio,
    }
    if arguments.json:
        print(json.dumps(row))
    else:
        for name, figure in row.items():
            print(f"{name:32}{figure:>12,.2f}")
    raise SystemExit(ratio < PROMISED)


def measure(size: int, updates: int) -> float:
    """Samples a second of a crew of this size."""
    with tempfile.TemporaryDirectory() as directory:
        bus = f"sqlite:{Path(directory) / 'bus.sqlite'}"
        own = [sys.executable, __file__, "--updates", str(updates), "--as"]
        processes = [
            subprocess.Popen(
                [*own, str(index), str(size), bus], stdout=subprocess.PIPE, env={**os.environ}
            )
            for index in range(size)
        ]
        try:
            said = [process.communicate(timeout=600)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()
    if any(process.returncode for process in processes):
        sys.exit("a learner failed")
    return float(said[0].splitlines()[-1])  # gloo says something before


def work(index: int, size: int, place: str, updates: int) -> None:
    """One learner's process; the leader prints samples a second."""
    prepare_xla(threads=1, device="cpu")
    from rookery.algorithms.networks import Network
    from rookery.algorithms.policies import PolicySetup
    from rookery.learner.collective import Axis, meet, part
    from rookery.learner.follower import compute
    from rookery.learner.leader import Leader
    from rookery.learner.trainer import Trainer

    config = made_config()
    policy = PolicySetup("main", Network(IMAGES, config.network), config.algorithm, SLOTS)
    if size == 1:
        print(rate(Trainer([policy], STEPS, 0), config, updates))
        return
    bus, bond = open_bus(place), Bond()
    if index:
        found = answer(bus, index, bond, lambda: False)
        assert found is not None
        line, welcome, host = found
        meet(welcome.coordinator, index, size, host)
        compute([policy], config, line, Axis(index, size))
        bond.loosen()
        part()
        return
    lines, coordinator = call(bus, "r", claim(bus, 1), size, HERE, bond, lambda: False)
    meet(coordinator, 0, size, HERE)
    leader = Leader(lines, Axis(0, size), bond)
    print(rate(Trainer([policy], STEPS, 0, leader), config, updates))
    leader.dismiss()


def rate(trainer: Any, config: RunConfig, updates: int) -> float:
    trainer.compile()
    fragment = made_fragment()
    trainer.update({"main": [fragment]}, 0.0)
    began = time.perf_counter()
    for _ in range(updates):
        trainer.update({"main": [fragment]}, 0.0)
        trainer.acting_arrays()
    return updates * config.batch_rows / (time.perf_counter() - began)


def made_config() -> RunConfig:
    return build(
        {
            "environment": {"id": "benchmark"},
            "algorithm": {"kind": "ppo", "minibatch_size": 256, "epochs": 1},
            "actors": {"envs_per_actor": SLOTS, "rollout_steps": STEPS},
        }
    )


def made_fragment() -> Fragment:
    rng = np.random.default_rng(0)
    nothing = np.zeros((STEPS, SLOTS), np.uint8)
    header = FragmentHeader(
        run="r",
        policy="main",
        actor="0.1",
        sequence=0,
        first_step=0,
        steps=STEPS * SLOTS,
        version=WeightsVersion(1, 0),
        seats=("player_0",),
        players=("policy",),
    )
    steps = Steps(
        observation={"": rng.integers(0, 256, (STEPS + 1, SLOTS, *FRAME), np.uint8)},
        action=rng.integers(0, 6, (STEPS, SLOTS)).astype(np.int32),
        reward=np.ones((STEPS, SLOTS), np.float32),
        terminated=rng.random((STEPS, SLOTS)) < 0.02,
        truncated=np.zeros((STEPS, SLOTS), np.bool_),
        valid=np.ones((STEPS, SLOTS), np.bool_),
        log_prob=np.full((STEPS, SLOTS), -1.79, np.float32),
        seat=nothing,
        player=nothing,
        behind=nothing,
    )
    return Fragment(header, steps)


if __name__ == "__main__":
    main()
