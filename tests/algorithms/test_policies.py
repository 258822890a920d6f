"""What policies begin with, and which of them can be updated together."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from rookery.algorithms.impala import ImpalaConfig
from rookery.algorithms.networks import Network, initial_arrays
from rookery.algorithms.policies import PolicySetup, fitted, grouped, initial_weights
from rookery.algorithms.ppo import PPOConfig
from rookery.config.models import NetworkConfig
from rookery.errors import ConfigError
from rookery.spaces import Categorical, Leaf, SeatSpec

STEPS = 8
SPEC = SeatSpec((Leaf("", "box", (3,), "float32"),), Categorical(2))
SMALL = PPOConfig(epochs=2, minibatch_size=16)


def policy(
    name: str, algorithm: Any = SMALL, lanes: int = 4, spec: SeatSpec = SPEC, **network: Any
) -> PolicySetup:
    config = NetworkConfig.model_validate({"hidden": [4], **network})
    return PolicySetup(name, Network(spec, config), algorithm, lanes)


def eye(name: str, algorithm: Any = SMALL, **options: Any) -> PolicySetup:
    """A policy that sees through the shared encoder "eye"."""
    return policy(name, algorithm, **{"encoder": "eye", "encoder_hidden": [5], **options})


def test_a_policy_named_main_begins_as_the_only_policy_of_a_run_does() -> None:
    main = policy("main")
    alone, _ = initial_arrays(main.network, 7)
    for policies in ([main], [policy("other"), main]):
        params, _ = initial_weights(policies, 7)["main"]
        assert all(np.array_equal(params[name], alone[name]) for name in alone)


def test_policies_of_the_same_shape_begin_with_different_weights() -> None:
    found = initial_weights([policy("main"), policy("a"), policy("b")], seed=0)
    first = [params["pi.0.w"] for params, _ in found.values()]
    assert not any(np.array_equal(first[i], first[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


def test_a_shared_encoder_is_that_of_the_first_policy_that_names_it() -> None:
    found = initial_weights([policy("plain"), eye("a"), eye("b")], seed=0)
    a, b = found["a"][0], found["b"][0]
    assert np.array_equal(a["enc.0.w"], b["enc.0.w"])
    assert not np.array_equal(a["pi.0.w"], b["pi.0.w"])
    own, _ = initial_arrays(eye("a").network, 0, 1)
    assert np.array_equal(a["enc.0.w"], own["enc.0.w"])


def test_initial_weights_need_no_jax() -> None:
    code = (
        "import sys; import rookery.algorithms.policies; "
        "sys.exit('jax' in sys.modules or 'jaxlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("lanes", "wanted", "size"), [(4, 16, 16), (3, 16, 12), (4, 512, 32), (1, 3, 2), (7, 10, 8)]
)
def test_ppo_minibatches_shrink_to_what_divides_the_batch(
    lanes: int, wanted: int, size: int
) -> None:
    found = fitted(policy("a", PPOConfig(minibatch_size=wanted), lanes), STEPS).algorithm
    assert isinstance(found, PPOConfig) and found.minibatch_size == size


def test_impala_minibatches_become_as_many_as_divide_the_lanes() -> None:
    found = fitted(policy("a", ImpalaConfig(minibatches=4), lanes=6), STEPS).algorithm
    assert isinstance(found, ImpalaConfig) and found.minibatches == 3


def test_policies_of_one_encoder_are_a_group_and_the_others_stand_alone() -> None:
    found = grouped([eye("a"), policy("b"), eye("c"), policy("d")], STEPS)
    assert [[each.name for each in members] for members in found] == [["a", "c"], ["b"], ["d"]]


WIDE = SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))
REFUSED: dict[str, tuple[list[PolicySetup], str]] = {
    "kinds": (
        [eye("a"), eye("b", ImpalaConfig())],
        "'a' and 'b' share the encoder 'eye' but learn by ppo and impala",
    ),
    "gradient steps": (
        [eye("a"), eye("b", PPOConfig(epochs=3, minibatch_size=16))],
        "'a' and 'b' .* make 4 and 6 gradient steps",
    ),
    "gradient steps, impala": (
        [eye("a", ImpalaConfig(epochs=2)), eye("b", ImpalaConfig())],
        "'a' and 'b' .* make 8 and 16 gradient steps",
    ),
    "kl_stop": (
        [eye("a"), eye("b", SMALL.model_copy(update={"kl_stop": 0.02}))],
        "'b' has kl_stop=0.02",
    ),
    "layers": ([eye("a"), eye("b", encoder_hidden=[6])], "'a' and 'b' .* differ in shape"),
    "observations": ([eye("a"), eye("b", spec=WIDE)], "'a' and 'b' .* differ in shape"),
    "names": ([policy("a"), policy("a")], "two policies are named 'a'"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_updated_together_is_refused_in_one_line(why: str) -> None:
    policies, said = REFUSED[why]
    with pytest.raises(ConfigError, match=said) as caught:
        grouped(policies, STEPS)
    assert "\n" not in str(caught.value)


def test_an_encoder_of_one_policy_may_stop_by_its_kl() -> None:
    alone = eye("a", SMALL.model_copy(update={"kl_stop": 0.02}))
    assert [len(members) for members in grouped([alone, policy("b")], STEPS)] == [1, 1]
