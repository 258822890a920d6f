"""Rookery from Python, as in a script or a notebook."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import rookery
from rookery.control.home import Home
from rookery.errors import InputError, RookeryError, UnknownName

if TYPE_CHECKING:
    from tests.conftest import Cli

SMALL: dict[str, Any] = {
    "envs_per_actor": 8,
    "launcher": "inline",
    "config": {"actors": {"rollout_steps": 32}},
    "quiet": True,
}


@pytest.fixture(scope="module")
def place(shared_cli: Cli) -> Path:
    """A home whose runs this process may carry itself."""
    return shared_cli.home.path


@pytest.fixture(scope="module")
def run(place: Path) -> rookery.Run:
    return rookery.train("CartPole-v1", steps=4000, seed=1, home=place, **SMALL)


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("lr", 1e-3, "config={'algorithm': {'learning_rate': 0.001}}"),
        ("learning_rate", 1e-3, "config={'algorithm': {'learning_rate': 0.001}}"),
        ("total_timesteps", 5000, "steps=5000"),
        ("num_envs", 8, "envs_per_actor=8"),
        ("rollout_steps", 64, "config={'actors': {'rollout_steps': 64}}"),
        ("env_id", "Acrobot-v1", "environment='Acrobot-v1'"),
        ("until_retrun", 400, "until_return"),
    ],
)
@pytest.mark.parametrize("function", ["train", "sweep"])
def test_an_argument_that_there_is_not_is_one_line_with_what_was_meant(
    function: str, name: str, value: Any, meant: str
) -> None:
    said = f"rookery.{function} takes no argument {name!r}; did you mean {meant}?"
    with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
        getattr(rookery, function)("CartPole-v1", **{name: value})


def test_an_argument_that_is_like_none_is_refused_too() -> None:
    with pytest.raises(InputError, match=r"no argument 'zzz'; see help\(rookery.train\)"):
        rookery.train("CartPole-v1", zzz=1)  # type: ignore[call-arg]


def test_the_public_names_are_these() -> None:
    assert rookery.__all__ == [
        *("Policy", "Run", "Sweep", "__version__", "load", "load_sweep", "match", "register"),
        *("sweep", "train"),
    ]
    for name in rookery.__all__:
        assert getattr(rookery, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = rookery.no_such_name
    public = {name for name in vars(rookery.Run) if not name.startswith("_")}
    assert public == {
        *("config", "env_steps", "evaluate", "ladder", "mean_return_100", "policy", "resume"),
        *("show", "status"),
    }


def test_train_returns_the_finished_run(run: rookery.Run) -> None:
    assert run.status == "finished" and run.env_steps >= 4000
    assert run.mean_return_100 is not None and run.mean_return_100 > 10
    assert run.config.seed == 1 and run.config.actors.envs_per_actor == 8
    assert run.show()["balance"]["exact"]
    assert run.id in repr(run) and "finished" in repr(run)


def test_looking_at_a_run_reads_none_of_its_weights(
    run: rookery.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path.name) or real(path))
    assert f"env_steps={run.env_steps:,}" in repr(run) and run.show()["balance"]["exact"]
    assert "manifest.json" in read and "state.safetensors" not in read


def test_a_policy_acts_in_the_environments_own_spaces(run: rookery.Run) -> None:
    policy = run.policy()
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    actions = []
    for _ in range(8):
        action = policy.act(observation)
        assert isinstance(action, int) and env.action_space.contains(action)
        assert policy.act(observation) == action  # greedy
        actions.append(action)
        observation, *_ = env.step(action)
    env.close()
    sampled = run.policy(greedy=False)
    tilted = np.array([0.0, 0.0, 0.0, 0.0], np.float32)
    assert {sampled.act(tilted) for _ in range(200)} == {0, 1}


def test_evaluate_plays_fresh_episodes(run: rookery.Run) -> None:
    found = run.evaluate(episodes=10)
    assert found["run"] == run.id and found["greedy"]["mean"] > 9
    assert found == run.evaluate(episodes=10)


def test_load_finds_a_run_by_name(run: rookery.Run, place: Path) -> None:
    for name in (run.id, run.id[:-1], "last"):
        assert rookery.load(name, home=place).id == run.id
    with pytest.raises(UnknownName, match="nope"):
        rookery.load("nope", home=place)


def test_a_finished_run_goes_on_with_more_steps_and_not_without(run: rookery.Run) -> None:
    before = run.env_steps
    with pytest.raises(InputError, match="resume it with a new bound, like steps="):
        run.resume(quiet=True)
    assert run.env_steps == before, "nothing was trained"
    again = run.resume(quiet=True, steps=before + 500)
    assert again.status == "finished" and again.env_steps >= before + 500
    assert again.config.stop.steps == before + 500


def test_train_in_worker_processes(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**SMALL, "launcher": "local", "quiet": False}
    labels: dict[str, Any] = {"name": "a try", "tags": ["nightly"], "notes": "why"}
    trained = rookery.train("CartPole-v1", steps=2000, home=cli.home.path, **options, **labels)
    assert {key: trained.show()[key] for key in labels} == labels
    assert trained.status == "finished" and trained.env_steps >= 2000
    assert "finished: " in capsys.readouterr().out
    assert [w["alive"] for w in trained.show()["workers"]] == [False, False]


def test_bad_input_is_an_input_error(place: Path) -> None:
    with pytest.raises(InputError, match="CartPole-v1"):
        rookery.train("CartPol-v1", home=place)
    with pytest.raises(InputError, match=r"actors\.count"):
        rookery.train("CartPole-v1", actors=-1, home=place)


def test_a_run_that_fails_raises(place: Path) -> None:
    options = {**SMALL, "config": {"restarts": {"max_restarts": 0}}}
    with pytest.raises(RookeryError, match="this environment fails at step 50"):
        rookery.train("rookery.testing.envs:FailingEnv", env={"at": 50}, home=place, **options)


def test_environment_options_and_registered_ids(place: Path, monkeypatch: Any) -> None:
    from rookery.envs import registry
    from rookery.testing.envs import CountingEnv

    monkeypatch.setattr(registry, "_registered", {})
    rookery.register("counting", CountingEnv)
    options = {**SMALL, "steps": 512}
    trained = rookery.train("counting", env={"length": 6}, home=place, **options)
    assert trained.mean_return_100 == 6.0


def test_a_registered_id_is_refused_at_once_where_actors_are_other_processes(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from rookery.envs import registry
    from rookery.testing.envs import CountingEnv

    monkeypatch.setattr(registry, "_registered", {})
    for factory, instead in (
        (CountingEnv, "name it as 'rookery.testing.envs:CountingEnv', which they can import"),
        (lambda: CountingEnv(3), "name it as 'module:Class'"),
    ):
        rookery.register("counting", factory)
        with pytest.raises(InputError, match=re.escape(instead)) as refused:
            rookery.train("counting", home=tmp_path)
        assert "launcher='inline'" in str(refused.value)
    assert not Home(tmp_path).states(), "no run was made"


UNGUARDED = """
import sys
import gymnasium, numpy, rookery

class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), "float32")
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return numpy.zeros(2, "float32"), {}

    def step(self, action):
        return numpy.zeros(2, "float32"), 1.0, True, False, {}

CALL
"""


def call_unguarded(cli: Cli, folder: Path, call: str) -> tuple[int, str]:
    """Run a script that calls this at its top; on code that lets it multiply, for 20 s."""
    (folder / "itself.py").write_text(UNGUARDED.replace("CALL", call))
    script = subprocess.Popen(
        [sys.executable, "itself.py"],
        cwd=folder,
        env=cli.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, said = script.communicate(timeout=20)
    finally:
        script.kill()
        script.communicate()
    return script.returncode, said.decode()


@pytest.mark.parametrize("launcher", ["local", "inline"])
def test_a_script_that_trains_when_it_is_imported_is_refused_and_makes_no_run(
    cli: Cli, tmp_path: Path, launcher: str
) -> None:
    call = f"rookery.train('itself:Env', steps=100_000_000, launcher={launcher!r})"
    code, said = call_unguarded(cli, tmp_path, call)
    assert code == 1
    last = said.strip().splitlines()[-1]
    assert "rookery.train was called while a run imports itself" in last
    assert 'put the call under `if __name__ == "__main__":` there' in last
    assert not cli.home.states() and not cli.processes()


def test_submitting_and_the_shell_refuse_it_too(cli: Cli, tmp_path: Path) -> None:
    call = "from rookery.client.local import LocalClient\n"
    call += "LocalClient().submit({'environment': {'id': 'itself:Env'}})"
    code, said = call_unguarded(cli, tmp_path, call)
    assert code == 1 and "submit was called while a run imports itself" in said.splitlines()[-1]
    refused = cli.refused("train", "itself:Env", cwd=tmp_path)
    assert "submit was called while a run imports itself" in refused
    assert not cli.home.states()


def test_a_failed_inline_run_leaves_nothing_that_could_end_the_process(tmp_path: Path) -> None:
    """The watch over a hung environment must not outlive the run: it ends its whole process."""
    with pytest.raises(RookeryError, match="failed"):
        rookery.train(
            "rookery.testing.envs:FailingEnv",
            env={"at": 3},
            launcher="inline",
            steps=1000,
            config={"restarts": {"max_restarts": 0}},
            home=tmp_path,
            quiet=True,
        )
    watches = [t for t in threading.enumerate() if t.name == "deadline-watch"]
    for watch in watches:
        watch.join(timeout=10)
    assert not any(watch.is_alive() for watch in watches)
