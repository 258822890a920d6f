"""Bad input: one line on stderr that says what to do, exit code 2, no stack trace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery.cli.main import _parse
from rookery.config.reading import build
from rookery.control.create import create_run
from rookery.errors import InputError

if TYPE_CHECKING:
    from tests.conftest import Cli

CARTPOLE = ("train", "CartPole-v1")
TINY = (
    *CARTPOLE,
    *("--launcher", "inline", "--bus", "memory", "--envs-per-actor", 4, "--steps", 64),
    *("--set", "actors.rollout_steps=8"),
)

REFUSED = {
    "unknown environment": (("train", "CartPol-v1"), "CartPole-v1"),
    "environment of an old version": (("train", "LunarLander-v2"), "LunarLander-v3"),
    "unknown gymnax environment": (("train", "gymnax:Breakout-MinAta"), "gymnax:Breakout-MinAtar"),
    "no environment": (("train",), "name one, like CartPole-v1"),
    "no such module": (("train", "no_such_module:Env"), "no module 'no_such_module'"),
    "no such class": (("train", "rookery.testing.envs:CountingEn"), "CountingEnv"),
    "unknown algorithm": ((*CARTPOLE, "--algorithm", "pppo"), "did you mean ppo"),
    "unknown environment option": (("train", "FrozenLake-v1", "--env.is_sliper=1"), "is_slippery"),
    "an algorithm that is not there": (
        (*CARTPOLE, "--algorithm", "no_such_module:Mine"),
        "algorithm no_such_module:Mine: there is no module 'no_such_module'",
    ),
    "no algorithm": ((*CARTPOLE, "--algorithm", "json:loads"), "json:loads is a function without"),
    "unknown key": ((*CARTPOLE, "--set", "algorithm.gama=0.9"), "algorithm.gamma"),
    "unknown part": ((*CARTPOLE, "--set", "algoritm.gamma=0.9"), "algorithm"),
    "key of the other algorithm": ((*CARTPOLE, "--set", "algorithm.rho_clip=1"), "rho_clip"),
    "no value": ((*CARTPOLE, "--set", "seed"), "key=value"),
    "out of range": ((*CARTPOLE, "--actors", -1), "actors.count"),
    "too small": ((*CARTPOLE, "--envs-per-actor", 0), "actors.envs_per_actor"),
    "wrong type by flag": ((*CARTPOLE, "--actors", "two"), "--actors"),
    "wrong type by key": ((*CARTPOLE, "--set", "algorithm.gamma=high"), "algorithm.gamma"),
    "not a number": ((*CARTPOLE, "--set", "algorithm.gamma=nan"), "algorithm.gamma"),
    "a part that is no mapping": ((*CARTPOLE, "--set", "actors=5"), "actors"),
    "an algorithm that is no mapping": ((*CARTPOLE, "--set", "algorithm=impala"), "algorithm.kind"),
    "unknown launcher": ((*CARTPOLE, "--launcher", "kubernetes"), "local"),
    "more learners than lanes can be shared by": (
        (*CARTPOLE, "--envs-per-actor", 32, "--set", "learner.count=3"),
        "set learner.count to 2, or actors.envs_per_actor to a multiple of 3",
    ),
    "a minibatch that learners cannot share": (
        (*CARTPOLE, *("--set", "learner.count=2", "--set", "algorithm.minibatch_size=1")),
        "set it to a multiple, like 2",
    ),
    "lanes of a learner that do not make minibatches": (
        (
            *(*CARTPOLE, "--algorithm", "impala", "--envs-per-actor", 8),
            *("--set", "learner.count=2", "--set", "algorithm.minibatches=8"),
        ),
        "set it to 4",
    ),
    "several learners in one process": (
        (*TINY, "--set", "learner.count=2"),
        "launcher=inline trains with one learner: set learner.count to 1",
    ),
    "several learners on GPUs": (
        (*CARTPOLE, "--set", "learner.count=2", "--set", "learner.device=gpu"),
        "set learner.device to cpu",
    ),
    "options that disagree": ((*CARTPOLE, "--bus", "memory"), "launcher"),
    "unsupported store": ((*CARTPOLE, "--set", "checkpoint.uri=s3://b"), "s3://BUCKET/PREFIX"),
    "unknown option": ((*CARTPOLE, "--stepz", 5), "--steps"),
    "a word from elsewhere": ((*CARTPOLE, "--lr", "1e-3"), "--set algorithm.learning_rate=1e-3?"),
    "unknown command": (("trian", "CartPole-v1"), "train"),
    "missing file": (("train", "--config", "missing.yaml"), "missing.yaml"),
    "no such run": (("resume", "nope"), "rookery runs list"),
    "no run yet": (("eval", "last"), "rookery train"),
    "nothing to show": (("runs", "show", "nope"), "rookery runs list"),
    "nothing to delete": (("runs", "delete", "nope"), "rookery runs list"),
    "nothing to explain": (("why", "nope"), "rookery runs list"),
    "nothing to plot": (("plot", "nope"), "rookery runs list"),
    "no episodes": (("eval", "nope", "--episodes", 0), "--episodes"),
}


@pytest.mark.parametrize(("arguments", "says"), REFUSED.values(), ids=REFUSED)
def test_is_refused_in_one_line(cli: Cli, arguments: tuple[object, ...], says: str) -> None:
    assert says in cli.refused_here(*arguments)
    assert cli.home.states() == {}


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("train CartPole-v1 --lr=1e-3", "--set algorithm.learning_rate=1e-3"),
        ("train CartPole-v1 lr=1e-3", "--set algorithm.learning_rate=1e-3"),
        ("train --device gpu CartPole-v1", "--set learner.device=gpu"),
        ("train CartPole-v1 --gamma 0.9", "--set algorithm.gamma=0.9"),
        ("train CartPole-v1 --num-envs 8", "--envs-per-actor"),
        ("submit CartPole-v1 --total-timesteps 8", "--steps"),
        ("set last --lr 3 gamma=1", "learning_rate=3"),
        ("eval last --episode 3", "--episodes"),
        ("eval last --lr 3", None),  # nothing of eval's own is like it
        ("ladder last --until-return 3", None),  # an option of another verb
    ],
)
def test_an_unknown_option_is_met_by_what_this_verb_can_do(line: str, meant: str | None) -> None:
    with pytest.raises(InputError) as refused:
        _parse(line.split())
    said = str(refused.value)
    assert f"did you mean {meant}?" in said if meant else "did you mean" not in said


@pytest.mark.parametrize("case", ["unknown environment", "out of range", "no such run"])
def test_with_json_stdout_stays_empty(cli: Cli, case: str) -> None:
    arguments, says = REFUSED[case]
    assert says in cli.refused(*arguments, "--json")


FILES = {
    "unknown key": (b"environment: {id: CartPole-v1}\nactors: {cout: 2}\n", "actors.count"),
    "wrong type": (b"environment: {id: CartPole-v1}\nactors: {count: two}\n", "actors.count"),
    "not YAML": (b"environment: {id: [\n", "not valid YAML"),
    "not text": (b"\xff\xfe\x00", "cannot read"),
    "not a mapping": (b"- 1\n", "not a mapping"),
    "empty": (b"", "not a mapping"),
}


@pytest.mark.parametrize(("content", "says"), FILES.values(), ids=FILES)
def test_a_config_file_is_refused_in_one_line(
    cli: Cli, tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    assert says in cli.refused("train", "--config", path)


def test_a_directory_is_not_a_config(cli: Cli, tmp_path: Path) -> None:
    assert str(tmp_path) in cli.refused("train", "--config", tmp_path)


ODD_SPACES = """
import gymnasium
from gymnasium import spaces

class Text(gymnasium.Env):
    observation_space, action_space = spaces.Text(5), spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return "a", {}

class Nested(gymnasium.Env):
    observation_space = spaces.Box(0, 1, (2,))
    action_space = spaces.Dict(a=spaces.Discrete(2))
    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}
"""


@pytest.mark.parametrize(("name", "space"), [("Text", "Text"), ("Nested", "Dict")])
def test_an_unsupported_space_is_named(cli: Cli, tmp_path: Path, name: str, space: str) -> None:
    (tmp_path / "odd.py").write_text(ODD_SPACES)
    error = cli.refused("train", f"odd:{name}", cwd=tmp_path)
    assert f"odd:{name}" in error and space in error and "supported are" in error


# As if the packages in ROOKERY_TEST_MISSING had never been installed.
HIDE_PACKAGES = """
import importlib.machinery, os
find = importlib.machinery.PathFinder.find_spec
hidden = os.environ["ROOKERY_TEST_MISSING"].split(",")
importlib.machinery.PathFinder.find_spec = lambda name, *rest: (
    None if name.split(".")[0] in hidden else find(name, *rest)
)
"""


@pytest.mark.parametrize(
    ("environment", "package", "extra"),
    [
        ("LunarLander-v3", "Box2D", "rookery[box2d]"),
        ("gymnax:CartPole-v1", "gymnax", "rookery[gymnax]"),
        ("ALE/Pong-v5", "ale_py", "rookery[atari]"),
        ("Ant-v5", "mujoco", "rookery[mujoco]"),
    ],
)
def test_a_missing_package_names_its_extra(
    cli: Cli, tmp_path: Path, environment: str, package: str, extra: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDE_PACKAGES)
    hidden = {"PYTHONPATH": str(tmp_path), "ROOKERY_TEST_MISSING": package}
    error = cli.refused("train", environment, env=hidden)
    assert environment in error and extra in error


def test_an_ambiguous_run_lists_the_candidates(cli: Cli) -> None:
    config = build({"environment": {"id": "CartPole-v1"}})
    runs = [create_run(cli.home, config) for _ in range(2)]
    error = cli.refused("runs", "show", "cartpole")
    assert all(run in error for run in runs)


def test_a_run_whose_checkpoints_are_all_damaged_cannot_be_resumed(cli: Cli) -> None:
    run = cli(*TINY, "--json").json["run"]
    states = list(cli.home.run_dir(run).glob("checkpoints/*/state.safetensors"))
    assert states
    for state in states:
        state.write_bytes(state.read_bytes()[:-7])
    for command in ("resume", "eval"):
        error = cli.refused(command, run)
        assert states[-1].parent.name in error and "SHA-256" in error and "train a new" in error


def test_a_home_that_cannot_be_made_is_refused(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = {"ROOKERY_HOME": str(tmp_path / "file" / "home")}
    assert "ROOKERY_HOME" in cli.refused(*CARTPOLE, env=home)


@pytest.fixture
def read_only_home(home: Path) -> Iterator[Path]:
    """A home that exists and refuses writes, to root too."""
    home.mkdir()
    if os.getuid() != 0:
        home.chmod(0o555)
        yield home
        home.chmod(0o755)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(home)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("root writes everywhere, and this machine does not let it mount a tmpfs")
    yield home
    subprocess.run(["umount", str(home)], check=True)


def test_a_read_only_home_is_refused(read_only_home: Path, cli: Cli) -> None:
    error = cli.refused(*CARTPOLE)
    assert str(read_only_home) in error and "writ" in error


def test_an_algorithm_that_learners_cannot_share_is_named(
    cli: Cli,
) -> None:
    own = ("--algorithm", "toy_replay:Repeat", "--set", "learner.count=2")
    error = cli.refused(*CARTPOLE, *own, cwd=Path(__file__).parents[1] / "algorithms")
    assert "cannot be shared by several learners: set learner.count to 1" in error
    assert cli.home.states() == {}
