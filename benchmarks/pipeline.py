"""How much of the learner's speed a whole run reaches.

    python benchmarks/pipeline.py [--repeats 3] [--steps 2_000_000] [--json]

CartPole-v1 with its defaults and one actor: actor and learner have a core each. Two are measured in
turns, one at a time, in processes of their own: the learner's turn of `learner.py` for the default
batch, then `rookery train`. The ratio of the medians should be at least 0.85.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

DEFAULT_BATCH = "ppo 128 x 32, minibatch 512"
PROMISED = 0.85


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2_000_000, help="of each run")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    alone: list[float] = []
    trained: list[float] = []
    with tempfile.TemporaryDirectory(prefix="rookery-pipeline-") as home:
        train(home, 50_000, 0)  # fills the compile cache
        for seed in range(1, arguments.repeats + 1):
            alone.append(learner_steps_per_s())
            trained.append(train(home, arguments.steps, seed))
    ratio = median(trained) / median(alone)
    if arguments.json:
        print(json.dumps({"learner_alone": alone, "one_actor": trained, "ratio": ratio}))
        return
    for name, figures in (("learner alone, steps/s", alone), ("one actor, steps/s", trained)):
        each = "  ".join(f"{figure:>10,.0f}" for figure in figures)
        print(f"{name:28}{median(figures):>12,.0f}   {each}")
    print(f"{'ratio':28}{ratio:>12.2f}   at least {PROMISED}")


def learner_steps_per_s() -> float:
    script = Path(__file__).with_name("learner.py")
    rows = output([str(script), "--updates", "100", "--only", DEFAULT_BATCH], {})
    return float(rows[DEFAULT_BATCH]["steps/s"])


def train(home: str, steps: int, seed: int) -> float:
    words = ["-m", "rookery", "train", "CartPole-v1", "--steps", str(steps), "--seed", str(seed)]
    return float(output(words, {"ROOKERY_HOME": home})["steady_steps_per_s"])


def output(words: list[str], environment: dict[str, str]) -> dict[str, Any]:
    """What a Python process prints as JSON."""
    done = subprocess.run(
        [sys.executable, *words, "--json"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
