"""Sweeps by Ray Tune, on true clusters; kills and `rookery.ray.tuner` by `make soak`."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.conftest import wait_until
from tests.tuning.test_kills import check_bred, is_whole, sweep_of

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

SMALL = (
    *("--launcher", "ray", "--envs-per-actor", 8, "--set", "actors.rollout_steps=32"),
    *("--search", "algorithm.learning_rate=log:1e-5..1e-2", "network.hidden=[8]|[16]"),
)


def new(trials: int, steps: int, *options: object) -> tuple[object, ...]:
    size = ("--trials", trials, "--steps", steps, "--episodes", 5)
    return ("sweep", "CartPole-v1", *SMALL, *size, *options)


@pytest.mark.timeout(300)
def test_tune_schedules_a_sweep_on_ray(cli: Cli) -> None:
    done = cli(*new(2, 2000, "--scheduler", "asha", "--json"), timeout=280).json
    assert done["status"] == "finished"
    is_whole(cli, sweep_of(cli))
    states = cli.home.states().values()
    assert {state.config["config"]["launcher"] for state in states} == {"ray"}


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_tune_ends_runs_early_and_says_so_in_the_audit(cli: Cli) -> None:
    done = cli(*new(8, 60_000, "--scheduler", "asha", "--json"), timeout=880).json
    rows = {row["status"]: row for row in done["table"]}
    assert rows.keys() == {"done", "pruned"}
    reasons = [
        e["reason"] for e in cli("audit", rows["pruned"]["runs"][0], "--json").json["entries"]
    ]
    assert any(reason.startswith("pruned by Ray Tune at ") for reason in reasons)


TUNER = """
    import rookery.ray
    from ray.tune.schedulers import ASHAScheduler

    if __name__ == "__main__":
        tuner = rookery.ray.tuner(
            "CartPole-v1",
            search={"algorithm.learning_rate": "log:1e-5..1e-2"},
            scheduler=ASHAScheduler(time_attr="env_steps", max_t=8000, grace_period=1000),
            trials=4, steps=8000, episodes=5, envs_per_actor=8, jobs=1,
        )
        found = tuner.fit()
        assert len(found) == 4 and not found.errors
        sweep = rookery.load_sweep()
        best = found.get_best_result()
        assert sweep.status == "finished" and best.config["trial"] == sweep.best.trial.number
        assert best.metrics["return"] == sweep.best.value
        values = sweep.best.trial.values["algorithm.learning_rate"]
        assert best.config["algorithm.learning_rate"] == values
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_tuner_is_ray_tunes_own(cli: Cli, tmp_path: Path) -> None:
    script = tmp_path / "tune.py"
    script.write_text(textwrap.dedent(TUNER))
    done = subprocess.run(
        [sys.executable, script], env=cli.environment, capture_output=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


SWEEP = """
    environment: {id: CartPole-v1}
    actors: {envs_per_actor: 8, rollout_steps: 32}
    stop: {steps: 2000}
    sweep:
      trials: 20
      episodes: 5
      search: {algorithm.learning_rate: "log:1e-5..1e-2", network.hidden: [[8], [16]]}
"""
KINDS = ["main", "worker", "head"]  # of what is killed


def _after_a_kill(cli: Cli, started: Started, rng: random.Random, killed: Counter[str]) -> Started:
    """Who carries the sweep now: its own process, a worker or the head of Ray is killed, and that
    is counted."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.process.wait(timeout=rng.uniform(3.0, 12.0))
        return started  # it has finished before its next kill
    missing = [each for each in KINDS if not killed[each]]
    whom = rng.choice(missing or KINDS)
    if whom == "main":
        started.kill()
        killed[whom] += 1
        return cli.start("sweep", "resume", "last", run=started.run)
    below = psutil.Process(started.pid).children(recursive=True)
    words = "gcs_server" if whom == "head" else "ray::"
    found = [process for process in below if words in " ".join(_command(process))]
    if found:
        with contextlib.suppress(psutil.NoSuchProcess):
            rng.choice(found).kill()
            killed[whom] += 1
    return started


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_twenty_trials_on_tune_survive_kills_of_main_workers_and_the_head(
    cli: Cli, tmp_path: Path
) -> None:
    """And the same file is a sweep without Ray, with a table of the same columns."""
    file = tmp_path / "sweep.yaml"
    file.write_text(textwrap.dedent(SWEEP))
    rng = random.Random(3)
    started = cli.start("sweep", "--config", file, "--launcher", "ray")
    killed = Counter[str]()
    for _ in range(10):
        started = _after_a_kill(cli, started, rng, killed)
    started.finish(timeout=1800, expect=0)
    assert killed.keys() == set(KINDS), killed
    is_whole(cli, sweep_of(cli))
    on_ray = cli("sweep", "show", "last", "--json").json["table"]
    here = cli("sweep", "--config", file, "--launcher", "inline", "--json", timeout=900).json[
        "table"
    ]
    for table in (on_ray, here):
        assert [row["status"] for row in table] == ["done"] * 20
        values = [row["value"] for row in table]
        assert values == sorted(values, reverse=True)
    assert {*on_ray[0]} == {*here[0]} and {*on_ray[0]["values"]} == {*here[0]["values"]}


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_population_on_ray_survives_a_kill_of_who_carries_it(cli: Cli) -> None:
    bred = (*new(4, 6000, "--scheduler", "pbt", "--generations", 3), "--sampler", "random")
    started = cli.start(*bred)
    wait_until(lambda: any(t.stages for t in sweep_of(cli).trials), "a first generation", 300)
    started.kill()
    cli.start("sweep", "resume", "last", run=started.run).finish(timeout=1200, expect=0)
    check_bred(cli, sweep_of(cli))
