"""EnvRunners and a served policy on a real local Ray, one for all of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest

import rookery.ray
from rookery.checkpoints.policies import load_policy
from rookery.control.home import Home
from rookery.errors import InputError, UnknownName
from rookery.ray import RunnerWeights

if TYPE_CHECKING:
    from tests.ray.conftest import Trained

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


def test_a_policy_answers_as_it_would_in_this_process(
    local_ray: Any, trained: Trained, free_port: int
) -> None:
    from ray import serve

    run, home = trained
    policy, frozen = run.policy(), load_policy(Home(home).files(run.id))
    seen = np.random.default_rng(1).normal(size=(40, 4)).astype(np.float32)
    wanted = [policy.act(each) for each in seen]
    assert set(wanted) == {0, 1}
    app = rookery.ray.serve_app(run.id, home=home, max_batch=16, batch_wait_s=0.01)
    serve.start(http_options={"host": "127.0.0.1", "port": free_port})
    try:
        serve.run(app, name="policy", route_prefix="/policy")
        with httpx2.Client(base_url=f"http://127.0.0.1:{free_port}", timeout=WAIT_S) as client:

            def ask(body: Any) -> httpx2.Response:
                return client.post("/policy", json=body)

            with ThreadPoolExecutor(8) as many:
                singly = list(many.map(lambda x: ask({"observation": x.tolist()}).json(), seen))
            together = ask({"observations": seen.tolist()}).json()
            short = ask({"observation": [1.0, 2.0]})
            no_json = client.post("/policy", content=b"{")
    finally:
        serve.shutdown()

    assert singly == [{"action": action, "version": frozen.number} for action in wanted]
    assert together == {"actions": wanted, "version": frozen.number}
    assert (short.status_code, no_json.status_code) == (422, 400)
    assert short.json() == {"error": "observation has shape [2], not [4]"}
    assert "\n" not in no_json.json()["error"]
