"""Sweeps: TPE against random search at equal CPU seconds, and what a sweep costs beyond its trials.

    python benchmarks/tuning.py [--environments CartPole-v1] [--seeds 3] [--trials 30] [--steps N]

For each environment and seed both samplers search the same space, one run at a time. What is
compared is the best value that each had found when the one that was done first had spent its last
CPU second; then each one's best config is trained anew with seeds that no trial had, which is what
counts: the best of many trials has also been lucky. The overhead is the share of all CPU seconds
that the sweep's own process took, from its first proposal to its last result.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import rookery
from rookery.control.home import Home
from rookery.tuning.spec import SweepSpec, read_settings
from rookery.tuning.sweep import Best, begin
from rookery.tuning.trials import Trial
from rookery.worker.xla import prepare_xla

STEPS = {
    "CartPole-v1": 30_000,
    "Acrobot-v1": 60_000,
    "Pendulum-v1": 100_000,
    "FrozenLake-v1": 60_000,
}
SEARCH = {
    "algorithm.learning_rate": "log:1e-5..1e-1",
    "algorithm.gamma": "0.8..0.999",
    "algorithm.entropy_coef": "log:1e-5..1e-1",
    "algorithm.epochs": "int:1..10",
    "network.hidden": [[16], [64, 64], [256, 256]],
}
PROMISED = 0.03  # of the CPU, beyond the trials
FRESH_SEED = 1000  # of training the best anew


@dataclass
class Searched:
    """One sweep: how good its best was after how many CPU seconds."""

    best: Best
    overhead: float
    cpu_s: float = 0.0
    curve: list[tuple[float, float]] = field(default_factory=list)

    def at(self, cpu_s: float) -> float:
        """The best that was known by then."""
        return max((value for spent, value in self.curve if spent <= cpu_s), default=float("-inf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environments", nargs="+", choices=list(STEPS), default=list(STEPS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--steps", type=int, help="of each run; default: by environment")
    parser.add_argument("--again", type=int, default=3, help="trainings of each best config")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    prepare_xla(1)
    rows = [
        compare(environment, seed, arguments)
        for environment in arguments.environments
        for seed in range(arguments.seeds)
    ]
    worst = max(row["overhead"] for row in rows)
    if arguments.json:
        print(json.dumps({"rows": rows, "overhead": worst}))
    else:
        print(f"overhead at most {worst:.2%} of the CPU (promised: {PROMISED:.0%})")
    raise SystemExit(worst > PROMISED)


def compare(environment: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Both samplers on one environment and seed."""
    with tempfile.TemporaryDirectory() as place:
        found = {
            sampler: search(Path(place) / sampler, environment, seed, sampler, arguments)
            for sampler in ("tpe", "random")
        }
        budget = min(each.cpu_s for each in found.values())
        row: dict[str, Any] = {"environment": environment, "seed": seed, "cpu_s": budget}
        for sampler, each in found.items():
            row[sampler] = each.at(budget)
            row[f"{sampler}_again"] = again(Path(place) / "again", each.best, arguments)
        row["overhead"] = max(each.overhead for each in found.values())
    if not arguments.json:
        shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
        print("  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)
    return row


def search(
    place: Path, environment: str, seed: int, sampler: str, arguments: argparse.Namespace
) -> Searched:
    home = Home(place)
    base = {
        "environment": {"id": environment},
        "stop": {"steps": arguments.steps or STEPS[environment]},
        "launcher": "inline",
        "seed": seed,
    }
    asked = {"search": SEARCH, "trials": arguments.trials, "sampler": sampler, "jobs": 1}
    sweep = begin(home, base, read_settings({**asked, "episodes": arguments.episodes}))
    began, curve, told = spent(), list[tuple[float, float]](), set[int]()

    def note(spec: SweepSpec, trials: list[Trial]) -> None:
        for trial in trials:
            if trial.value is not None and trial.number not in told:
                told.add(trial.number)
                curve.append((sum(spent()) - sum(began), trial.value))

    sweep.carry(note)
    own, children = (now - before for now, before in zip(spent(), began, strict=True))
    best = sweep.best
    home.close()
    return Searched(best, own / (own + children), own + children, curve)


def spent() -> tuple[float, float]:
    """CPU seconds of this process, and of all its children that have ended."""
    found = []
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        found.append(usage.ru_utime + usage.ru_stime)
    return found[0], found[1]


def again(place: Path, best: Best, arguments: argparse.Namespace) -> float:
    """The mean return of the best config, trained with fresh seeds and played on fresh episodes."""
    values = []
    for number in range(arguments.again):
        config = best.config.model_dump(mode="json") | {"seed": FRESH_SEED + number}
        environment = config["environment"]["id"]
        run = rookery.train(environment, config=config, home=place, quiet=True)
        values.append(run.evaluate(arguments.episodes)["greedy"]["mean"])
    return mean(values) if values else float("nan")


if __name__ == "__main__":
    main()
