"""A new algorithm is one file (toy_algorithm.py) and one line in `config/kinds.py`.

A user's own (toy_replay.py) is a file, and no line: `module:name`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rookery
from rookery.algorithms import algorithm_of
from rookery.algorithms.networks import Network
from rookery.algorithms.policies import PolicySetup, grouped
from rookery.checkpoints.checkpoint import newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.config import kinds
from rookery.config.algorithm import OwnConfig
from rookery.config.live import effective, live_values
from rookery.config.models import NetworkConfig, RunConfig
from rookery.config.reading import build, validate
from rookery.control import catalogue
from rookery.control.context import open_context
from rookery.control.create import create_run
from rookery.control.home import Home
from rookery.errors import ConfigError, InputError, UnknownName
from rookery.launchers.inline import take_turns
from rookery.learner.manifest import LearnerManifest
from rookery.messages.frame import Arrays
from rookery.spaces import Categorical, Leaf, SeatSpec
from rookery.testing.algorithm_suite import AlgorithmSuite
from rookery.worker import WorkerId

OWN = "toy_replay:Repeat"
WORLD = {"environment": {"id": "toy_world:Shown"}, "launcher": "inline"}
SMALL = {"actors": {"envs_per_actor": 16, "rollout_steps": 16}, "network": {"hidden": [16]}}
both = pytest.mark.parametrize("kind", ["reinforce", OWN])


@pytest.fixture(autouse=True)
def the_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setitem(kinds.ALGORITHMS, "reinforce", "toy_algorithm:Reinforce")


class TestReinforce(AlgorithmSuite):
    def make_config(self) -> Any:
        from toy_algorithm import ReinforceConfig

        return ReinforceConfig(learning_rate=0.02)


class TestRepeat(AlgorithmSuite):
    def make_config(self) -> Any:
        from toy_replay import RepeatConfig

        return RepeatConfig(learning_rate=0.02)


def config_of(kind: str, *layers: dict[str, Any]) -> RunConfig:
    return build(WORLD, SMALL, {"algorithm": {"kind": kind, "learning_rate": 0.02}}, *layers)


# --- what everyone is told of it -----------------------------------------------------------------


def test_the_line_puts_it_into_every_list() -> None:
    from toy_algorithm import ReinforceConfig

    assert "tau" in RunConfig.model_json_schema()["$defs"]["ReinforceConfig"]["properties"]
    options = {o["key"]: o["live"] for o in catalogue.algorithms()["reinforce"]["options"]}
    assert options["algorithm.tau"] is True and options["algorithm.passes"] is False
    config = config_of("reinforce")
    assert effective(config, {"algorithm.tau": 0.1}).algorithm == ReinforceConfig(
        learning_rate=0.02, tau=0.1
    )
    with pytest.raises(ConfigError, match=r"unknown config key 'algorithm.tauu'; .* algorithm.tau"):
        config_of("reinforce", {"algorithm": {"tauu": 1}})


def test_without_the_line_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(kinds.ALGORITHMS, "reinforce")
    with pytest.raises(UnknownName, match="rookery algorithms"):
        config_of("reinforce")
    with pytest.raises(ConfigError, match="unknown algorithm 'reinforce'"):
        validate({**WORLD, "algorithm": {"kind": "reinforce"}})


def test_a_policy_may_learn_by_another_than_the_run() -> None:
    config = config_of("ppo", {"policies": {"a": {"algorithm": {"kind": OWN}}, "b": {}}})
    assert [p.algorithm.kind for p in config.policies.values()] == [OWN, "ppo"]


# --- a user's own --------------------------------------------------------------------------------


def test_a_users_own_is_not_imported_to_be_read() -> None:
    code = (
        "import sys; from rookery.config.reading import build; "
        f"config = build({WORLD!r}, {{'algorithm': {{'kind': {OWN!r}, 'passes': 3}}}}); "
        "assert config.model_dump(mode='json')['algorithm'] == "
        f"{{'kind': {OWN!r}, 'passes': 3}}; "
        "sys.exit('toy_replay' in sys.modules or 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert done.returncode == 0


def test_its_own_model_reads_what_was_written_and_fills_the_rest() -> None:
    from toy_replay import RepeatConfig

    config = config_of(OWN, {"algorithm": {"passes": 3}})
    assert isinstance(config.algorithm, OwnConfig)
    assert validate(config.model_dump(mode="json")) == config
    assert algorithm_of(config.algorithm).config == RepeatConfig(learning_rate=0.02, passes=3)
    assert live_values(config) == {"algorithm.learning_rate": 0.02}  # all that is known unread
    assert not live_values(build(WORLD, {"algorithm": {"kind": OWN}}))


@pytest.mark.parametrize(
    ("algorithm", "says"),
    [
        ({"kind": "no_such_module:X"}, "algorithm no_such_module:X: there is no module"),
        ({"kind": ":X"}, "algorithm :X: importing"),
        ({"kind": "toy_replay:Repet"}, "has no 'Repet'; did you mean Repeat"),
        ({"kind": "toy_replay:np"}, "is a module without a Config, not an algor"),
        ({"kind": OWN, "passes": 0}, "algorithm.passes: input should be greater"),
        ({"kind": OWN, "pases": 1}, "unknown config key 'algorithm.pases'"),
        ({"kind": OWN, "learning_rate": 7}, "algorithm.learning_rate: input should be less"),
    ],
)
def test_what_is_wrong_with_it_is_one_line_before_a_run_exists(
    tmp_path: Path, algorithm: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as caught:
        create_run(Home(tmp_path), build(WORLD, {"algorithm": algorithm}))
    assert says in str(caught.value) and "\n" not in str(caught.value)
    assert not Home(tmp_path).states()


def test_an_update_of_its_own_knows_no_encoder() -> None:
    from toy_replay import RepeatConfig

    seat = SeatSpec((Leaf("", "box", (3,), "float32"),), Categorical(2))
    network = Network(seat, NetworkConfig(encoder="eye"))
    with pytest.raises(ConfigError, match=r"'main' names the encoder 'eye' but .*Repeat has"):
        grouped([PolicySetup("main", network, RepeatConfig(), 4)], 8)


# --- a run ---------------------------------------------------------------------------------------


@both
def test_a_run_learns_by_it(kind: str, tmp_path: Path) -> None:
    run = rookery.train(
        "toy_world:Shown",
        algorithm=kind,
        launcher="inline",
        until_return=0.95,
        steps=60_000,
        config={**SMALL, "algorithm": {"learning_rate": 0.02}},
        home=tmp_path,
        quiet=True,
    )
    assert run.status == "solved"


def checkpointed(home: Home, run: str) -> Arrays:
    found = newest_checkpoint(open_store(home.files(run).checkpoints), LearnerManifest)
    assert found is not None
    return {name: x for name, x in found.arrays.items() if name.startswith("main/")}


def live(home: Home, run: str, life: int, updates: int) -> None:
    """One life of a run, killed after so many turns unless it ends before."""
    turns = take_turns(open_context(home, run), WorkerId("inline", 0, life), lambda: False)
    for turn, code in enumerate(turns):
        assert code in (None, 0)
        if turn > 2 * updates:
            break
    turns.close()


@both
def test_a_resumed_run_equals_one_that_was_never_interrupted(kind: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    config = config_of(kind, {"stop": {"steps": 20 * 256}, "checkpoint": {"every_updates": 4}})
    whole, killed = create_run(home, config), create_run(home, config)

    live(home, whole, 1, updates=1000)
    live(home, killed, 1, updates=10)
    between = checkpointed(home, killed)
    live(home, killed, 2, updates=1000)

    ours, theirs = checkpointed(home, killed), checkpointed(home, whole)
    extra = [name for name in ours if name.startswith("main/extra/")]
    assert extra and ours.keys() == theirs.keys() == between.keys()
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    assert any(not np.array_equal(ours[name], between[name]) for name in extra)
    home.close()
