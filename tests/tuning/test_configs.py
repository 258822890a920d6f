"""From a point of the space to a config and back; what is wrong is one line, before any run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.tuning.configs import Configs
from rookery.tuning.proposals import proposer
from rookery.tuning.text import read_lines

BASE: dict[str, Any] = {"environment": {"id": "CartPole-v1"}, "stop": {"steps": 1000}, "seed": 7}
SPACE = (
    "algorithm.learning_rate=log:1e-5..1e-2",
    "algorithm.kind=ppo|impala",
    "algorithm.clip=0.1..0.3 if algorithm.kind=ppo",
    "algorithm.rho_clip=0.5..2 if algorithm.kind=impala",
    "network.hidden=64|[64,64]|[256,256]",
    "network.normalize_observations=true|false",
    "actors.envs_per_actor=logint:4..64",
    "environment.kwargs.sutton_barto_reward=true|false",
)
CONFIGS = Configs(BASE, read_lines(SPACE))


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_values_are_found_again_in_the_config(number: int) -> None:
    values = proposer("random", 0)(CONFIGS.search, [], number)
    config = CONFIGS.build(values, seed=2)
    assert config.seed == 9
    assert CONFIGS.values_of(config.model_dump(mode="json")) == values


def test_a_part_may_be_chosen_whole() -> None:
    options = '{"hidden":[32],"activation":"relu"}|{"hidden":[64]}'
    configs = Configs(BASE, read_lines([f"network={options}", "network.gaussian=clipped|squashed"]))
    values = {"network": {"hidden": [64]}, "network.gaussian": "squashed"}
    config = configs.build(values)
    assert (config.network.hidden, config.network.gaussian) == ((64,), "squashed")
    assert configs.values_of(config.model_dump(mode="json")) == values


def test_each_run_has_its_own_place_in_a_store_for_all() -> None:
    configs = Configs({**BASE, "checkpoint": {"uri": "file:/there"}}, read_lines(SPACE[:1]))
    values = {"algorithm.learning_rate": 1e-3}
    assert configs.build(values, 0, "s-0-0").checkpoint.uri == "file:/there/s-0-0"
    assert configs.build(values).checkpoint.uri == "file:/there"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("algorithm.learning_rat=log:1e-5..1e-2", "did you mean algorithm.learning_rate?"),
        ("lr=log:1e-5..1e-2", "algorithm.learning_rate"),
        ("algorithm.gamma=0.9..1.5", "less than or equal to 1"),
        ("algorithm.gamma=-1..0.9", "greater than or equal to 0"),
        ("algorithm.epochs=1..10", "write int:1..10"),
        ("actors.rollout_steps=log:8..64", "write logint:8..64"),
        ("network.activation=relu|gelu", "'tanh' or 'relu'"),
        ("network.hidden=64|[64]", "64 and [64] are the same"),
        ("network.hidden=small|large", "network.hidden"),
        ("algorithm.kind=ppo|pppo", "did you mean ppo"),
        ("actors.count=int:0..2", "actors.count"),
        ("seed=1|2", "--seeds"),
        ("environment.id=CartPole-v1|Acrobot-v1", "cannot be searched"),
        ("algorithm.rho_clip=0.5..2", "rho_clip"),
    ],
)
def test_what_a_run_cannot_be_is_one_line(line: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Configs(BASE, read_lines([line]))
    assert says in str(caught.value) and "\n" not in str(caught.value)
