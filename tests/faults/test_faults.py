"""Real processes, killed, starved and hung: runs go on, and every step is accounted for."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rookery.checkpoints.checkpoint import load_checkpoint, newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.learner.manifest import LearnerManifest, pending_fragments
from rookery.messages import METRICS_TRAINING, StartRun, TrainingMetrics, decode_json
from tests.conftest import fill, remount

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

QUICK_RESTARTS = ("--set", "restarts.backoff_s=0.05", "--set", "restarts.max_backoff_s=0.5")
SMALL = ("CartPole-v1", "--envs-per-actor", 8, "--set", "actors.rollout_steps=32", *QUICK_RESTARTS)
OFTEN = ("--set", "checkpoint.interval_s=0.5")
ENDLESS = ("--steps", 100_000_000)
STEPS_PER_KILL = 40_000
BOUND = {"ppo": 1, "impala": 2}  # max_policy_lag_versions of two actors


def store_of(cli: Cli, run: str) -> Any:
    return open_store(cli.home.files(run).checkpoints)


def check_accounts(cli: Cli, run: str, bound: int) -> dict[str, Any]:
    """Balance, ledger, staleness and checkpoints of a run that has ended."""
    shown = cli("runs", "show", run, "--json").json
    balance = shown["balance"]
    dropped = sum(balance["dropped"].values())
    assert balance["produced"] == balance["trained"] + dropped + balance["in_flight"], balance
    assert balance["trained"] == shown["env_steps"] and shown["gaps"] == 0
    for metrics in all_metrics(cli, run):
        assert metrics.lag_max <= bound and metrics.ledger.gaps == 0
    store = store_of(cli, run)
    for name in store.names():
        check_ledger(load_checkpoint(store, name, LearnerManifest))
    return dict(shown)


def check_ledger(checkpoint: Any) -> None:
    """Every sequence of every actor has exactly one fate: no gap, no overlap."""
    ledger = checkpoint.manifest.ledger
    fates: dict[str, list[tuple[int, int]]] = {actor: [] for actor in ledger.next_sequence}
    for actor, outcomes in ledger.outcomes.items():
        for intervals in outcomes.values():
            fates[actor] += [(first, last) for first, last in intervals]
    for _, fragment in pending_fragments(checkpoint):
        sequence = fragment.header.sequence
        fates[fragment.header.actor].append((sequence, sequence))
    for actor, intervals in fates.items():
        expected = 0
        for first, last in sorted(intervals):
            assert first == expected, f"{actor}: {'gap' if first > expected else 'overlap'}"
            expected = last + 1
        assert expected == ledger.next_sequence[actor]


def all_metrics(cli: Cli, run: str) -> list[TrainingMetrics]:
    """Of every life, also those that a later one did over."""
    bus = cli.home.read_run_bus(cli.home.state(run))
    assert bus is not None
    subscription = bus.subscribe(METRICS_TRAINING, "earliest")
    found = []
    while records := subscription.poll(0.0, limit=4096):
        found += [decode_json(record.payload, TrainingMetrics) for record in records]
    bus.close()
    return found


def kill(running: Started, kind: str, rng: random.Random) -> Started:
    """kill -9 one process of the run, wait until it is replaced, and return who carries the run."""
    cli, run = running.cli, running.run
    if kind == "main":
        running.kill()
        assert running.show()["status"] == "interrupted"
        found = running.why()
        assert found.component == "owner" and f"rookery resume {run}" in found.summary
        return cli.start("resume", run, "--json", run=run)
    index = rng.randrange(2) if kind == "actor" else 0
    name = f"{kind}-{index}"
    victim = running.wait_until(lambda: running.worker(kind, index), f"a living {name}")
    killed = cli.home.state(run).workers[name].incarnation
    victim.kill()

    def replaced() -> bool:
        worker = cli.home.state(run).workers[name]
        return worker.incarnation > killed and worker.running

    running.wait_until(lambda: tells_of(running, name, "ended by SIGKILL"), "why to tell of it", 20)
    running.wait_until(replaced, f"a new {name}")
    return running


def tells_of(running: Started, name: str, error: str) -> bool:
    """Whether `why` says what befell a worker, while it is down, or starts, or is back."""
    found = running.why()
    told = name in found.summary and error in found.summary
    return told and found.component in (name, None)


def reach(running: Started, env_steps: int, then_s: float) -> None:
    """Wait for that many trained steps, and a little more: between two reports, not just after."""
    running.wait_until(lambda: running.env_steps >= env_steps, f"{env_steps} steps", 120)
    moment = time.monotonic() + then_s
    running.wait_until(lambda: time.monotonic() > moment, "a random moment")


def run_and_kill(cli: Cli, algorithm: str, kinds: list[str], seed: int) -> dict[str, Any]:
    """A run with a kill in each stretch of its steps but the last; returns what `train` said."""
    rng = random.Random(seed)
    steps = STEPS_PER_KILL * (len(kinds) + 1)
    options = ("--algorithm", algorithm, "--actors", 2, "--steps", steps, "--seed", seed, "--json")
    running = cli.start("train", *SMALL, *OFTEN, *options)
    for stretch, kind in enumerate(kinds):
        wanted = round((stretch + rng.uniform(0.05, 0.5)) * STEPS_PER_KILL)
        reach(running, wanted, rng.uniform(0, 0.3))
        running = kill(running, kind, rng)
    done = running.finish(timeout=240, expect=0).json
    assert done["status"] == "finished" and done["env_steps"] >= steps
    shown = check_accounts(cli, running.run, BOUND[algorithm])
    assert shown["status"] == "finished"
    restarts = {kind: 0 for kind in ("actor", "learner")}
    for worker in shown["workers"]:
        restarts[worker["kind"]] += worker["restarts"]
    # whoever resumes starts every worker once more
    assert restarts["learner"] == kinds.count("learner") + kinds.count("main")
    assert restarts["actor"] == kinds.count("actor") + 2 * kinds.count("main")
    return dict(done)


@pytest.mark.parametrize(
    ("algorithm", "seed"), [("ppo", 1), pytest.param("impala", 2, marks=pytest.mark.soak)]
)
def test_a_run_survives_kills_of_everyone(cli: Cli, algorithm: str, seed: int) -> None:
    kinds = ["actor", "learner", "main"]
    random.Random(seed).shuffle(kinds)
    run_and_kill(cli, algorithm, kinds, seed)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
@pytest.mark.parametrize("seed", [11, 12, 13, 14])
def test_runs_survive_many_kills(cli: Cli, algorithm: str, seed: int) -> None:
    """4 runs of 5 kills each, for each algorithm."""
    kinds = ["actor", "learner", "main", *random.Random(seed).choices(["actor", "learner"], k=2)]
    random.Random(seed).shuffle(kinds)
    done = run_and_kill(cli, algorithm, kinds, seed)
    print(f"{algorithm} seed {seed}: survived {', '.join(kinds)}; {done['env_steps']:,} steps")


def test_a_learner_killed_before_its_first_checkpoint_begins_again(cli: Cli) -> None:
    never = ("--set", "checkpoint.interval_s=600")
    running = cli.start("train", *SMALL, *never, "--actors", 2, "--steps", 40_000, "--json")
    running.wait_until(lambda: running.env_steps > 0, "training")
    assert store_of(cli, running.run).names() == []
    kill(running, "learner", random.Random(0))
    done = running.finish(expect=0).json
    assert done["status"] == "finished"
    shown = check_accounts(cli, running.run, BOUND["ppo"])
    assert "abandoned" in shown["balance"]["dropped"]
    assert set(shown["balance"]["dropped"]) <= {"abandoned", "late"}  # late: a busy machine
    # no step of the lost life counts as trained
    assert 40_000 <= shown["balance"]["trained"] < 42_000


def test_a_second_controller_is_refused_the_lease(cli: Cli) -> None:
    running = cli.start("train", *SMALL, *OFTEN, *ENDLESS, "--json")
    running.wait_until(lambda: running.env_steps > 2000, "training")
    before = {w["kind"]: w["pid"] for w in running.show()["workers"]}
    refused = cli("resume", running.run)
    assert "it runs already: nothing changes" in refused.stdout
    steps = running.env_steps
    running.wait_until(lambda: running.env_steps > steps + 2000, "the run to go on")
    shown = running.show()
    assert {w["kind"]: w["pid"] for w in shown["workers"]} == before
    assert all(w["alive"] and w["restarts"] == 0 for w in shown["workers"])
    assert running.interrupt().code == 130
    check_accounts(cli, running.run, BOUND["ppo"])


# --- environments that misbehave -----------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("launcher", ["local", "inline"])
def test_an_environment_that_raises_fails_the_run_after_retries(cli: Cli, launcher: str) -> None:
    done = cli(
        *("train", "rookery.testing.envs:FailingEnv", "--env.at", 50, "--launcher", launcher),
        *("--envs-per-actor", 2, "--set", "restarts.max_restarts=1", *QUICK_RESTARTS, "--json"),
        expect=1,
    )
    assert done.json["status"] == "failed"
    found = cli("why", "last", "--json").json
    assert found["status"] == "failed"
    assert "this environment fails at step 50" in found["summary"]
    assert "player_0" in found["summary"] and "49 steps" in found["summary"]
    assert "died 2 times" in found["summary"]
    assert "Traceback" in found["detail"] and "self._fail" in found["detail"]
    assert "rookery/actor" not in found["detail"]  # the user's own code, not ours
    text = cli("why", "last").stdout
    assert found["summary"] in text and "self._fail" in text


def test_an_environment_that_raises_in_reset_is_told_apart(cli: Cli) -> None:
    done = cli(
        *("train", "rookery.testing.envs:FailingEnv", "--env.at", 4, "--env.where", "reset"),
        *("--envs-per-actor", 2, "--set", "restarts.max_restarts=0", "--json"),
        expect=1,
    )
    assert done.json["status"] == "failed"
    assert "actor-0 died: " in done.stderr and "/rookery/testing/envs.py" in done.stderr
    found = cli("why", "last", "--json").json
    assert "this environment fails at reset 4" in found["summary"]
    assert "in reset" in found["summary"] and "self._fail" in found["detail"]


def test_an_environment_that_raises_at_once_shows_its_traceback(cli: Cli) -> None:
    options = ("--env.at", 1, "--env.where", "reset")
    done = cli("train", "rookery.testing.envs:FailingEnv", *options, expect=1)
    assert "this environment fails at reset 1" in done.stderr.splitlines()[0]
    assert "self._fail" in done.stderr and "rookery/cli.py" not in done.stderr


def test_an_environment_that_hangs_is_named_by_why(cli: Cli) -> None:
    done = cli(
        *("train", "rookery.testing.envs:HangingEnv", "--env.at", 50, "--envs-per-actor", 2),
        *("--set", "environment.deadline_s=0.5", "--set", "restarts.max_restarts=1"),
        *(*QUICK_RESTARTS, "--json"),
        expect=1,
    )
    assert done.json["status"] == "failed"
    found = cli("why", "last", "--json").json
    assert found["component"] == "actor-0"
    assert "environment.deadline_s = 0.5 s" in found["summary"] and "hung" in found["summary"]
    assert "time.sleep(self.seconds)" in found["detail"]


# --- storage that misbehaves ---------------------------------------------------------------------


def begin_on(cli: Cli, *options: object) -> Started:
    """A run that has saved checkpoints and goes on."""
    running = cli.start("train", *SMALL, *OFTEN, *ENDLESS, *options, "--json")
    running.wait_until(lambda: len(store_of(cli, running.run).names()) >= 2, "two checkpoints")
    return running


def check_resumes(cli: Cli, run: str, steps: int) -> None:
    again = cli.start("resume", run, "--json", run=run)
    again.wait_until(lambda: again.env_steps > steps + 5000, "more training")
    assert again.interrupt().code == 130
    check_accounts(cli, run, BOUND["ppo"])


@pytest.mark.soak
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_store_that_cannot_be_written_keeps_the_last_checkpoint(
    cli: Cli, small_disk: Path, trouble: str
) -> None:
    running = begin_on(cli, "--set", f"checkpoint.uri=file:{small_disk}")
    if trouble == "full":
        ballast = fill(small_disk)
    else:
        remount(small_disk, "ro")
    done = running.finish(expect=1)
    assert done.json["status"] == "failed"
    assert "cannot write a checkpoint" in done.json["reason"]
    assert "resume" in cli("why", running.run).stdout.splitlines()[0]
    kept = newest_checkpoint(store_of(cli, running.run), LearnerManifest)
    assert kept is not None
    if trouble == "full":
        ballast.unlink()
    else:
        remount(small_disk, "rw")
    check_resumes(cli, running.run, kept.manifest.ledger.trained)


def test_a_full_disk_is_a_clear_error_and_the_run_goes_on_later(cli: Cli, small_disk: Path) -> None:
    cli.home.path = small_disk / "home"
    cli.environment["ROOKERY_HOME"] = str(cli.home.path)
    (small_disk / "home").mkdir()
    running = begin_on(cli)
    ballast = fill(small_disk)
    done = running.finish(expect=1)
    assert "disk is full" in done.stderr + done.stdout or "No space left" in done.stdout
    assert "Traceback" not in done.stderr
    found = running.why()
    assert found.component == "owner" and "the disk is full" in found.summary, found
    ballast.unlink()
    kept = newest_checkpoint(store_of(cli, running.run), LearnerManifest)
    assert kept is not None
    check_resumes(cli, running.run, kept.manifest.ledger.trained)


def home_on(cli: Cli, disk: Path) -> None:
    cli.home.path = disk / "home"
    cli.environment["ROOKERY_HOME"] = str(cli.home.path)


@pytest.mark.soak
def test_a_full_home_can_be_looked_at_and_its_runs_deleted(cli: Cli, small_disk: Path) -> None:
    home_on(cli, small_disk)
    ended = cli("train", *SMALL, "--steps", 600, "--launcher", "inline", "--json").json["run"]
    running = begin_on(cli)
    ballast = fill(small_disk)
    assert "disk is full" in running.finish(expect=1).stderr
    ballast_too = fill(small_disk, "ballast-too")  # what its processes gave back, too
    assert shutil.disk_usage(small_disk).free == 0
    listed = {row["run"]: row["status"] for row in cli("runs", "list", "--json").json["runs"]}
    assert listed == {ended: "finished", running.run: "interrupted"}
    assert running.show()["status"] == "interrupted"
    assert "its process died" in cli("why", running.run).stdout.splitlines()[0]
    assert "disk is full" in cli("resume", ended, "--steps", 1500, expect=None).stderr
    cli("runs", "delete", running.run, "--yes")
    assert shutil.disk_usage(small_disk).free > 1 << 20
    ballast.unlink()
    ballast_too.unlink()
    ballast = fill(small_disk)
    cli("runs", "delete", ended, "--yes")  # which has a few hundred kilobytes to give
    ballast.unlink()
    assert cli("runs", "list", "--json").json["runs"] == []
    assert not [path for path in cli.home.path.iterdir() if path.is_dir()]


@pytest.mark.soak
def test_a_home_that_may_not_be_written_can_be_listed_shown_and_evaluated(
    cli: Cli, small_disk: Path
) -> None:
    home_on(cli, small_disk)
    run = cli("train", *SMALL, "--steps", 600, "--launcher", "inline", "--json").json["run"]
    shown = cli("runs", "show", run, "--json").json
    log, wal = (cli.home.path / f"control.sqlite{end}" for end in ("", "-wal"))
    for left_behind in (False, True):  # by a writer that was killed
        remount(small_disk, "rw")
        if left_behind:
            before = log.read_bytes()
            cli.home.send(StartRun(run=run, author="ann"))
            kept = wal.read_bytes()
            cli.home.close()
            log.write_bytes(before)
            wal.write_bytes(kept)
        remount(small_disk, "ro")
        assert wal.exists() == left_behind
        assert [row["run"] for row in cli("runs", "list", "--json").json["runs"]] == [run]
        assert cli("runs", "show", "last", "--json").json == shown
        assert "finished" in cli("why", run).stdout
        assert cli("eval", run, "--episodes", 2, "--json").json["run"] == run
        resume, delete = ("resume", run, "--steps", 1500), ("runs", "delete", run, "--yes")
        for verb in (resume, delete, ("serve",)):
            assert "may not be written; set ROOKERY_HOME" in cli(*verb, expect=2).stderr
    sent = [entry["kind"] for entry in cli("audit", run, "--json").json["entries"]]
    assert sent == ["create_run", "start_run", "start_run"], "what only the WAL has is read too"
    remount(small_disk, "rw")


def test_a_damaged_checkpoint_is_passed_over_and_named(cli: Cli) -> None:
    running = begin_on(cli)
    assert running.interrupt().code == 130
    store = store_of(cli, running.run)
    *_, before, newest = store.names()
    state = store.root / newest / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    resumed_from = load_checkpoint(store, before, LearnerManifest).manifest
    again = cli.start("resume", running.run, "--json", run=running.run)
    again.wait_until(lambda: again.env_steps > resumed_from.ledger.trained, "training")
    again.named(None, f"checkpoint {newest} is damaged and was passed over")
    done = again.interrupt()
    assert done.code == 130
    assert newest in done.stderr and "SHA-256" in done.stderr
    shown = running.show()
    assert list(shown["damaged_checkpoints"]) == [newest]
    last = newest_checkpoint(store, LearnerManifest)
    assert last is not None and last.manifest.ancestry[2] == resumed_from.number
    store.delete(newest)
    check_accounts(cli, running.run, BOUND["ppo"])
