"""How fast connect-four self-play trains: Pgx against PettingZoo, and few against many opponents.

    python benchmarks/selfplay.py [--seconds 60] [--repeats 3] [--json]

Each figure is `steady_steps_per_s` of `rookery train --json`: agent steps trained a second,
compilation left out. The network and every hyperparameter are the same throughout: the tuned
defaults of connect four. Printed are medians and two ratios with what we promise: Pgx over
PettingZoo at least 8, and, against a league with four snapshots live, at least 0.6 of the rate with
one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

AGAINST_LEAGUE = ("--seats", "player_0=main", "player_1=league:main")
CASES = {
    "pgx": ("pgx:connect_four", "--self-play"),
    "pettingzoo": ("pettingzoo:connect_four_v3", "--self-play"),
    "one opponent": ("pgx:connect_four", *AGAINST_LEAGUE, "--set", "actors.opponents_per_actor=1"),
    "four opponents": (
        "pgx:connect_four",
        *AGAINST_LEAGUE,
        "--set",
        "actors.opponents_per_actor=4",
    ),
}
RATIOS = {  # name -> (over, under, at least)
    "pgx / pettingzoo": ("pgx", "pettingzoo", 8.0),
    "four opponents / one": ("four opponents", "one opponent", 0.6),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, each time")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for repeat in range(arguments.repeats):
        for name in CASES:  # in turns, so that a slow spell of the machine hits all of them
            rate = steps_per_s(CASES[name], arguments.seconds, repeat)
            found[name].append(rate)
            print(f"{name:16} {rate:>12,.0f} steps/s", file=sys.stderr)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    ratios = {name: medians[over] / medians[under] for name, (over, under, _) in RATIOS.items()}
    if arguments.json:
        print(json.dumps({"steps_per_s": found, "medians": medians, "ratios": ratios}))
        return
    for name, median in medians.items():
        print(
            f"{name:24} {median:>12,.0f} steps/s   ({', '.join(f'{r:,.0f}' for r in found[name])})"
        )
    for name, ratio in ratios.items():
        print(f"{name:24} {ratio:>12.2f}           promised at least {RATIOS[name][2]:g}")


def steps_per_s(case: tuple[str, ...], seconds: float, seed: int) -> float:
    with tempfile.TemporaryDirectory() as home:
        command = [
            *(sys.executable, "-m", "rookery", "train", *case),
            *("--minutes", str(seconds / 60), "--seed", str(seed), "--json"),
        ]
        done = subprocess.run(
            command,
            env={**os.environ, "ROOKERY_HOME": home},
            capture_output=True,
            text=True,
            timeout=seconds * 3 + 300,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip().splitlines()[-1]}")
    return float(json.loads(done.stdout)["steady_steps_per_s"])


if __name__ == "__main__":
    main()
