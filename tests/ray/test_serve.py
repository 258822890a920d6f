"""What a served policy makes of any JSON, and what serve_app refuses; asked over HTTP it is in
test_local_ray.py."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rookery.ray
from rookery.checkpoints.policies import load_policy
from rookery.control.home import Home
from rookery.errors import InputError, MissingExtra, UnknownName
from rookery.ray.asked import MOST_ROWS, read
from rookery.spaces import Categorical, Leaf, SeatSpec

if TYPE_CHECKING:
    from tests.ray.conftest import Trained

PLAIN = SeatSpec((Leaf("", "box", (2,), "float32"),), Categorical(3))
MASKED = SeatSpec(PLAIN.observation, Categorical(3), masked=True)
NESTED = SeatSpec(
    (Leaf("arm.0", "discrete", (), "int64", (4,)), Leaf("eye", "image", (1, 2, 1), "uint8")),
    Categorical(3),
)


def test_the_replica_decides_for_all_that_wait_in_one_pass(trained: Trained) -> None:
    """What `serve.batch` calls, with requests of one and of several observations."""
    pytest.importorskip("ray.serve")
    import msgspec

    from rookery.messages.weights import encode_weights
    from rookery.ray.replica import PolicyReplica

    run, home = trained
    frozen = load_policy(Home(home).files(run.id))
    (message,) = rookery.ray.load_weights(run.id, home=home).policies.values()
    network = frozen.network
    replica = PolicyReplica(
        encode_weights(message),
        msgspec.msgpack.encode(network.spec),
        network.config.model_dump_json(),
        True,
        8,
        0.0,
    )
    seen = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32)
    policy = run.policy()
    asked = [
        read({"observation": seen[0].tolist()}, network.spec, 2),
        read({"observations": seen[1:4].tolist()}, network.spec, 2),
        read({"observations": seen[4:].tolist()}, network.spec, 2),
    ]

    found = replica.decide(asked)

    assert [len(each) for each in found] == [1, 3, 2]
    assert [*found[0], *found[1], *found[2]] == [policy.act(each) for each in seen]


def test_names_that_there_are_not_are_told_before_anything_is_deployed(trained: Trained) -> None:
    run, home = trained
    with pytest.raises(UnknownName, match="unknown policy 'mian'; did you mean main"):
        rookery.ray.serve_app(run.id, "mian", home=home)
    with pytest.raises(UnknownName, match="unknown version"):
        rookery.ray.serve_app(run.id, version=123456, home=home)
    with pytest.raises(InputError, match="no-such-run"):
        rookery.ray.serve_app("no-such-run", home=home)
    with pytest.raises(InputError, match="max_batch"):
        rookery.ray.serve_app(run.id, home=home, max_batch=0)


def test_without_ray_serve_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"pip install 'rookery\[ray-serve\]'"):
        rookery.ray.serve_app("last")


@pytest.mark.parametrize(
    ("spec", "body", "told"),
    [
        (PLAIN, [1, 2], 'send {"observation"'),
        (PLAIN, {"observation": [1, 2], "observations": [[1, 2]]}, 'send {"observation"'),
        (PLAIN, {"observations": []}, f"a list of 1 to {MOST_ROWS:,}"),
        (PLAIN, {"observations": {"a": 1}}, "a list of 1 to"),
        (PLAIN, {"observation": [1, 2, 3]}, "observation has shape [3], not [2]"),
        (PLAIN, {"observation": [[1], [2, 3]]}, "not an array of numbers"),
        (PLAIN, {"observation": ["a", "b"]}, "not an array of numbers"),
        (PLAIN, {"observation": None}, "not an array of numbers"),
        (PLAIN, {"observation": [1e300, 0]}, "a number that float32 cannot hold"),
        (PLAIN, {"observation": [1, 2], "mask": [True, True, True]}, "has no masks"),
        (MASKED, {"observation": [1, 2], "mask": [True]}, "for each of 3 actions"),
        (MASKED, {"observation": [1, 2], "mask": [1, 0, 1]}, "for each of 3 actions"),
        (MASKED, {"observation": [1, 2], "mask": [False] * 3}, "allows no action"),
        (NESTED, {"observation": {"eye": [[[1], [2]]]}}, "observation arm.0 is missing"),
        (NESTED, {"observation": {"arm": [4], "eye": [[[1], [2]]]}}, "stays below [4]"),
        (NESTED, {"observation": {"arm": [1.5], "eye": [[[1], [2]]]}}, "whole numbers"),
        (NESTED, {"observation": {"arm": [1], "eye": [[[1], [256]]]}}, "uint8 cannot hold"),
    ],
)
def test_an_observation_that_does_not_fit_is_one_line(spec: SeatSpec, body: Any, told: str) -> None:
    with pytest.raises(InputError) as refused:
        read(body, spec, 3)
    assert told in str(refused.value) and "\n" not in str(refused.value)


def test_observations_come_out_in_the_types_of_their_spaces() -> None:
    asked = read({"observation": {"arm": [3], "eye": [[[1], [255]]]}}, NESTED, 3)
    masked = read({"observations": [[1, 2], [3, 4]]}, MASKED, 3)

    assert asked.single and asked.rows == 1 and asked.mask is None
    assert asked.observation["arm.0"].tolist() == [3]
    assert asked.observation["eye"].dtype == np.uint8
    assert not masked.single and masked.mask is not None and masked.mask.all()
