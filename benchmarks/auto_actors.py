"""What `--actors auto` comes to, against fixed numbers of actors.

    python benchmarks/auto_actors.py [--seconds 16] [--counts 1 2 4 8 16] [--only balanced]

Real processes; each figure is the rate of the second half of a run, of those with `auto` that of
the second half of one eight times as long. Promised is 0.8 of the best fixed number.

- learner: CartPole-v1, where one actor plays faster than the learner trains;
- balanced: steps of 1 ms, two environments an actor;
- actors: steps of 5 ms, one environment an actor: the more, the better.
"""

from __future__ import annotations

import argparse
import json

from stragglers import SMALL, measure

PROMISED = 0.8
UNEVEN = ["stragglers:UnevenEnv", *SMALL]
CASES = {
    "learner": ["CartPole-v1"],
    "balanced": [
        *UNEVEN,
        "--envs-per-actor",
        "2",
        "--env.step_s",
        "0.001",
        "--env.slow_s",
        "0.001",
    ],
    "actors": [*UNEVEN, "--env.step_s", "0.005", "--env.slow_s", "0.005"],
}
LONGER = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=16.0, help="of each run of a fixed number")
    parser.add_argument("--counts", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {}
    for case in arguments.only:
        rates = {
            count: measure(CASES[case], count, arguments.seconds) for count in arguments.counts
        }
        auto = measure(CASES[case], "auto", LONGER * arguments.seconds)
        ratio = auto / max(rates.values())
        found[case] = {"fixed": rates, "auto": auto, "ratio": ratio}
        if not arguments.json:
            shown = "  ".join(f"{count}: {rate:,.0f}" for count, rate in rates.items())
            print(f"{case:9} {shown}  auto: {auto:,.0f} steps/s, {ratio:.2f} (promised {PROMISED})")
    if arguments.json:
        print(json.dumps(found))
    raise SystemExit(min(each["ratio"] for each in found.values()) < PROMISED)


if __name__ == "__main__":
    main()
