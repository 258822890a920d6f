"""Every kind of observation becomes features, the same in numpy and in JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rookery.algorithms.networks import Network, conv_stride, initial_arrays, orthogonal, patches
from rookery.config.models import NetworkConfig
from rookery.spaces import ActionSpace, Categorical, Continuous, Leaf, MultiCategorical, SeatSpec

ROWS = 5
THREE = Categorical(3)

BOX = Leaf("pose", "box", (2, 3), "float64", low=-1, high=1)
IMAGE = Leaf("camera", "image", (8, 9, 3), "uint8", low=0, high=255)
BIG_IMAGE = Leaf("camera", "image", (36, 34, 1), "uint8", low=0, high=255)
TINY_IMAGE = Leaf("camera", "image", (2, 2, 1), "uint8", low=0, high=255)
DISCRETE = Leaf("room", "discrete", (), "int64", sizes=(5,))
MULTI = Leaf("dials", "multi_discrete", (2,), "int64", sizes=(3, 2))
BINARY = Leaf("lamps", "multi_binary", (3,), "int8")

SPECS: dict[str, tuple[tuple[Leaf, ...], int]] = {
    "box": ((BOX,), 6),
    "image": ((IMAGE,), 4 * 5 * 32),
    "big image": ((BIG_IMAGE,), 15 * 14 * 32),
    "tiny image": ((TINY_IMAGE,), 4),
    "discrete": ((DISCRETE,), 5),
    "multi_discrete": ((MULTI,), 5),
    "multi_binary": ((BINARY,), 3),
    "several": ((BOX, IMAGE, DISCRETE, MULTI, BINARY), 6 + 4 * 5 * 32 + 5 + 5 + 3),
}


def observe(leaves: tuple[Leaf, ...]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    found = {}
    for leaf in leaves:
        shape = (ROWS, *leaf.shape)
        if leaf.kind == "box":
            found[leaf.path] = rng.standard_normal(shape)
        elif leaf.kind == "image":
            found[leaf.path] = rng.integers(0, 256, shape)
        else:
            found[leaf.path] = rng.integers(0, leaf.sizes or 2, shape)
        found[leaf.path] = found[leaf.path].astype(leaf.dtype)
    return found


def network_for(leaves: tuple[Leaf, ...], action: ActionSpace = THREE, **config: object) -> Network:
    return Network(SeatSpec(leaves, action), NetworkConfig.model_validate(config))


@pytest.mark.parametrize(
    ("name", "normalize"), [*((name, False) for name in SPECS), ("box", True), ("several", True)]
)
def test_every_kind_of_observation_passes_forward_alike_in_numpy_and_jax(
    name: str, normalize: bool
) -> None:
    leaves, width = SPECS[name]
    network = network_for(leaves, normalize_observations=normalize)
    params, stats = initial_arrays(network, seed=1)
    for key in stats:
        if key.startswith(("obs.mean", "obs.var")):
            stats[key] = stats[key] + np.float32(0.5)
    stats["ret.mean"], stats["ret.var"] = np.float32(3), np.float32(4)
    observation = observe(leaves)

    features = network.encode(np, params, stats, observation)
    theta = network.policy(np, params, features)
    value = network.value(np, params, stats, features)

    assert features.shape == (ROWS, width) and features.dtype == np.float32
    assert theta.shape == (ROWS, 3) and value.shape == (ROWS,)
    assert np.isfinite(features).all() and np.ptp(value) > 0

    @jax.jit
    def forward(params: Any, stats: Any, observation: Any) -> Any:
        features = network.encode(jnp, params, stats, observation)
        policy = network.policy(jnp, params, features)
        return features, policy, network.value(jnp, params, stats, features)

    for left, right in zip(
        (features, theta, value), forward(params, stats, observation), strict=True
    ):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4)
    scaled = network.scaled_value(np, params, features)
    np.testing.assert_allclose(value, 3 + 2 * scaled, rtol=1e-5)


def test_choices_are_one_hot_and_flags_are_numbers() -> None:
    network = network_for((DISCRETE, MULTI, BINARY))
    observation = {
        "room": np.asarray([3]),
        "dials": np.asarray([[2, 0]]),
        "lamps": np.asarray([[1, 0, 1]], np.int8),
    }
    found = network.encode(np, {}, {}, observation)
    assert found.tolist() == [[*(0, 0, 0, 1, 0), *(0, 0, 1), *(1, 0), *(1, 0, 1)]]


def test_normalisation_is_by_the_statistics_and_limited() -> None:
    leaf = Leaf("", "box", (2,), "float32")
    network = network_for((leaf,), normalize_observations=True)
    stats = {
        **network.init_stats(),
        "obs.mean.": np.float32([1, 0]),
        "obs.var.": np.float32([4, 1]),
    }

    found = network.encode(np, {}, stats, {"": np.float32([[3, 1000]])})

    np.testing.assert_allclose(found, [[1, 10]], rtol=1e-5)
    fresh = network.encode(np, {}, network.init_stats(), {"": np.float32([[3, -2]])})
    np.testing.assert_allclose(fresh, [[3, -2]], rtol=1e-5)


@pytest.mark.parametrize(
    ("action", "width"),
    [
        (Categorical(4), 4),
        (MultiCategorical((3, 2)), 5),
        (Continuous((2, 2), (-1.0,) * 4, (1.0,) * 4), 4),
    ],
)
def test_the_policy_is_as_wide_as_its_distribution(action: ActionSpace, width: int) -> None:
    network = network_for((BOX,), action, hidden=[8], initial_log_std=-0.5)
    params, stats = initial_arrays(network, seed=0)
    features = network.encode(np, params, stats, observe((BOX,)))
    assert network.policy(np, params, features).shape == (ROWS, width)
    if isinstance(action, Continuous):
        assert params["log_std"].tolist() == [-0.5] * 4
    else:
        assert "log_std" not in params


def test_the_more_components_an_action_has_the_less_each_deviates_at_first() -> None:
    def deviation(components: int) -> float:
        space = Continuous((components,), (-1.0,) * components, (1.0,) * components)
        params, _ = initial_arrays(network_for((BOX,), space, hidden=[8]), seed=0)
        (found,) = set(np.exp(params["log_std"]).tolist())
        return float(found)

    assert deviation(1) == 1
    assert deviation(16) == pytest.approx(0.5)


@pytest.mark.parametrize("encoder", [None, "eye"])
@pytest.mark.parametrize("choices", [4, 400])
def test_one_of_many_choices_speaks_as_loudly_as_one_of_a_few(
    choices: int, encoder: str | None
) -> None:
    leaf = Leaf("", "discrete", (), "int64", sizes=(choices,))
    network = network_for((leaf,), hidden=[8], encoder=encoder, encoder_hidden=[8])
    params, _ = initial_arrays(network, seed=0)
    first = "enc.0.w" if encoder else "pi.0.w"
    assert np.linalg.norm(params[first], axis=1).mean() == pytest.approx(2**0.5, rel=0.05)
    if encoder:
        assert np.linalg.norm(params["pi.0.w"], axis=1) == pytest.approx(2**0.5)


def test_acting_needs_neither_the_value_network_nor_the_returns() -> None:
    network = network_for((IMAGE, BOX), normalize_observations=True)
    params, stats = initial_arrays(network, seed=0)

    acting = network.acting_arrays(params, stats)

    assert {name.split(".")[0] for name in acting} == {"pi", "conv", "obs"}
    features = network.encode(np, acting, acting, observe((IMAGE, BOX)))
    np.testing.assert_array_equal(
        network.policy(np, acting, features), network.policy(np, params, features)
    )


def test_a_seed_gives_the_same_network_and_another_seed_another() -> None:
    network = network_for((BOX,))
    first, again, other = (initial_arrays(network, seed)[0] for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["pi.0.w"], other["pi.0.w"])


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_orthogonal_matrices_are_orthogonal(shape: tuple[int, int]) -> None:
    matrix = orthogonal(np.random.default_rng(0), *shape, gain=2.0).astype(float)
    short = matrix.T @ matrix if shape[0] >= shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(short, 4 * np.eye(min(shape)), atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("shape", [(2, 7, 6, 3), (1, 3, 3, 1), (1, 8, 5, 2)])
@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_patches_times_weights_is_a_convolution(
    xp: object, shape: tuple[int, int, int, int], stride: int
) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    units, (batch, height, width, channels) = 4, shape
    weights = rng.standard_normal((9 * channels, units)).astype(np.float32)

    found = np.asarray(patches(xp, x, stride) @ weights)

    kernel = weights.reshape(3, 3, channels, units)
    rows, columns = (height - 3) // stride + 1, (width - 3) // stride + 1
    assert found.shape == (batch, rows, columns, units)
    for n in range(batch):
        for i in range(rows):
            for j in range(columns):
                window = x[n, i * stride : i * stride + 3, j * stride : j * stride + 3]
                expected = np.einsum("ijc,ijcu->u", window, kernel)
                np.testing.assert_allclose(found[n, i, j], expected, rtol=1e-4, atol=1e-4)


def test_only_large_images_are_halved() -> None:
    assert (conv_stride(84, 84), conv_stride(10, 10), conv_stride(100, 20)) == (2, 1, 1)


# --- encoders ------------------------------------------------------------------------------------

SEEING = {"encoder": "eye", "encoder_hidden": [7, 6]}


def test_an_encoder_stands_between_the_leaves_and_both_torsos_alike_in_numpy_and_jax() -> None:
    network = network_for((BOX, IMAGE), hidden=[5], channels=[4], **SEEING)
    params, stats = initial_arrays(network, seed=1)
    observation = observe((BOX, IMAGE))

    features = network.encode(np, params, stats, observation)

    assert features.shape == (ROWS, 6)
    assert params["enc.0.w"].shape[1] == 7 and params["enc.1.w"].shape == (7, 6)
    assert params["pi.0.w"].shape == params["v.0.w"].shape == (6, 5)
    on_jax = jax.jit(lambda p, o: network.encode(jnp, p, stats, o))(params, observation)
    np.testing.assert_allclose(features, on_jax, rtol=1e-4, atol=1e-5)
    acting = network.acting_arrays(params, stats)
    again = network.encode(np, acting, acting, observation)
    np.testing.assert_array_equal(
        network.policy(np, acting, again), network.policy(np, params, features)
    )


def test_the_encoder_owns_its_layers_and_the_convolutions() -> None:
    network = network_for((BOX, IMAGE), channels=[4], **SEEING)
    params, _ = initial_arrays(network, seed=0)
    owned = network.encoder_names(params)
    assert {name.split(".")[0] for name in owned} == {"enc", "conv"}
    assert {name.split(".")[0] for name in set(params) - set(owned)} == {"pi", "v"}
    assert network.encoding_learns


def test_without_an_encoder_nothing_is_shared_and_its_widths_do_not_matter() -> None:
    plain, odd = network_for((BOX, IMAGE)), network_for((BOX, IMAGE), encoder_hidden=[3])
    params, again = initial_arrays(plain, seed=0)[0], initial_arrays(odd, seed=0)[0]
    assert plain.encoder_names(params) == ()
    assert params.keys() == again.keys()
    assert all(np.array_equal(params[name], again[name]) for name in params)
    assert plain.encoding_learns and not network_for((BOX,)).encoding_learns
