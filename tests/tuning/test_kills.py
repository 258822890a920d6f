"""Sweeps for real: kill -9 of whoever carries them, of workers and of evaluations; Ctrl-C.

In CI one kill in the middle; the full count by `make soak`.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

from rookery.config.reading import build
from rookery.messages import JobDone, decode_json
from rookery.tuning.log import SweepLog
from rookery.tuning.sweep import Sweep, find
from rookery.tuning.trials import command_id

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

TINY = ("--launcher", "inline", "--envs-per-actor", 4, "--set", "actors.rollout_steps=8")
SEARCH = ("--search", "algorithm.learning_rate=log:1e-4..1e-2", "network.hidden=[8]|[16]")
KILLS, TRIALS = 20, 20  # of the soak
LONG = 400_000  # steps: some seconds, as who is to be ended is looked for once a second


def sweep_of(cli: Cli) -> Sweep:
    return find(cli.home, "last")


def is_whole(cli: Cli, sweep: Sweep) -> None:
    """Every trial has its runs, once each, and one result of each run."""
    spec = sweep.spec
    wanted = [command_id(spec.id, n, s) for n in range(spec.trials) for s in range(spec.seeds)]
    assert sorted(s.created_by for s in cli.home.states().values()) == sorted(wanted)
    log = SweepLog(cli.home, spec)
    results = [
        decode_json(message.payload, JobDone).command
        for message in log.log("events", None, -1, 1_000_000)
        if message.kind == "job_done"
    ]
    assert len(results) == len(set(results)) == len(wanted)
    assert [trial.status for trial in sweep.trials] == ["done"] * spec.trials


@pytest.mark.timeout(300)
def test_a_sweep_whose_process_is_killed_goes_on_where_it_was(cli: Cli) -> None:
    started = cli.start(
        *("sweep", "CartPole-v1", *SEARCH, "--trials", 2, "--episodes", 2, "--jobs", 1),
        *("--steps", 200, *TINY),
    )
    started.wait_until(lambda: started.worker("inline"), "the first worker")
    started.kill()
    sweep = sweep_of(cli)
    assert sweep.status == "interrupted"
    done = cli("sweep", "resume", "last", "--json", timeout=240).json
    assert done["status"] == "finished"
    is_whole(cli, sweep)
    kept = yaml.safe_load(Path(done["best"]["file"]).read_text())
    assert build(kept) == sweep.best.config


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_ctrl_c_stops_it_and_says_how_to_resume(cli: Cli) -> None:
    started = cli.start(
        *("sweep", "CartPole-v1", *SEARCH, "--trials", 2, "--episodes", 2, "--jobs", 1),
        *("--minutes", 5, *TINY),
    )
    started.wait_until(lambda: started.env_steps > 100, "some steps")
    done = started.interrupt()
    sweep = sweep_of(cli)
    assert done.code == 130 and f"rookery sweep resume {sweep.id}" in done.stderr
    assert sweep.status == "stopped"
    assert [state.status for state in cli.home.states().values()] == ["stopped"]
    assert not cli.processes()


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_stop_from_another_terminal_ends_it(cli: Cli) -> None:
    started = cli.start(
        *("sweep", "CartPole-v1", *SEARCH, "--trials", 2, "--episodes", 2, "--jobs", 1),
        *("--minutes", 5, *TINY),
    )
    started.wait_until(lambda: started.env_steps > 100, "some steps")
    cli("sweep", "stop", "last")
    assert started.finish().code == 130
    assert sweep_of(cli).status == "stopped"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_server_of_the_home_carries_the_runs(cli: Cli) -> None:
    served = cli.serve()
    done = cli(
        *("sweep", "CartPole-v1", *SEARCH, "--trials", 2, "--episodes", 2, "--steps", 200),
        *("--json", *TINY),
        timeout=300,
    ).json
    assert done["status"] == "finished"
    pids = {state.owner_pid for state in cli.home.states().values()}
    assert pids == {served.pid}
    is_whole(cli, sweep_of(cli))


def bred(members: int, generations: int, steps: int) -> tuple[object, ...]:
    return (
        *("sweep", "CartPole-v1", "--search", "algorithm.learning_rate=log:1e-5..1e-2"),
        *("--scheduler", "pbt", "--trials", members, "--generations", generations),
        *("--episodes", 5, "--steps", steps, *TINY),
    )


def check_bred(cli: Cli, sweep: Sweep) -> None:
    """Everybody is through; each fork is a run of its own that says where it comes from."""
    assert sweep.status == "finished"
    trials = sweep.trials
    assert all(len(trial.stages) == sweep.spec.generations for trial in trials)
    forks = {s.run: s.parent for trial in trials for s in trial.stages if s.parent}
    assert forks
    for run, parent in forks.items():
        shown = cli("runs", "show", run, "--json").json
        assert (shown["parent"], shown["balance"]["exact"]) == (parent, True)
    assert len(cli.home.states()) == len({s.created_by for s in cli.home.states().values()})


@pytest.mark.timeout(300)
def test_a_population_breeds_by_true_forks_and_its_best_schedule_can_be_trained(cli: Cli) -> None:
    done = cli(*bred(2, 2, 256), "--json", timeout=280).json
    assert [row["status"] for row in done["table"]] == ["done"] * 2
    check_bred(cli, sweep_of(cli))
    table = cli("sweep", "show", "last").stdout
    assert "LINEAGE" in table and "@1" in table
    best = build(yaml.safe_load(Path(done["best"]["file"]).read_text()))
    assert best.stop.steps == 256 and not best.parent.run


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_population_survives_kills(cli: Cli) -> None:
    rng = random.Random(2)
    started = cli.start(*bred(4, 5, 10_000))
    killed = Counter[str]()
    for _ in range(KILLS // 2):
        started = _after_a_kill(cli, started, rng, killed)
    started.finish(timeout=1800, expect=0)
    assert killed.keys() == {"main", "worker"}, killed
    check_bred(cli, sweep_of(cli))


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_asha_ends_runs_early_and_says_so_in_the_audit(cli: Cli) -> None:
    done = cli(
        *("sweep", "CartPole-v1", "--search", "algorithm.learning_rate=log:1e-6..1e-2"),
        *("--trials", 8, "--episodes", 5, "--steps", LONG, "--scheduler", "asha"),
        *("--launcher", "inline", "--envs-per-actor", 16, "--json"),
        timeout=800,
    ).json
    by_status: dict[str, list[dict[str, Any]]] = {}
    for row in done["table"]:
        by_status.setdefault(row["status"], []).append(row)
    assert by_status.keys() == {"done", "pruned"}
    assert max(row["env_steps"] for row in by_status["pruned"]) < LONG
    run = by_status["pruned"][0]["runs"][0]
    reasons = [e["reason"] for e in cli("audit", run, "--json").json["entries"]]
    assert any(reason.startswith("pruned at ") for reason in reasons)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_twenty_trials_survive_twenty_kills(cli: Cli) -> None:
    """Whoever carries it, workers and evaluations, at moments that nobody chose."""
    rng = random.Random(1)
    arguments: tuple[object, ...] = (
        *("sweep", "CartPole-v1", *SEARCH, "--trials", TRIALS, "--episodes", 5, "--jobs", 2),
        *("--steps", 2000, *TINY),
    )
    started = cli.start(*arguments)
    killed = Counter[str]()
    for _ in range(KILLS):
        started = _after_a_kill(cli, started, rng, killed)
    started.finish(timeout=1800, expect=0)
    assert killed.keys() == {"main", "worker"}, killed
    is_whole(cli, sweep_of(cli))


def _after_a_kill(cli: Cli, started: Started, rng: random.Random, killed: Counter[str]) -> Started:
    """Who carries the sweep now; `killed` counts what was killed in truth."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.process.wait(timeout=rng.uniform(1.0, 8.0))
        return started  # it has finished before its next kill
    if rng.random() < 0.5:
        started.kill()
        killed["main"] += 1
        return cli.start("sweep", "resume", "last", run=started.run)
    children = psutil.Process(started.pid).children()
    if children:
        with contextlib.suppress(psutil.NoSuchProcess):
            rng.choice(children).send_signal(signal.SIGKILL)
            killed["worker"] += 1
    return started
