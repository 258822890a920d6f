"""What environments print: never into the JSON of a verb, never into the progress line."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import PIPE, run

import pytest

from tests.conftest import Cli

INLINE = ("--launcher", "inline", "--envs-per-actor", 2, "--set", "actors.rollout_steps=32")
ROOKERY = (sys.executable, "-m", "rookery")
NOISY = """
import os, subprocess, sys
from rookery.testing.envs import CountingEnv
from rookery.testing.games import DwindlingGame

def shout(where):
    print(f"python in {where}")
    print(f"half a line in {where} ", end="")
    sys.__stdout__.write(f"the first stream in {where}\\n")
    os.write(1, f"C in {where}\\n".encode())
    subprocess.run(["echo", f"a child in {where}"])

shout("import")

class Env(CountingEnv):
    def __init__(self):
        super().__init__()
        shout("init")
    def reset(self, **options):
        if not self.count:
            shout("reset")
        return super().reset(**options)
    def close(self):
        shout("close")

class Game(DwindlingGame):
    def reset(self, *args, **options):
        shout("reset")
        return super().reset(*args, **options)
"""


@pytest.fixture
def noisy(cli: Cli, tmp_path: Path) -> Cli:
    (tmp_path / "noisy.py").write_text(NOISY)
    cli.environment["PYTHONPATH"] = str(tmp_path)
    return cli


def test_json_stays_pure_whatever_an_environment_prints(noisy: Cli) -> None:
    trained = noisy("train", "noisy:Env", *INLINE, "--steps", 256, "--json")
    log = (noisy.home.run_dir(trained.json["run"]) / "logs" / "inline-0.1.log").read_text()
    for part in ("python", "the first stream", "C", "a child"):
        assert f"{part} in import" in trained.stderr  # while it was looked at: there was no worker
        assert f"{part} in close" in log and f"{part} in reset" in log
    assert trained.stderr.count("C in reset") == 1, "its prints in training are in the log"
    evaluated = noisy("eval", "last", "--episodes", 2, "--json")
    assert evaluated.json["greedy"]["mean"] == 5.0 and "C in reset" in evaluated.stderr
    submitted = noisy("submit", "noisy:Env", "--dry-run", "--json")
    assert submitted.json["outcome"] == "would_accept"


def test_the_json_of_a_match_stays_pure(noisy: Cli) -> None:
    done = noisy("match", "noisy:Game", "script:random", "script:random", "--games", 2, "--json")
    assert done.json["games"] == 2 and "C in reset" in done.stderr


def test_prints_leave_the_progress_line_alone(noisy: Cli) -> None:
    words = [*ROOKERY, "train", "noisy:Env", *map(str, INLINE), "--steps", "256"]
    asked = [sys.executable, "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) != 0)"]
    done = run([*asked, *words], env=noisy.environment, stdout=PIPE, timeout=120, check=True)
    before, _, after = done.stdout.decode().partition("inline launcher")
    assert "C in init" in before and "steps/s" in after and "finished" in after
    assert " in reset" not in after and " in close" not in after


def test_without_a_reader_json_is_no_error(cli: Cli) -> None:
    asked = ["sh", "-c", '"$@" >&-', "sh", *ROOKERY, "players", "--json"]
    run(asked, env=cli.environment, timeout=60, check=True)
