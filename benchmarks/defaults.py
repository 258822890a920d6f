"""What untouched defaults reach: each environment trained and evaluated as a newcomer would.

    python benchmarks/defaults.py [--only PART ...] [--seeds 0 1 2] [--set KEY=VALUE ...] [--json]

Real runs of `rookery train` with nothing but a number of steps and a seed, each followed by
`rookery eval` (50 episodes or more, greedy and sampled). `--set` tries other values on all of them:
this is the sweep that the general defaults (`config/tuned.py`) were chosen by. A case is met when
the worst of its seeds reaches what is promised, greedy, and sampled play is within a quarter of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium


class ScaledCartPole(gymnasium.RewardWrapper):
    """CartPole-v1 whose rewards are of another size."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._scale = scale

    def reward(self, reward: Any) -> float:
        return float(reward) * self._scale


@dataclass(frozen=True)
class Case:
    name: str
    words: tuple[str, ...]
    steps: int
    promised: float
    scale: float = 1.0  # of the rewards
    episodes: int = 50


def scaled(scale: str) -> Case:
    words = ("defaults:ScaledCartPole", "--env.scale", scale)
    return Case(f"CartPole-v1 x {scale}", words, 200_000, 475, float(scale))


CASES = (
    Case("MountainCar-v0", ("MountainCar-v0",), 500_000, -130),
    Case("MountainCarContinuous-v0", ("MountainCarContinuous-v0",), 300_000, 85),
    # of 50 starts the best possible mean is below what is promised now and then: 7.44 for seed 2
    Case("Taxi-v4", ("Taxi-v4",), 500_000, 7.5, episodes=500),
    Case("CartPole-v1", ("CartPole-v1",), 200_000, 475),
    *(scaled(scale) for scale in ("0.001", "1", "1000")),
    Case("Acrobot-v1", ("Acrobot-v1",), 400_000, -95),
    Case("Hopper-v5", ("Hopper-v5",), 300_000, 800),
    Case("HalfCheetah-v5", ("HalfCheetah-v5",), 300_000, 1_500),
    Case("LunarLander-v3", ("LunarLander-v3",), 1_000_000, 200),
    Case("LunarLander-v3, impala", ("LunarLander-v3", "--algorithm", "impala"), 1_000_000, 100),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--jobs", type=int, default=1, help="runs at once")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chosen = [c for c in CASES if any(part in c.name for part in arguments.only)]
    found = {}
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = {
            case: [pool.submit(reached, case, seed, arguments.set) for seed in arguments.seeds]
            for case in chosen
        }
        for case, futures in results.items():
            found[case.name] = [future.result() for future in futures]
            if not arguments.json:
                print(line(case, found[case.name]), flush=True)
    if arguments.json:
        print(json.dumps(found))


def reached(case: Case, seed: int, changes: list[str]) -> tuple[float, float]:
    """Mean return of greedy and of sampled play, in the environment's own rewards."""
    with tempfile.TemporaryDirectory(prefix="rookery-defaults-") as place:
        told = [word for change in changes for word in ("--set", change)]
        wanted = ["--steps", str(case.steps), "--seed", str(seed), *told]
        run = rookery(place, "train", *case.words, *wanted)["run"]
        shown = rookery(place, "eval", run, "--episodes", str(case.episodes))
        return shown["greedy"]["mean"] / case.scale, shown["sampled"]["mean"] / case.scale


def rookery(home: str, *words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "rookery", *words, "--json"],
        cwd=home,
        env={**os.environ, "ROOKERY_HOME": home, "PYTHONPATH": str(Path(__file__).parent)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(done.stdout)


def line(case: Case, found: list[tuple[float, float]]) -> str:
    greedy = ", ".join(f"{each:,.1f}" for each, _ in found)
    sampled = ", ".join(f"{each:,.1f}" for _, each in found)
    met = all(
        each >= case.promised and abs(each - other) <= 0.25 * abs(each) for each, other in found
    )
    verdict = "met" if met else "MISSED"
    return f"{case.name:26} greedy {greedy:32} sampled {sampled:32} of {case.promised:g}: {verdict}"


if __name__ == "__main__":
    main()
