"""Populations: PBT against as many independent runs at equal CPU seconds.

    python benchmarks/population.py [--environment LunarLander-v3] [--tries 3] [--members 8]

Each try breeds a population and then trains as many runs with values drawn at random from the same
space, each for so many steps that all of them take the CPU seconds that the population took with
its judging and forking; what a run costs is measured before. The winner of each side, as its own
judging has it, plays fresh episodes that neither side has seen. CPU seconds are those of all
processes, so other work on the machine counts for nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tuning import spent

import rookery
from rookery.control.home import Home
from rookery.tuning.spec import read_settings
from rookery.tuning.sweep import Sweep, begin
from rookery.worker.xla import prepare_xla

SEARCH = {
    "algorithm.learning_rate": "log:1e-5..1e-2",
    "algorithm.entropy_coef": "log:1e-4..3e-2",
}
FRESH, FRESH_SEED = 200, 77  # episodes of the winners


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--environment", default="LunarLander-v3")
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--generations", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400_000, help="of each member")
    parser.add_argument("--episodes", type=int, default=20, help="that judge each generation")
    parser.add_argument("--jobs", type=int, help="runs at once; default: as there are CPUs")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    prepare_xla(1)
    with tempfile.TemporaryDirectory() as place:
        price = Price(Path(place) / "price", arguments)
        rows = [compare(Path(place), seed, price, arguments) for seed in range(arguments.tries)]
    won = sum(row["pbt"] >= row["independent"] for row in rows)
    if arguments.json:
        print(json.dumps({"rows": rows, "won": won}))
    else:
        print(f"PBT ends no lower in {won} of {len(rows)} tries")


class Price:
    """CPU seconds of an independent run of so many steps, judging included."""

    def __init__(self, place: Path, arguments: argparse.Namespace) -> None:
        self._steps = steps = arguments.steps
        once, twice = (searched(place, n, 0, "none", 1, arguments)[1] for n in (steps, 2 * steps))
        self._once, self._a_step = once, (twice - once) / steps

    def steps_for(self, cpu_s: float) -> int:
        return self._steps + round((cpu_s - self._once) / self._a_step)


def compare(place: Path, seed: int, price: Price, arguments: argparse.Namespace) -> dict[str, Any]:
    size = arguments.members
    bred, bred_s = searched(place / f"{seed}", arguments.steps, seed, "pbt", size, arguments)
    steps = price.steps_for(bred_s / size)
    alone, alone_s = searched(place / f"{seed}", steps, seed, "none", size, arguments)
    row = {
        "seed": seed,
        "pbt": fresh(place / f"{seed}", bred),
        "independent": fresh(place / f"{seed}", alone),
        "pbt_cpu_s": round(bred_s),
        "independent_cpu_s": round(alone_s),
        "pbt_steps": arguments.steps,
        "independent_steps": steps,
        "forks": len({s.run for t in bred.trials for s in t.stages if s.parent}),
        "winner": {k: f"{v:.2g}" for k, v in bred.best.trial.values.items()},
        "lineage": [s.member for s in bred.best.trial.stages],
    }
    if not arguments.json:
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    return row


def searched(
    place: Path, steps: int, seed: int, scheduler: str, trials: int, arguments: argparse.Namespace
) -> tuple[Sweep, float]:
    """A sweep to its end, and the CPU seconds that it took."""
    base = {
        "environment": {"id": arguments.environment},
        "stop": {"steps": steps},
        "launcher": "inline",
        "seed": seed,
    }
    asked = {
        "search": SEARCH,
        "trials": trials,
        "sampler": "random",
        "scheduler": scheduler,
        "generations": arguments.generations,
        "episodes": arguments.episodes,
        "jobs": arguments.jobs,
    }
    before = sum(spent())
    sweep = begin(Home(place), base, read_settings(asked))
    sweep.carry()
    return sweep, sum(spent()) - before


def fresh(place: Path, sweep: Sweep) -> float:
    """How well its best run plays, greedy, in episodes that nobody chose it by."""
    run = rookery.load(sweep.best.runs[0], home=place)
    return round(float(run.evaluate(FRESH, FRESH_SEED)["greedy"]["mean"]), 1)


if __name__ == "__main__":
    main()
