"""Every command as a person or a script types it, with real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.conftest import Cli

SMALL = ("--envs-per-actor", 8, "--set", "actors.rollout_steps=32")
INLINE = (*SMALL, "--launcher", "inline")
ENDLESS = ("--steps", 100_000_000)


@pytest.fixture(scope="module")
def trained(shared_cli: Cli) -> dict[str, Any]:
    """One finished local run for every test that only reads."""
    done = shared_cli(
        "train", "CartPole-v1", *SMALL, "--actors", 2, "--steps", 20_000, "--seed", 3, "--json"
    )
    return dict(done.json, stderr=done.stderr)


# --- train ---------------------------------------------------------------------------------------


def test_train_tells_what_it_did_as_one_json_object(trained: dict[str, Any]) -> None:
    assert trained["status"] == "finished"
    assert isinstance(trained["run"], str) and trained["run"].startswith("cartpole-")
    assert isinstance(trained["env_steps"], int) and trained["env_steps"] >= 20_000
    for key in ("wall_s", "train_s", "steps_per_s", "mean_return_100"):
        assert isinstance(trained[key], float) and trained[key] > 0, key
    assert trained["train_s"] < trained["wall_s"]
    by_one_clock = trained["env_steps"] / trained["train_s"]
    assert trained["steps_per_s"] == pytest.approx(by_one_clock, rel=0.01)
    assert trained["policy"] == "main" and trained["episodes"] > 0


def test_piped_progress_is_plain_lines(trained: dict[str, Any]) -> None:
    lines = trained["stderr"].splitlines()
    assert any("steps/s" in line and "return" in line and "actors" in line for line in lines)
    assert all(character.isprintable() for line in lines for character in line)
    assert any(line.startswith("the learner computes on cpu") for line in lines)
    assert len(lines) < 20


def test_without_json_the_summary_says_what_to_try_next(cli: Cli) -> None:
    done = cli("train", "CartPole-v1", *INLINE, "--steps", 512)
    assert done.stderr == ""
    assert "finished: " in done.stdout and "rookery eval " in done.stdout
    assert all(character.isprintable() for line in done.stdout.splitlines() for character in line)


def test_train_exits_with_0_when_the_return_is_reached(cli: Cli) -> None:
    done = cli("train", "CartPole-v1", *INLINE, "--until-return", 15, "--steps", 50_000, "--json")
    assert done.json["status"] == "solved" and done.json["mean_return_100"] >= 15


def test_train_exits_with_3_when_a_limit_comes_first(cli: Cli) -> None:
    options = ("--until-return", 500, "--steps", 512, "--json")
    assert cli("train", "CartPole-v1", *INLINE, *options, expect=3).json["status"] == "limited"
    minutes = ("--until-return", 500, "--minutes", 0.001, "--json")
    assert cli("train", "CartPole-v1", *INLINE, *minutes, expect=3).json["status"] == "limited"


@pytest.mark.soak
def test_the_hints_of_a_run_that_reached_its_limit_can_be_typed(cli: Cli) -> None:
    options = ("--until-return", 500, "--steps", 512)
    said = cli("train", "CartPole-v1", *INLINE, *options, expect=3).stdout
    (hint,) = [line.partition("try: ")[2] for line in said.splitlines() if "try: " in line]
    refusal = cli.refused("resume", "last")
    assert refusal.endswith(f": {hint}")
    assert cli.refused("resume", "last", "--steps", 100).endswith(f": {hint}")
    accepted = cli(*hint.split()[1:], "--dry-run").stdout
    assert "would be accepted" in accepted and "up to" in accepted
    assert "mean return" in cli.refused("resume", "last", "--until-return", 1)


def test_ctrl_c_exits_with_130_after_a_checkpoint_and_resume_goes_on(cli: Cli) -> None:
    running = cli.start("train", "CartPole-v1", *SMALL, *ENDLESS, "--json")
    running.wait_until(lambda: running.env_steps > 1000, "training")
    assert cli.home.state(running.run).checkpoint is None
    done = running.interrupt()
    assert done.code == 130
    assert done.json["status"] == "stopped"
    shown = cli("runs", "show", running.run, "--json").json
    assert shown["status"] == "stopped" and len(shown["checkpoints"]) == 1
    assert shown["balance"]["exact"]
    resumed = cli.start("resume", "last", "--json", run=running.run)
    resumed.wait_until(lambda: resumed.env_steps > shown["env_steps"], "more training")
    again = resumed.interrupt()
    assert again.code == 130 and again.json["env_steps"] > shown["env_steps"]


def test_a_config_file_trains_with_flags_over_it(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("environment: {id: CartPole-v1}\nalgorithm: {gamma: 0.9}\nseed: 5\n")
    done = cli("train", "--config", file, *INLINE, "--steps", 256, "--seed", 6, "--json")
    config = cli.home.config(cli.home.state(done.json["run"]))
    assert config.algorithm.gamma == 0.9 and config.seed == 6


def test_environment_options_reach_the_environment(cli: Cli) -> None:
    options = (*INLINE, "--steps", 256, "--json")
    done = cli("train", "FrozenLake-v1", "--env.is_slippery=false", *options)
    run = done.json["run"]
    # without slipping, two episodes of a greedy policy are the same
    played = cli("eval", run, "--episodes", 8, "--json").json["greedy"]
    assert played["min"] == played["max"]
    assert cli.home.config(cli.home.state(run)).environment.kwargs == {"is_slippery": False}


OWN_ENVIRONMENT = """
from rookery.testing.envs import CountingEnv

class Maze(CountingEnv):
    def __init__(self, length=7):
        super().__init__(length)
"""


def test_a_users_own_class_is_trained_in_worker_processes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "my_envs.py").write_text(OWN_ENVIRONMENT)
    options = (*SMALL, "--steps", 512, "--env.length", 9, "--json")
    done = cli("train", "my_envs:Maze", *options, cwd=tmp_path)
    assert done.json["mean_return_100"] == 9.0


@pytest.mark.soak
def test_gymnax_trains_inline(cli: Cli) -> None:
    done = cli("train", "gymnax:CartPole-v1", *INLINE, "--steps", 1024, "--json")
    assert done.json["status"] == "finished" and done.json["mean_return_100"] > 0
    assert cli("eval", "last", "--episodes", 4, "--json").json["greedy"]["length"] > 0


def test_the_memory_bus_leaves_nothing_but_checkpoints(cli: Cli) -> None:
    options = (*INLINE, "--bus", "memory", "--steps", 512, "--json")
    run = cli("train", "CartPole-v1", *options).json["run"]
    kept = {path.name for path in cli.home.run_dir(run).iterdir()}
    assert kept == {"checkpoints", "logs", "owner.lock", "progress"}
    assert not any((cli.home.run_dir(run) / "progress").iterdir())
    assert cli("runs", "show", run, "--json").json["balance"]["exact"]


# --- runs ----------------------------------------------------------------------------------------


def test_runs_list_has_every_run(shared_cli: Cli, trained: dict[str, Any]) -> None:
    rows = shared_cli("runs", "list", "--json").json["runs"]
    row = next(row for row in rows if row["run"] == trained["run"])
    assert row["status"] == "finished" and row["environment"] == "CartPole-v1"
    assert row["algorithm"] == "ppo" and row["env_steps"] == trained["env_steps"]
    assert trained["run"] in shared_cli("runs", "list").stdout


def test_runs_show_accounts_for_every_step(shared_cli: Cli, trained: dict[str, Any]) -> None:
    shown = shared_cli("runs", "show", trained["run"], "--json").json
    balance = shown["balance"]
    dropped = sum(balance["dropped"].values())
    assert balance["produced"] == balance["trained"] + dropped + balance["in_flight"]
    assert shown["env_steps"] == balance["trained"] == trained["env_steps"]
    assert shown["status"] == "finished" and shown["checkpoints"] and shown["weights_version"]
    assert [worker["kind"] for worker in shown["workers"]] == ["learner", "actor", "actor"]
    for worker in shown["workers"]:
        assert isinstance(worker["pid"], int) and worker["alive"] is False
        assert worker["restarts"] == 0 and worker["last_error"] is None
    text = shared_cli("runs", "show", trained["run"]).stdout
    assert f"trained {balance['trained']:,}" in text
    assert shown["train_s"] == pytest.approx(trained["train_s"], abs=0.001)
    assert f"in {shown['train_s']:.1f} s of training, {trained['steps_per_s']:,.0f} steps/s" in text
    assert "of main, mean of the last 100 training episodes" in text


def test_a_run_is_found_by_prefix_and_as_last(shared_cli: Cli, trained: dict[str, Any]) -> None:
    run = trained["run"]
    for name in (run[:-1], "last"):
        assert shared_cli("runs", "show", name, "--json").json["run"] == run


def test_runs_delete_removes_what_does_not_run(cli: Cli) -> None:
    running = cli.start("train", "CartPole-v1", *INLINE, *ENDLESS)
    running.wait_until(lambda: running.env_steps > 0, "training")
    assert "running" in cli.refused("runs", "delete", running.run, "--yes")
    assert running.interrupt().code == 130
    assert cli("runs", "delete", running.run, "--yes", "--json").json["deleted"] is True
    assert not cli.home.run_dir(running.run).exists()
    assert cli("runs", "list", "--json").json["runs"] == []


def test_why_says_that_nothing_is_stuck(cli: Cli) -> None:
    running = cli.start("train", "CartPole-v1", *SMALL, *ENDLESS)
    running.wait_until(lambda: running.env_steps > 10_000, "training")
    found = cli("why", running.run, "--json").json
    assert found["component"] is None and "nothing is stuck" in found["summary"]
    running.kill()
    found = cli("why", running.run, "--json").json
    assert found["status"] == "interrupted" and found["component"] == "owner"
    assert f"rookery resume {running.run}" in found["summary"]


# --- eval and plot -------------------------------------------------------------------------------


def test_eval_plays_fresh_episodes_and_leaves_the_run_alone(
    shared_cli: Cli, trained: dict[str, Any]
) -> None:
    run = trained["run"]
    before = {p: p.stat().st_mtime_ns for p in shared_cli.home.run_dir(run).rglob("*")}
    found = shared_cli("eval", run, "--episodes", 20, "--json").json
    again = shared_cli("eval", run, "--episodes", 20, "--json").json
    other = shared_cli("eval", run, "--episodes", 20, "--seed", 1, "--json").json
    assert found == again and found["sampled"] != other["sampled"]
    assert found["run"] == run and found["episodes"] == 20
    assert found["env_steps"] == trained["env_steps"]
    for kind in ("greedy", "sampled"):
        assert 0 < found[kind]["min"] <= found[kind]["mean"] <= found[kind]["max"] <= 500
    after = {p: p.stat().st_mtime_ns for p in shared_cli.home.run_dir(run).rglob("*")}
    assert {p for p in before if before[p] != after.get(p)} == set()


def test_eval_of_a_random_player_is_a_baseline(shared_cli: Cli, trained: dict[str, Any]) -> None:
    options = ("--player", "script:random", "--episodes", 20, "--json")
    found = shared_cli("eval", trained["run"], *options).json
    assert 10 < found["sampled"]["mean"] < 50 and "greedy" not in found


def test_plot_writes_a_png(shared_cli: Cli, trained: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "curve.png"
    done = shared_cli("plot", trained["run"], "--out", out, "--json").json
    assert out.read_bytes().startswith(b"\x89PNG\r\n") and done["points"][trained["run"]] >= 2
    losses = tmp_path / "loss.png"
    shared_cli("plot", trained["run"], "--out", losses, "--metric", "value_loss")
    assert losses.stat().st_size > 5000


def test_the_metrics_hold_what_a_practitioner_looks_for(
    shared_cli: Cli, trained: dict[str, Any]
) -> None:
    from tests.conftest import training_history

    last = list(training_history(shared_cli.home, trained["run"]))[-1]
    wanted = {"policy_loss", "value_loss", "explained_variance", "clip_fraction", "kl", "entropy"}
    assert wanted | {"grad_norm", "learning_rate"} <= last.values.keys()


# --- what there is -------------------------------------------------------------------------------


def test_envs_finds_environments(cli: Cli) -> None:
    rows = cli("envs", "cartpole", "--json").json["environments"]
    assert {"CartPole-v1", "gymnax:CartPole-v1"} <= {row["id"] for row in rows}
    assert "LunarLander-v3" in cli("envs").stdout


def test_algorithms_lists_options(cli: Cli) -> None:
    found = cli("algorithms", "--json").json["algorithms"]
    assert found.keys() == {"ppo", "impala"}
    live = {o["key"]: o["live"] for o in found["ppo"]["options"]}
    assert live["algorithm.learning_rate"] is True and live["algorithm.epochs"] is False


def test_config_show_is_a_config_that_can_be_trained(cli: Cli, tmp_path: Path) -> None:
    options = ("CartPole-v1", "--set", "algorithm.learning_rate=3e-4")
    shown = cli("config", "show", *options, "--json").json
    assert shown["algorithm"]["learning_rate"] == 3e-4
    text = cli("config", "show", *options).stdout
    assert yaml.safe_load(text) == shown
    file = tmp_path / "shown.yaml"
    file.write_text(text)
    assert cli("config", "show", "--config", file, "--json").json == shown


def test_config_schema_marks_live_keys(cli: Cli) -> None:
    schema = cli("config", "show", "--schema", "--json").json
    ppo = schema["$defs"]["PPOConfig"]["properties"]
    assert ppo["learning_rate"]["live"] is True and "live" not in ppo["epochs"]


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys, time, rookery.cli.main\n"
        "try: rookery.cli.main.run(['--help'], time.time())\n"
        "except SystemExit as end: code = end.code\n"
        "heavy = {'jax', 'numpy', 'gymnasium', 'pydantic', 'matplotlib', 'rich'}\n"
        "print(); print(__import__('json').dumps([code, sorted(heavy & sys.modules.keys())]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert "rookery train CartPole-v1" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1]) == [0, []]
