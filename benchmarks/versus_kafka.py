"""Kafka against the embedded bus: CartPole-v1 with two actors, alone and two runs at once.

    python benchmarks/versus.py --bus kafka [--repeats N]

A real broker runs on the same machine and takes its share of it. Every repeat trains on both buses,
neighbours in time; the figures are steps/s after the first update, as `train --json` reports them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from versus import Rookery, say

from tools.kafka.broker import Cluster

WORDS = ("--actors", "2")


def compare(home: Path, repeats: int, seed: int, steps: int) -> dict[str, list[float]]:
    """Steps/s of each contender, a value a repeat."""
    rookery = Rookery(home)
    figures: dict[str, list[float]] = {"sqlite": [], "kafka": [], "two at once": []}
    with Cluster(directory=Path(tempfile.mkdtemp(dir=home))) as cluster:
        kafka = (*WORDS, "--bus", f"kafka://{cluster.servers}")
        say("warming up both, untimed")
        for words in (WORDS, kafka):
            rookery.steps_per_s("warm-up", steps // 4, seed, words)
        for number in range(seed, seed + repeats):
            for name, words in (("sqlite", WORDS), ("kafka", kafka)):
                figures[name].append(rookery.steps_per_s(name, steps, number, words))
            figures["two at once"] += two_at_once(rookery, steps // 2, number, kafka)
    return figures


def two_at_once(rookery: Rookery, steps: int, seed: int, words: Sequence[str]) -> list[float]:
    """Each of two runs on the same topics."""
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(rookery.steps_per_s, f"one of two ({i})", steps, seed + 100 * i, words)
            for i in range(2)
        ]
        return [run.result() for run in runs]


def report(figures: dict[str, list[float]], as_json: bool) -> None:
    medians = {name: median(values) for name, values in figures.items()}
    ratios = {
        "kafka / sqlite": (medians["kafka"] / medians["sqlite"], 0.85),
        "the slower of two at once / alone": (
            min(figures["two at once"]) / medians["kafka"],
            0.4,
        ),
    }
    if as_json:
        print(
            json.dumps({"steps_per_s": figures, "ratios": {k: v for k, (v, _) in ratios.items()}})
        )
        return
    for name, values in figures.items():
        shown = "  ".join(f"{value:,.0f}" for value in values)
        print(f"{name:<14}{medians[name]:>12,.0f} steps/s   ({shown})")
    for name, (value, target) in ratios.items():
        met = "met" if value >= target else "NOT MET"
        print(f"{name:<36}{value:>6.2f}   at least {target:g}: {met}")
