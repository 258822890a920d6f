"""EnvRunners on a real local Ray."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rookery.ray
from rookery.errors import InputError, UnknownName
from rookery.ray import RunnerWeights

CONFIG = {
    "environment": {"id": "CartPole-v1"},
    "actors": {"envs_per_actor": 4, "rollout_steps": 8},
}
WAIT_S = 120.0


def test_runners_sample_beside_each_other_and_take_weights_by_reference(local_ray: Any) -> None:
    make = local_ray.remote(rookery.ray.EnvRunner).options(num_cpus=1)
    runners = [make.remote(CONFIG, seed=seed) for seed in range(2)]

    first = local_ray.get([r.sample.remote(num_steps=64) for r in runners], timeout=WAIT_S)
    begun = local_ray.get(runners[0].get_weights.remote(), timeout=WAIT_S)
    arrays = {name: array + 1 for name, array in begun["main"].items()}
    weights = local_ray.put(RunnerWeights.of({"main": arrays}, number=7))
    local_ray.get([r.set_weights.remote(weights) for r in runners], timeout=WAIT_S)
    second = local_ray.get([r.sample.remote(num_steps=64) for r in runners], timeout=WAIT_S)
    now = local_ray.get(runners[1].get_weights.remote(), timeout=WAIT_S)

    assert [s.sequence for s in [*first, *second]] == [0, 0, 1, 1]
    assert {s.fragment().header.actor for s in first} == {"0.0", "1.0"}
    assert all(b.first_step == a.steps >= 64 for a, b in zip(first, second, strict=True))
    assert [s.version.number for s in [*first, *second]] == [0, 0, 7, 7]
    np.testing.assert_array_equal(now["main"]["pi.0.w"], arrays["pi.0.w"])
    with pytest.raises(InputError, match=r"pi\.0\.b has shape \(1,\)"):
        wrong = RunnerWeights.of({"main": {**arrays, "pi.0.b": np.zeros(1, np.float32)}})
        local_ray.get(runners[0].set_weights.remote(wrong), timeout=WAIT_S)
    local_ray.get([r.stop.remote() for r in runners], timeout=WAIT_S)
    with pytest.raises(InputError, match="was stopped"):
        local_ray.get(runners[0].sample.remote(num_steps=1), timeout=WAIT_S)
    for runner in runners:
        local_ray.kill(runner)


def test_an_environment_that_there_is_not_is_told_by_its_one_line(local_ray: Any) -> None:
    runner = local_ray.remote(rookery.ray.EnvRunner).remote("CartPole-v7")

    with pytest.raises(local_ray.exceptions.ActorDiedError, match="did you mean CartPole-v1"):
        local_ray.get(runner.sample.remote(num_steps=1), timeout=WAIT_S)

    @local_ray.remote
    def make_it_there() -> None:
        rookery.ray.EnvRunner("CartPole-v7")

    with pytest.raises(UnknownName) as refused:
        local_ray.get(make_it_there.remote(), timeout=WAIT_S)
    assert refused.value.nearest[0] == "CartPole-v1"
