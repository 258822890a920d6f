"""Weights between runners, learners and runs; and what of all this is pickled: nothing of ours."""

from __future__ import annotations

import pickle
import pickletools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rookery.ray
from rookery.checkpoints.policies import load_policy
from rookery.control.home import Home
from rookery.errors import InputError, MessageError, UnknownName
from rookery.ray import EnvRunner, RunnerWeights, load_weights
from rookery.ray.sample import decode_sample
from rookery.ray.weights import decode_runner_weights

if TYPE_CHECKING:
    from tests.ray.conftest import Trained

SMALL = {"actors": {"envs_per_actor": 4, "rollout_steps": 8}}
CARTPOLE: dict[str, Any] = {"environment": {"id": "CartPole-v1"}, **SMALL}


def test_the_public_names_are_these() -> None:
    assert rookery.ray.__all__ == [
        *("EnvRunner", "RunnerWeights", "Sample", "load_weights", "serve_app", "tuner"),
    ]
    public = {name for name in vars(EnvRunner) if not name.startswith("_")}
    assert public == {
        *("get_metrics", "get_spaces", "get_weights", "sample", "set_weights", "stop"),
    }


@pytest.mark.parametrize("by_name", [True, False])
def test_a_runner_plays_with_the_weights_of_a_run(trained: Trained, by_name: bool) -> None:
    run, home = trained
    frozen = load_policy(Home(home).files(run.id))
    runner = EnvRunner(run.config)

    runner.set_weights(load_weights(run.id, home=home) if by_name else frozen)

    assert runner.sample(num_steps=8).version.number == frozen.number > 0
    for name, array in frozen.arrays.items():
        np.testing.assert_array_equal(runner.get_weights()["main"][name], array)


def test_a_learner_of_the_same_config_begins_with_the_weights_of_a_runner(
    trained: Trained,
) -> None:
    """So a fragment of version 0 is on-policy for it."""
    from rookery.algorithms.networks import Network, initial_arrays

    config = trained.run.config
    runner = EnvRunner(config)
    network = Network(runner.get_spaces()["main"], config.network)

    begun = network.acting_arrays(*initial_arrays(network, config.seed))

    assert begun.keys() == runner.get_weights()["main"].keys()
    for name, array in begun.items():
        np.testing.assert_array_equal(runner.get_weights()["main"][name], array)


def test_weights_of_one_runner_make_another_play_the_same() -> None:
    one, other = EnvRunner({**CARTPOLE, "seed": 5}), EnvRunner(CARTPOLE)
    assert not np.array_equal(
        one.get_weights()["main"]["pi.0.w"], other.get_weights()["main"]["pi.0.w"]
    )

    other.set_weights(pickle.loads(pickle.dumps(one.get_weights())))

    for name, array in one.get_weights()["main"].items():
        np.testing.assert_array_equal(other.get_weights()["main"][name], array)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda arrays: {**arrays, "pi.0.w": np.zeros((8, 64))},
            "pi.0.w has shape (8, 64), not (4,",
        ),
        (lambda arrays: {"pi.0.w": arrays["pi.0.w"]}, "only one of the two has"),
        (lambda arrays: [1], "pass {name: array}"),
    ],
)
def test_weights_of_another_shape_are_refused_in_one_line(change: Any, told: str) -> None:
    runner = EnvRunner(CARTPOLE)
    before = runner.get_weights()

    with pytest.raises(InputError) as refused:
        runner.set_weights({"main": change(dict(before["main"]))})

    assert told in str(refused.value) and "\n" not in str(refused.value)
    assert runner.get_weights() is before


def test_weights_of_nobody_are_refused() -> None:
    runner = EnvRunner(CARTPOLE)
    with pytest.raises(UnknownName, match="policies here: main"):
        runner.set_weights({"mian": {}})
    with pytest.raises(InputError, match="int is no kind of weights"):
        runner.set_weights(7)  # type: ignore[arg-type]


def test_pickling_meets_one_function_of_ours_and_bytes() -> None:
    runner = EnvRunner(CARTPOLE)
    for value in (runner.sample(num_steps=8), runner.get_weights()):
        named = _globals(pickle.dumps(value, 5))
        assert named in (
            ["rookery.ray.sample decode_sample"],
            ["rookery.ray.weights decode_runner_weights"],
        )


def _globals(data: bytes) -> list[str]:
    """What unpickling would import."""
    texts: list[str] = []
    found = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            found.append(str(argument))
        elif opcode.name == "STACK_GLOBAL":
            found.append(" ".join(texts[-2:]))
        elif isinstance(argument, str):
            texts.append(argument)
    return found


def test_bytes_that_are_no_sample_and_no_weights_are_refused() -> None:
    runner = EnvRunner(CARTPOLE)
    _, payloads = runner.sample(num_steps=8).__reduce__()
    _, weights = runner.get_weights().__reduce__()
    damaged = payloads[0][:-1] + bytes([payloads[0][-1] ^ 1])

    for wrong in ((damaged,), (weights[0],), payloads * 2, (b"",)):
        with pytest.raises(MessageError):
            decode_sample(*wrong)
    for wrong in ((payloads[0],), weights * 2):
        with pytest.raises(MessageError):
            decode_runner_weights(*wrong)
    assert RunnerWeights.of(decode_runner_weights(*weights)).policies.keys() == {"main"}
