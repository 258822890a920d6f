"""Rookery's EnvRunner.sample() against RLlib's SingleAgentEnvRunner.sample(): CartPole-v1, steps/s.

    python benchmarks/ray_env_runners.py [--repeats 3] [--json]

Both play in one process without a cluster, with a network of two layers of 64 and one thread, one
process at a time and in turns: as many environments, as many steps a call, a new seed every turn.
RLlib (`rllib_env_runner.py`) is installed into an environment of its own, as `versus.py` does it.

The exit code is 0 when everything ran, whatever the ratios; 1, with one line, when it did not.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from versus import TORCH, BenchmarkError, Finished, ensure_python, positive, run, say

HERE = Path(__file__).resolve().parent
REQUIREMENTS = (TORCH, "ray[rllib]==2.60.0")
ENVIRONMENTS = (1, 64)
CALL_ROWS = 64  # rows of every environment in one call of sample()
SAMPLED_S = 5.0  # about as long as each side samples
FIRST_STEPS = 5_000  # to see how fast a side is
PROMISED = 5.0  # with 64 environments
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Row:
    """One number of environments: steps/s of each side, in each repeat."""

    environments: int
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> float:
        return median(self.ours) / median(self.theirs)


# --- both sides ---------------------------------------------------------------------------------


def ours(environments: int, steps: int, call_steps: int, seed: int) -> None:
    """Our half, in a process of its own; one JSON line on stdout."""
    from rookery.ray import EnvRunner

    network = {"hidden": [64, 64], "activation": "tanh", "normalize_observations": False}
    config = {
        "environment": {"id": "CartPole-v1"},
        "actors": {"envs_per_actor": environments, "rollout_steps": CALL_ROWS},
        "network": network,
    }
    runner = EnvRunner(config, seed=seed)
    runner.sample(num_steps=call_steps)
    done, began = 0, time.perf_counter()
    while done < steps:
        done += runner.sample(num_steps=call_steps).steps
    elapsed_s = time.perf_counter() - began
    runner.stop()
    print(json.dumps({"steps_per_s": done / elapsed_s}))


def words(environments: int, steps: int, seed: int) -> list[str]:
    found = ["--environments", str(environments), "--steps", str(steps)]
    return [*found, "--call-steps", str(environments * CALL_ROWS), "--seed", str(seed)]


def finished(name: str, command: Sequence[str], environments: int, seed: int) -> Finished:
    """A side that has sampled for some seconds: first shortly, to see how many steps those are."""
    env = {**os.environ, **ONE_THREAD, "RAY_USAGE_STATS_ENABLED": "0"}
    first = run(f"{name}, warm-up", [*command, *words(environments, FIRST_STEPS, seed)], env)
    steps = max(FIRST_STEPS, int(first.number("steps_per_s") * SAMPLED_S))
    return run(name, [*command, *words(environments, steps, seed)], env)


def measure(python: Path, repeats: int, seed: int) -> tuple[list[Row], dict[str, str]]:
    mine = [sys.executable, str(HERE / "ray_env_runners.py"), "--ours"]
    theirs = [str(python), str(HERE / "rllib_env_runner.py")]
    versions = {"python": platform.python_version()}
    rows = []
    for environments in ENVIRONMENTS:
        values: list[tuple[float, float]] = []
        for turn in range(repeats):
            name = f"{environments} environments, seed {seed + turn}"
            our_half = finished(f"rookery, {name}", mine, environments, seed + turn)
            their_half = finished(f"rllib, {name}", theirs, environments, seed + turn)
            values.append((our_half.number("steps_per_s"), their_half.number("steps_per_s")))
            versions |= their_half.json()["versions"]
        our_values, their_values = zip(*values, strict=True)
        rows.append(Row(environments, our_values, their_values))
    return rows, versions


# --- what is said -------------------------------------------------------------------------------


def print_table(rows: Sequence[Row], versions: dict[str, str]) -> None:
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"sample() on CartPole-v1, {os.cpu_count()} cores, {said}\n")
    print(
        f"{'environments':>12}{'rllib, steps/s':>18}{'rookery, steps/s':>18}{'ratio':>8}   promised"
    )
    for row in rows:
        promise = ""
        if row.environments == ENVIRONMENTS[-1]:
            promise = f">= {PROMISED:g} {'met' if row.ratio >= PROMISED else 'NOT met'}"
        figures = f"{median(row.theirs):>18,.0f}{median(row.ours):>18,.0f}{row.ratio:>8.1f}"
        print(f"{row.environments:>12}{figures}   {promise}".rstrip())


def as_json(rows: Sequence[Row], versions: dict[str, str]) -> str:
    found = {
        str(row.environments): {"rookery": row.ours, "rllib": row.theirs, "ratio": row.ratio}
        for row in rows
    }
    told = {"versions": versions, "cores": os.cpu_count(), "environments": found}
    return json.dumps({**told, "promised": PROMISED}, indent=2)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        epilog="Needs an otherwise idle machine: nothing else should run beside it.",
    )
    parser.add_argument("--repeats", type=positive, default=3, help="turns of each (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="of the first turn, then one more each")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    for hidden in ("--environments", "--steps", "--call-steps"):
        parser.add_argument(hidden, type=positive, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ours:
        ours(args.environments, args.steps, args.call_steps, args.seed)
        return 0
    try:
        python = ensure_python("rllib-venv", REQUIREMENTS)
        rows, versions = measure(python, args.repeats, args.seed)
    except (BenchmarkError, OSError) as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    if args.json:
        print(as_json(rows, versions))
    else:
        print_table(rows, versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
