"""Real processes, frozen: who gives no sign of life is named, then replaced; nothing is lost."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from rookery.control.lease import SERVER, holder
from tests.conftest import NAMED_S
from tests.faults.test_faults import BOUND, ENDLESS, OFTEN, SMALL, check_accounts, reach

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

FROZEN, GOES_ON_S = "is frozen for", 30.0
TWO = (*SMALL, *OFTEN, *ENDLESS, "--actors", 2)
QUICK = ("--set", "restarts.silent_s=4")
ROUNDS = int(os.environ.get("ROOKERY_FREEZES", "4"))  # of each kind


def freeze(process: psutil.Process) -> None:
    process.send_signal(signal.SIGSTOP)


def check_trains_on(running: Started, timeout: float = GOES_ON_S) -> None:
    steps = running.env_steps
    running.wait_until(lambda: running.env_steps > steps + 5000, "more training", timeout)


def freeze_worker(running: Started, kind: str, index: int) -> None:
    """Frozen for ever: named, replaced, and the run goes on."""
    name = f"{kind}-{index}"
    victim = running.wait_until(lambda: running.worker(kind, index), f"a living {name}")
    before = running.cli.home.state(running.run).workers[name].incarnation
    freeze(victim)
    running.named(name, FROZEN)

    def replaced() -> bool:
        worker = running.cli.home.state(running.run).workers[name]
        return worker.incarnation > before and worker.running

    running.wait_until(replaced, f"a new {name}", GOES_ON_S)
    assert not victim.is_running() or victim.status() == psutil.STATUS_ZOMBIE
    check_trains_on(running)
    running.named(None, f"{name} was frozen for")


def freeze_owner(running: Started, thaw: bool) -> Started:
    """Workers go on meanwhile; then it goes on as if nothing had been, or another takes over."""
    cli, run = running.cli, running.run
    workers = {n: w.incarnation for n, w in cli.home.state(run).workers.items()}
    freeze(psutil.Process(running.pid))
    words = running.named("owner", FROZEN)
    assert f"pid {running.pid}" in words and f"rookery resume {run}" in words
    check_trains_on(running)
    silent_s = cli.home.config(cli.home.state(run)).restarts.silent_s

    def silent() -> bool:
        owner = cli.home.owner(run)
        return owner is not None and owner.is_frozen(silent_s)

    if just_frozen(cli, run, silent_s):
        assert "is frozen" in cli("resume", run, expect=2).error
    running.wait_until(silent, "a long silence", silent_s + 5)
    if thaw:
        running.process.send_signal(signal.SIGCONT)
        running.wait_until(lambda: cli.home.owner(run).silent_s < 2, "a sign of life", 10)  # type: ignore[union-attr]
        check_trains_on(running)
        assert {n: w.incarnation for n, w in cli.home.state(run).workers.items()} == workers
        return running
    again = cli.start("resume", run, "--json", run=run)
    assert running.process.wait(30) == -signal.SIGKILL
    check_trains_on(again)
    return again


def just_frozen(cli: Cli, run: str, silent_s: float) -> bool:
    """Whether nobody who starts now, on a busy machine too, may take over yet."""
    owner = cli.home.owner(run)
    return owner is not None and owner.silent_s < silent_s / 3


def freeze_over_and_over(cli: Cli, kinds: list[str], seed: int, *options: object) -> None:
    """`main` is frozen until another takes over, `nap` is frozen and then goes on."""
    rng = random.Random(seed)
    running = cli.start("train", *TWO, *options, "--seed", seed, "--json")
    for kind in kinds:
        reach(running, running.env_steps + rng.randrange(2_000, 20_000), rng.uniform(0, 0.5))
        if kind in ("main", "nap"):
            running = freeze_owner(running, thaw=kind == "nap")
        else:
            freeze_worker(running, kind, rng.randrange(2) if kind == "actor" else 0)
    done = running.interrupt()
    assert done.code == 130
    assert ("was frozen for" in done.stderr) == (kinds[-1] != "nap")  # whoever is at the terminal
    shown = check_accounts(cli, running.run, BOUND["ppo"])
    assert shown["duplicates"] == 0
    taken_over = kinds.count("main") * 3  # whoever resumes starts every worker once more
    replaced = kinds.count("actor") + kinds.count("learner")
    assert sum(w["restarts"] for w in shown["workers"]) == replaced + taken_over


def test_a_frozen_actor_and_a_frozen_learner_are_named_and_replaced(cli: Cli) -> None:
    freeze_over_and_over(cli, ["actor", "learner"], 1, *QUICK)


def test_a_main_process_that_was_frozen_goes_on_or_is_taken_over(cli: Cli) -> None:
    freeze_over_and_over(cli, ["nap", "main"], 2, *QUICK)


HOLDER = """
import os, signal, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
db.execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_a_program_that_is_stopped_while_it_writes_to_the_bus_is_ended(cli: Cli) -> None:
    running = cli.start("train", *TWO, *QUICK, "--json")
    reach(running, 3_000, 0.0)
    argv = [sys.executable, "-c", HOLDER, str(cli.home.bus_path(running.run))]
    stranger = subprocess.Popen(argv)
    try:
        assert stranger.wait(GOES_ON_S) == -signal.SIGKILL
    finally:
        stranger.kill()
        stranger.wait()
    check_trains_on(running)
    running.named(None, "nothing is stuck")
    assert running.interrupt().code == 130
    shown = check_accounts(cli, running.run, BOUND["ppo"])
    assert shown["duplicates"] == 0 and not any(w["restarts"] for w in shown["workers"])


@pytest.mark.soak
@pytest.mark.timeout(300 * ROUNDS)
@pytest.mark.parametrize("kind", ["actor", "learner", "main", "nap"])
def test_a_run_survives_many_freezes(cli: Cli, kind: str) -> None:
    freeze_over_and_over(cli, [kind] * ROUNDS, 3)


# --- workers that go on after a while ------------------------------------------------------------


def nap(running: Started, name: str, victim: psutil.Process, seconds: float) -> None:
    """Frozen for so long, then let go on, if it is still there."""
    freeze(victim)
    moment = time.monotonic() + seconds
    running.named(name, FROZEN)
    running.wait_until(lambda: time.monotonic() > moment, "the end of the nap", seconds + 10)
    with contextlib.suppress(psutil.NoSuchProcess):
        victim.resume()
    check_trains_on(running)


@pytest.mark.soak
@pytest.mark.timeout(100 * ROUNDS)
@pytest.mark.parametrize("kind", ["actor", "learner"])
@pytest.mark.parametrize("seconds", [8.0, 20.0])
def test_a_worker_that_naps_is_left_alone_or_replaced(cli: Cli, kind: str, seconds: float) -> None:
    running = cli.start("train", *TWO, "--json")
    rng = random.Random(4)
    for _ in range(ROUNDS):
        reach(running, running.env_steps + rng.randrange(2_000, 20_000), rng.uniform(0, 0.5))
        victim = running.wait_until(lambda: running.worker(kind), f"a living {kind}")
        nap(running, f"{kind}-0", victim, seconds)
    assert running.interrupt().code == 130
    shown = check_accounts(cli, running.run, BOUND["ppo"])
    assert shown["duplicates"] == 0
    restarts = sum(w["restarts"] for w in shown["workers"])
    assert restarts == (ROUNDS if seconds > 15 else 0)


# --- servers -------------------------------------------------------------------------------------


def freeze_server(cli: Cli, rounds: int, thaw: bool) -> None:
    """Its runs go on meanwhile; it goes on too, or a new server ends it and takes over."""
    config = {
        "environment": {"id": "CartPole-v1"},
        "actors": {"envs_per_actor": 8, "rollout_steps": 32},
        "stop": {"steps": 10**9},
    }
    server = cli.serve()
    run = server.run = server.api("POST", "/runs", {"config": config})["run"]
    check_trains_on(server, 180)
    for _ in range(rounds):
        freeze(psutil.Process(server.pid))
        assert "rookery serve" in server.named("owner", FROZEN)
        check_trains_on(server)
        if just_frozen(cli, run, 15.0):
            assert "is frozen: let it go on with kill -CONT" in cli("serve", expect=2).error

        def silent() -> bool:
            owner, whole = cli.home.owner(run), holder(cli.home.path / SERVER)
            return all(found is not None and found.is_frozen(15.0) for found in (owner, whole))

        server.wait_until(silent, "a long silence", NAMED_S)
        if thaw:
            server.process.send_signal(signal.SIGCONT)
            assert server.api("GET", f"/runs/{run}")["status"] == "running"
            said = server.why
            server.wait_until(lambda said=said: "frozen" not in said().summary, "no alarm", 10)
            check_trains_on(server)
            continue
        former, server = server, cli.serve()
        server.run = run
        assert former.process.wait(30) == -signal.SIGKILL
        assert f"process {former.pid} was frozen for" in server.log
        check_trains_on(server, 60)
    assert server.api("POST", f"/runs/{run}/stop", {})["outcome"] == "accepted"
    server.wait_until(
        lambda: server.api("GET", f"/runs/{run}")["status"] == "stopped", "the run to stop"
    )
    shown = server.api("GET", f"/runs/{run}")
    assert shown["balance"]["exact"] and shown["duplicates"] == 0
    assert not thaw or all(worker["restarts"] == 0 for worker in shown["workers"])
    server.interrupt()


@pytest.mark.soak
@pytest.mark.timeout(100 * ROUNDS)
@pytest.mark.parametrize("thaw", [True, False])
def test_a_frozen_server_goes_on_or_is_taken_over(cli: Cli, thaw: bool) -> None:
    freeze_server(cli, ROUNDS, thaw)
