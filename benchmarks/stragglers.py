"""What one slow actor, many actors, and a change of their number cost a run.

    python benchmarks/stragglers.py [--seconds 20] [--only slow many scaled] [--json]

Real processes; each figure is the rate of the second half of a run, and only ratios within one
row are to be compared:

- slow: three actors with steps of 1 ms and a fourth with steps of 20 ms, against the three alone;
- many: 16 actors on CartPole-v1, against 2;
- scaled: `rookery scale --actors 8` from 1, steps of 5 ms, against a run that began with 8.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rookery.bus import EARLIEST
from rookery.control.home import Home
from rookery.messages import METRICS_TRAINING, TrainingMetrics, decode_or_none
from rookery.testing.envs import CountingEnv, Step

PROMISED = {"slow": 0.9, "many": 0.8, "scaled": 0.85}
SMALL = ["--envs-per-actor", "1", "--set", "actors.rollout_steps=32"]


class UnevenEnv(CountingEnv):
    """Sleeps at each step, longer in actors from the fourth on.

    Time that an actor has to wait is lost to it: an environment that caught up on it, as PacedEnv
    does, would hide the very stalls that are looked for.
    """

    def __init__(self, step_s: float = 0.001, slow_s: float = 0.02) -> None:
        super().__init__(length=50)
        index = int(sys.argv[sys.argv.index("--index") + 1]) if "--index" in sys.argv else 0
        self._sleep_s = slow_s if index >= 3 else step_s

    def step(self, action: np.int64) -> Step:
        time.sleep(self._sleep_s)
        return super().step(action)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run")
    parser.add_argument("--only", nargs="+", choices=list(PROMISED), default=list(PROMISED))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = {}
    for algorithm in ("ppo", "impala"):
        for case in arguments.only:
            rate, reference = rates(case, algorithm, arguments.seconds)
            ratio = rate / max(reference, 1e-9)
            row = {"case": case, "rate": rate, "of": reference, "ratio": ratio}
            found[f"{algorithm}, {case}"] = row
            if not arguments.json:
                text = f"{rate:>10,.0f} of{reference:>10,.0f} steps/s{ratio:>7.2f}"
                print(f"{algorithm:8}{case:8}{text}, promised {PROMISED[case]}", flush=True)
    if arguments.json:
        print(json.dumps(found))
    raise SystemExit(any(row["ratio"] < PROMISED[row["case"]] for row in found.values()))


def rates(case: str, algorithm: str, seconds: float) -> tuple[float, float]:
    """Of what is measured, and of what it is measured by."""
    uneven = ["stragglers:UnevenEnv", "--algorithm", algorithm, *SMALL]
    cart = ["CartPole-v1", "--algorithm", algorithm]
    if case == "slow":
        return measure(uneven, 4, seconds), measure(uneven, 3, seconds)
    if case == "many":
        return measure(cart, 16, 2 * seconds), measure(cart, 2, 2 * seconds)
    even = [*uneven, "--env.step_s", "0.005", "--env.slow_s", "0.005"]
    return measure(even, 1, 2 * seconds, scale_to=8), measure(even, 8, 2 * seconds)


def measure(words: list[str], actors: int | str, seconds: float, scale_to: int = 0) -> float:
    """Steps a second in the second half of a run of this length after its first update."""
    with tempfile.TemporaryDirectory(prefix="rookery-stragglers-") as place:
        environment = {**os.environ, "ROOKERY_HOME": place}
        command = [sys.executable, "-m", "rookery"]
        process = subprocess.Popen(
            [*command, "train", *words, "--actors", str(actors), "--steps", "1_000_000_000"],
            cwd=Path(__file__).parent,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
        try:
            home = Home(Path(place))
            wait_for(home, process)
            if scale_to:
                scaled = [*command, "scale", "last", "--actors", str(scale_to)]
                subprocess.run(scaled, env=environment, check=True, stdout=subprocess.DEVNULL)
            time.sleep(seconds)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        return rate_of_second_half(history(home), seconds)


def wait_for(home: Home, process: subprocess.Popen[bytes]) -> None:
    """Until something was trained."""
    while not history(home):
        if process.poll() is not None:
            raise SystemExit("the run ended by itself")
        time.sleep(0.5)


def history(home: Home) -> list[TrainingMetrics]:
    """Of the only run in a home, from its first update on."""
    found: list[TrainingMetrics] = []
    for state in home.states().values():
        bus = home.read_run_bus(state)
        if bus is None:
            continue
        subscription = bus.subscribe(METRICS_TRAINING, EARLIEST)
        while records := subscription.poll(0.0, limit=4096):
            told = [decode_or_none(record.payload, TrainingMetrics) for record in records]
            found += [metrics for metrics in told if metrics is not None and metrics.updates]
        bus.close()
    return found


def rate_of_second_half(found: list[TrainingMetrics], seconds: float) -> float:
    last = found[-1]
    half = next(metrics for metrics in found if metrics.train_s >= last.train_s - seconds / 2)
    return (last.env_steps - half.env_steps) / max(last.train_s - half.train_s, 1e-9)


if __name__ == "__main__":
    main()
