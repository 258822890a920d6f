"""Where who decides changes within an episode, nothing flows across: as if it were cut there."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from rookery.algorithms import algorithm_of
from rookery.algorithms.batch import Batch
from rookery.algorithms.impala import ImpalaConfig
from rookery.algorithms.networks import Network, initial_arrays
from rookery.algorithms.ppo import PPOConfig
from rookery.config.algorithm import live_hyperparameters
from rookery.config.models import NetworkConfig
from rookery.messages.steps import Steps, each
from rookery.spaces import Categorical, Leaf, SeatSpec

HEIGHT = 9
OTHERS = slice(3, 5)  # rows that a script decided, between six of the policy's
NETWORK = Network(
    SeatSpec((Leaf("", "box", (2,), "float32"),), Categorical(3)), NetworkConfig(hidden=(4,))
)
ALGORITHMS: dict[str, Any] = {
    "ppo": PPOConfig(),
    "ppo, clipped values": PPOConfig(value_clip=0.2, normalize_returns=True),
    "impala": ImpalaConfig(),
    "impala, clipped": ImpalaConfig(clip=0.2, normalize_advantages=True),
}


def changing(ends: str = "") -> Steps:
    """Policy, script, policy: one episode of one seat, which goes on or ends with its last row."""
    rng = np.random.default_rng(0)
    shape = (HEIGHT, 1)
    flags = np.zeros(shape, bool)
    player = np.zeros(shape, np.uint8)
    player[OTHERS] = 1
    log_prob = (-rng.random(shape) - 0.5).astype(np.float32)
    log_prob[OTHERS] = np.nan
    steps = Steps(
        observation={"": rng.standard_normal((HEIGHT + 1, 1, 2)).astype(np.float32)},
        action=rng.integers(0, 3, shape).astype(np.int32),
        reward=rng.standard_normal(shape).astype(np.float32),
        terminated=flags.copy(),
        truncated=flags.copy(),
        valid=~flags,
        log_prob=log_prob,
        seat=np.zeros(shape, np.uint8),
        player=player,
        behind=np.zeros(shape, np.uint8),
    )
    if ends:
        getattr(steps, ends)[-1] = True
    return steps


def cut(steps: Steps) -> Steps:
    """The policy's rows alone, as two lanes; below the first is what was seen next."""
    first, second = slice(0, 3), slice(5, HEIGHT)

    def lanes(array: np.ndarray) -> np.ndarray:
        ahead = len(array) - HEIGHT
        out = np.zeros((HEIGHT + ahead, 2, *array.shape[2:]), array.dtype)
        for lane, rows in enumerate((first, second)):
            part = array[rows.start : rows.stop + ahead]
            out[: len(part), lane] = part[:, 0]
        return out

    return each(lanes, steps)


def gradient(algorithm: str, steps: Steps) -> Any:
    """The loss of the whole batch as one minibatch, its gradient, and what was learnt of it."""
    config = ALGORITHMS[algorithm]
    params, stats = initial_arrays(NETWORK, seed=1)
    params = {name: array + np.float32(0.1) for name, array in params.items()}
    objective = algorithm_of(config).make_objective(NETWORK)
    hyper = {name: np.float32(value) for name, value in live_hyperparameters(config).items()}
    lanes = steps.valid.shape[1]
    index = np.arange(lanes * (HEIGHT if config.kind == "ppo" else 1), dtype=np.int32)

    @jax.jit
    def learn(params: Any) -> Any:
        prepared = objective.prepare(params, stats, {}, Batch(steps, index[None]), hyper)
        mini = objective.take(prepared.rows, index)
        loss = jax.value_and_grad(lambda p: objective.loss(p, mini, stats, hyper)[0])
        return loss(params), prepared.weight.sum(), (prepared.target * prepared.weight).sum()

    return learn(params)


@pytest.mark.parametrize("ends", ["", "terminated", "truncated"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_change_of_decider_has_the_gradient_of_the_batch_that_was_cut_there(
    algorithm: str, ends: str
) -> None:
    steps = changing(ends)
    whole, parts = gradient(algorithm, steps), gradient(algorithm, cut(steps))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), whole, parts)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_others_were_paid_is_not_the_policys(algorithm: str) -> None:
    steps = changing()
    rich = steps.reward.copy()
    rich[OTHERS] += 100
    calm, loud = gradient(algorithm, steps), gradient(algorithm, steps._replace(reward=rich))
    jax.tree.map(np.testing.assert_array_equal, calm, loud)


def test_without_a_change_of_decider_rewards_do_flow_back() -> None:
    """The same rows, all the policy's: so the tests above can fail."""
    steps = changing()._replace(player=np.zeros((HEIGHT, 1), np.uint8))
    rich = steps.reward.copy()
    rich[OTHERS] += 100
    calm, loud = gradient("ppo", steps), gradient("ppo", steps._replace(reward=rich))
    assert not np.array_equal(calm[0][0], loud[0][0])
