"""Rookery from Python, as in a script or a notebook."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import rookery
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


def test_the_public_names_are_these() -> None:
    assert rookery.__all__ == [
        *("Policy", "Run", "__version__", "load", "match", "register", "train"),
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


def test_a_finished_run_resumes_to_the_same_end(run: rookery.Run) -> None:
    before = run.env_steps
    again = run.resume(quiet=True)
    assert again.status == "finished" and again.env_steps >= before


def test_train_in_worker_processes(cli: Cli, capsys: pytest.CaptureFixture[str]) -> None:
    options = {**SMALL, "launcher": "local", "quiet": False}
    trained = rookery.train("CartPole-v1", steps=2000, home=cli.home.path, **options)
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
