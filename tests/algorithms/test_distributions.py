"""Densities, entropies and samples agree with integration, with counting and with each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rookery.algorithms.distributions import (
    CategoricalDistribution,
    ClippedGaussian,
    Distribution,
    MultiCategoricalDistribution,
    SquashedGaussian,
    distribution_for,
)
from rookery.players.policy import draw_jax, draw_numpy
from rookery.spaces import Categorical, Continuous, MultiCategorical

LOGITS = np.float32([[0.3, -1.2, 2.0, 0.0], [5.0, -5.0, 0.1, 0.2]])
MASK = np.asarray([[True, False, True, True], [False, True, False, True]])
MEANS = [-1.5, 0.0, 0.7]
LOG_STDS = [-1.5, -0.5, 0.3]


def probabilities(logits: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Softmax over the legal actions, in double precision."""
    weight = np.exp(logits.astype(float)) * (1.0 if mask is None else mask)
    return np.asarray(weight / weight.sum(-1, keepdims=True))


def entropy_of(p: np.ndarray) -> np.ndarray:
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1))).sum(-1))


def integrate(values: np.ndarray, points: np.ndarray) -> float:
    return float(np.trapezoid(values, points))


# --- categorical ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [None, MASK], ids=["free", "masked"])
def test_categorical_log_probs_and_entropy_are_over_the_legal_actions(mask: Any) -> None:
    act, expected = CategoricalDistribution(4), probabilities(LOGITS, mask)

    for action in range(4):
        chosen = np.full(2, action, np.int32)
        found = np.exp(act.log_prob(np, LOGITS, None, mask, chosen))
        np.testing.assert_allclose(found, expected[:, action], rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(act.entropy(np, LOGITS, None, mask), entropy_of(expected), rtol=1e-5)


def test_entropy_under_a_mask_is_that_of_the_legal_actions_alone() -> None:
    act = CategoricalDistribution(4)
    wild = np.where(MASK, np.float32(1.0), np.float32(30.0))  # an illegal action would dominate

    found = act.entropy(np, wild, None, MASK)

    np.testing.assert_allclose(found, np.log([3.0, 2.0]), rtol=1e-6)


def test_one_legal_action_is_certain() -> None:
    act, only = CategoricalDistribution(4), np.asarray([[False, False, True, False]])
    logits = LOGITS[:1]
    assert act.mode(np, logits, only).tolist() == [2]
    np.testing.assert_allclose(act.entropy(np, logits, None, only), 0, atol=1e-6)
    np.testing.assert_allclose(act.log_prob(np, logits, None, only, np.int32([2])), 0, atol=1e-6)


def test_multi_categorical_adds_up_its_parts() -> None:
    act = MultiCategoricalDistribution((3, 2))
    logits = np.float32([[0.2, -0.4, 1.1, 2.0, -1.0]])
    mask = np.asarray([[True, True, False, True, True]])
    first, second = probabilities(logits[:, :3], mask[:, :3]), probabilities(logits[:, 3:], None)

    total = 0.0
    for a in range(3):
        for b in range(2):
            p = np.exp(act.log_prob(np, logits, None, mask, np.int32([[a, b]])))[0]
            np.testing.assert_allclose(p, first[0, a] * second[0, b], rtol=1e-5, atol=1e-12)
            total += p
    np.testing.assert_allclose(total, 1, rtol=1e-5)
    np.testing.assert_allclose(
        act.entropy(np, logits, None, mask), entropy_of(first) + entropy_of(second), rtol=1e-5
    )
    assert act.mode(np, logits, mask).tolist() == [[0, 0]]


DISCRETE: dict[str, tuple[Distribution, np.ndarray, np.ndarray]] = {
    "categorical": (CategoricalDistribution(4), LOGITS, MASK),
    "multi_categorical": (MultiCategoricalDistribution((2, 2)), LOGITS, MASK),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_gradients_through_masked_logits_are_finite_and_zero_where_illegal(name: str) -> None:
    act, logits, mask = DISCRETE[name]
    mask = np.asarray([[True, False, True, True], [False, True, False, True]])
    action = act.mode(np, logits, mask)

    def loss(theta: Any) -> Any:
        log_prob = act.log_prob(jnp, theta, None, mask, action)
        return (log_prob + act.entropy(jnp, theta, None, mask)).sum()

    gradient = np.asarray(jax.jit(jax.grad(loss))(logits))

    assert np.isfinite(gradient).all()
    assert (gradient[~mask] == 0).all()
    assert np.abs(gradient[0][mask[0]]).max() > 0 or name == "multi_categorical"


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["free", "masked"])
def test_sampled_frequencies_are_the_probabilities(xp: Any, mask: Any) -> None:
    act, count = CategoricalDistribution(4), 40_000
    shape = (count, *LOGITS.shape)
    if xp is np:
        noise = draw_numpy(np.random.default_rng(5), act.noise, shape)
    else:
        noise = draw_jax(jax.random.key(5), act.noise, shape)

    sample = act.sample if xp is np else jax.jit(act.sample, static_argnums=0)
    action, log_prob = sample(xp, LOGITS[None], None, mask, noise)

    expected = probabilities(LOGITS, mask)
    action = np.asarray(action)
    for row in range(2):
        found = np.bincount(action[:, row], minlength=4) / count
        spread = np.sqrt(expected[row] * (1 - expected[row]) / count)
        assert (np.abs(found - expected[row]) <= 5 * spread).all(), (found, expected[row])
    picked = np.take_along_axis(expected[None], action[..., None], -1)[..., 0]
    np.testing.assert_allclose(np.exp(log_prob), picked, rtol=1e-4)


@pytest.mark.parametrize("name", DISCRETE)
def test_a_sample_and_the_mode_are_legal(name: str) -> None:
    act, logits, mask = DISCRETE[name]
    mask = np.repeat(mask, 500, axis=0)
    logits = np.where(mask, np.repeat(logits, 500, axis=0), np.float32(50.0))
    noise = draw_numpy(np.random.default_rng(0), act.noise, logits.shape)

    for action in (act.mode(np, logits, mask), act.sample(np, logits, None, mask, noise)[0]):
        offsets = action if action.ndim == 1 else action + np.int32([0, 2])
        chosen = np.take_along_axis(mask, offsets.reshape(len(mask), -1), axis=1)
        assert chosen.all()


# --- gaussians -----------------------------------------------------------------------------------

BOUNDS = ((1,), (-2.0,), (4.0,))
CLIPPED, SQUASHED = ClippedGaussian(*BOUNDS), SquashedGaussian(*BOUNDS)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("log_std", LOG_STDS)
def test_the_clipped_density_is_of_the_unclipped_sample(mean: float, log_std: float) -> None:
    theta, extra = np.float32([[mean]]), np.float32([log_std])
    points = mean + np.exp(log_std) * np.linspace(-9, 9, 20_001)

    log_p = CLIPPED.log_prob(np, theta, extra, None, points[:, None]).astype(float)

    assert abs(integrate(np.exp(log_p), points) - 1) < 1e-4
    expected = -integrate(np.exp(log_p) * log_p, points)
    np.testing.assert_allclose(CLIPPED.entropy(np, theta, extra, None), [expected], atol=1e-4)


@pytest.mark.parametrize("mean", MEANS)
@pytest.mark.parametrize("log_std", LOG_STDS)
def test_the_squashed_density_is_of_the_squashed_action(mean: float, log_std: float) -> None:
    theta, extra = np.float32([[mean]]), np.float32([log_std])
    before = mean + np.exp(log_std) * np.linspace(-9, 9, 40_001)
    squashed = np.tanh(before)  # where the density lives

    log_p = SQUASHED.log_prob(np, theta, extra, None, before[:, None]).astype(float)

    assert abs(integrate(np.exp(log_p), squashed) - 1) < 1e-3
    expected = -integrate(np.exp(log_p) * log_p, squashed)
    np.testing.assert_allclose(SQUASHED.entropy(np, theta, extra, None), [expected], atol=5e-3)


def test_components_are_independent() -> None:
    wide = SquashedGaussian((2,), (-1.0, -1.0), (1.0, 1.0))
    theta, extra = np.float32([[0.3, -0.6]]), np.float32([-0.2, 0.1])
    action = np.float32([[0.5, 1.5]])
    one = SquashedGaussian((1,), (-1.0,), (1.0,))
    for method in ("log_prob", "entropy"):
        extra_args = (action,) if method == "log_prob" else ()
        parts = [
            getattr(one, method)(
                np,
                theta[:, i : i + 1],
                extra[i : i + 1],
                None,
                *(a[:, i : i + 1] for a in extra_args),
            )
            for i in range(2)
        ]
        found = getattr(wide, method)(np, theta, extra, None, *extra_args)
        np.testing.assert_allclose(found, sum(parts), rtol=1e-5)


def test_the_squashed_log_prob_is_finite_far_out() -> None:
    theta, extra = np.float32([[0.0]]), np.float32([0.0])

    @jax.jit
    @jax.value_and_grad
    def log_prob(theta: Any, value: Any) -> Any:
        return SQUASHED.log_prob(jnp, theta, extra, None, value).sum()

    for action in (-60.0, -20.0, 20.0, 60.0):
        found, gradient = log_prob(theta, np.float32([[action]]))
        assert np.isfinite(gradient).all()
        # Gaussian minus log(4 exp(-2|x|)), which is what the slope is far out
        expected = -0.5 * action**2 - 0.5 * np.log(2 * np.pi) - np.log(4) + 2 * abs(action)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("act", [CLIPPED, SQUASHED], ids=["clipped", "squashed"])
def test_gaussian_samples_have_the_mean_and_spread_they_should(act: ClippedGaussian) -> None:
    theta, extra = np.full((40_000, 1), 0.4, np.float32), np.float32([-0.7])
    noise = draw_numpy(np.random.default_rng(1), act.noise, theta.shape)

    action, log_prob = act.sample(np, theta, extra, None, noise)

    std = np.exp(-0.7)
    assert abs(action.mean() - 0.4) < 5 * std / 200
    assert abs(action.std() - std) < 0.01
    # the mean of -log p over samples is the entropy
    assert abs(-log_prob.mean() - act.entropy(np, theta, extra, None)[0]) < 0.02


@pytest.mark.parametrize("act", [CLIPPED, SQUASHED], ids=["clipped", "squashed"])
def test_the_environment_gets_actions_within_its_bounds(act: ClippedGaussian) -> None:
    stored = np.float32([[-50.0], [-1.0], [0.0], [0.5], [50.0]])

    given = act.to_environment(np, stored)

    inner = stored if act is CLIPPED else np.tanh(stored)
    expected = np.clip(1 + 3 * inner, -2, 4)
    np.testing.assert_allclose(given, expected, rtol=1e-6)
    assert given.dtype == np.float32 and given.shape == (5, 1)


def test_an_unbounded_component_is_left_as_it_is_and_the_shape_comes_back() -> None:
    act = ClippedGaussian((2, 1), (-np.inf, 0.0), (np.inf, 1.0), "float64")

    given = act.to_environment(np, np.float32([[7.0, 9.0]]))

    assert given.tolist() == [[[7.0], [1.0]]] and given.dtype == np.float64


# --- numpy and jax -------------------------------------------------------------------------------

ALL: dict[str, tuple[Distribution, np.ndarray, Any, Any]] = {
    "categorical": (CategoricalDistribution(4), LOGITS, None, MASK),
    "categorical, free": (CategoricalDistribution(4), LOGITS, None, None),
    "multi_categorical": (MultiCategoricalDistribution((2, 2)), LOGITS, None, MASK),
    "clipped": (ClippedGaussian((4,), (-1.0,) * 4, (1.0,) * 4), LOGITS, LOGITS[0] / 4, None),
    "squashed": (SquashedGaussian((4,), (-1.0,) * 4, (1.0,) * 4), LOGITS, LOGITS[0] / 4, None),
}


@pytest.mark.parametrize("name", ALL)
def test_numpy_and_jax_give_the_same_numbers(name: str) -> None:
    act, theta, extra, mask = ALL[name]
    noise = draw_numpy(np.random.default_rng(3), act.noise, theta.shape)

    def everything(xp: Any, theta: Any) -> list[Any]:
        action, log_prob = act.sample(xp, theta, extra, mask, noise)
        return [
            action,
            log_prob,
            act.mode(xp, theta, mask),
            act.log_prob(xp, theta, extra, mask, action),
            act.entropy(xp, theta, extra, mask),
            act.to_environment(xp, action),
        ]

    on_jax = jax.jit(lambda theta: everything(jnp, theta))(theta)
    sampled = everything(np, theta)
    for left, right in zip(sampled, on_jax, strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sampled[1], sampled[3], rtol=1e-5, atol=1e-5)


def test_an_action_space_has_one_distribution() -> None:
    box = Continuous((2,), (-1.0, -1.0), (1.0, 1.0))
    assert distribution_for(Categorical(3, start=1), "clipped") == CategoricalDistribution(3)
    assert distribution_for(MultiCategorical((2, 3)), "clipped").parameters == 5
    assert type(distribution_for(box, "clipped")) is ClippedGaussian
    assert type(distribution_for(box, "squashed")) is SquashedGaussian
