"""A lane may hold several trajectories: each is worth what it would be worth by itself."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from rookery.algorithms import algorithm_of, returns
from rookery.algorithms.batch import Batch, stack
from rookery.algorithms.impala import ImpalaConfig
from rookery.algorithms.networks import Network, initial_arrays
from rookery.algorithms.objective import ends
from rookery.algorithms.ppo import PPOConfig
from rookery.config.algorithm import live_hyperparameters
from rookery.config.models import NetworkConfig
from rookery.messages.fragment import Fragment
from rookery.messages.steps import Steps
from rookery.spaces import Categorical, Leaf, SeatSpec

GAMMA, LAMBDA = 0.9, 0.8
HEIGHT = 24  # T of the lane that is packed

gae = jax.jit(returns.gae)
vtrace = jax.jit(returns.vtrace)
cut = jax.jit(ends)


def rows(
    reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray
) -> Steps:
    """Steps of which nothing else matters; one kind of player decided them all."""
    zeros = np.zeros(valid.shape, np.uint8)
    nothing = np.zeros(valid.shape, np.float32)
    flags = (terminated, truncated, valid)
    return Steps({}, nothing, reward, *flags, nothing, zeros, zeros, zeros)


class Lane:
    """One lane of a fragment, filled from the top with rows of several trajectories."""

    def __init__(self) -> None:
        self.reward, self.log_ratio = np.zeros((2, HEIGHT, 1), np.float32)
        self.terminated, self.truncated, self.valid = np.zeros((3, HEIGHT, 1), bool)
        self.value = np.full((HEIGHT + 1, 1), 99.0, np.float32)
        self.row = 0

    def put(self, trajectory: Trajectory, start: int, stop: int) -> slice:
        """Rows of a trajectory and, where it goes on later, one that shows its next value."""
        rows = slice(self.row, self.row + stop - start)
        for name in ("reward", "log_ratio", "terminated", "truncated"):
            getattr(self, name)[rows] = getattr(trajectory, name)[start:stop]
        self.valid[rows] = True
        self.value[rows.start : rows.stop + 1] = trajectory.value[start : stop + 1]
        self.row = rows.stop + (not trajectory.terminated[stop - 1, 0])
        return rows

    @property
    def steps(self) -> Steps:
        flags = (self.terminated, self.truncated, self.valid)
        return rows(self.reward, *flags)


class Trajectory:
    """One seat's steps of a whole game, with the values of all its observations."""

    def __init__(self, rng: np.random.Generator, length: int, end: str) -> None:
        self.reward, self.log_ratio = rng.standard_normal((2, length, 1)).astype(np.float32)
        self.value = rng.standard_normal((length + 1, 1)).astype(np.float32)
        self.terminated, self.truncated = np.zeros((2, length, 1), bool)
        getattr(self, end)[-1] = True


def gae_of(part: Any, truncated: np.ndarray, gae_lambda: float = LAMBDA) -> Any:
    return gae(part.reward, part.terminated, truncated, part.value, GAMMA, gae_lambda)


def vtrace_of(part: Any, truncated: np.ndarray) -> Any:
    clips = (GAMMA, LAMBDA, 1.0, 1.0)
    return vtrace(part.reward, part.terminated, truncated, part.value, part.log_ratio, *clips)


@pytest.mark.parametrize("targets_of", [gae_of, vtrace_of])
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_packed_segments_are_worth_what_they_are_in_the_uncut_episode(
    targets_of: Any, end: str
) -> None:
    rng = np.random.default_rng(0)
    first, second = Trajectory(rng, 9, end), Trajectory(rng, 7, end)
    lane = Lane()
    places = [  # two games of which one is left in the middle and gone on with later
        (first, 0, 4, lane.put(first, 0, 4)),
        (second, 0, 5, lane.put(second, 0, 5)),
        (first, 4, 9, lane.put(first, 4, 9)),
        (second, 5, 7, lane.put(second, 5, 7)),
    ]
    assert lane.row <= HEIGHT

    found = targets_of(lane, cut(lane.steps))

    for game, at in ((first, 4), (second, 5)):
        edges = game.truncated.copy()
        edges[at - 1] = True  # the uncut episode, with nothing flowing over the edge
        expected = targets_of(game, edges)
        for _, start, stop, rows in (place for place in places if place[0] is game):
            for ours, theirs in zip(found, expected, strict=True):
                np.testing.assert_allclose(ours[rows], theirs[start:stop], rtol=1e-5, atol=1e-6)


def test_with_lambda_zero_a_cut_makes_no_difference_at_all() -> None:
    game, lane = Trajectory(np.random.default_rng(1), 9, "terminated"), Lane()
    rows = [lane.put(game, start, stop) for start, stop in ((0, 3), (3, 4), (4, 9))]

    found = gae_of(lane, cut(lane.steps), gae_lambda=0.0).advantage

    expected = gae_of(game, game.truncated, gae_lambda=0.0).advantage
    np.testing.assert_allclose(
        np.concatenate([found[r] for r in rows]), expected, rtol=1e-5, atol=1e-6
    )


def test_an_edge_is_a_valid_row_before_an_invalid_one_unless_it_terminated() -> None:
    def column(*flags: int) -> np.ndarray:
        return np.asarray(flags, bool)[:, None]

    valid = column(1, 1, 0, 1, 0, 0, 1, 1)
    terminated = column(0, 0, 0, 1, 0, 0, 0, 0)
    truncated = column(0, 0, 0, 0, 0, 0, 0, 0)
    batch = rows(np.zeros(valid.shape), terminated, truncated, valid)

    assert cut(batch)[:, 0].tolist() == [False, True] + 6 * [False]  # nor the fragment's last row


def test_a_lane_of_one_seat_has_no_edges_but_its_truncations() -> None:
    rng = np.random.default_rng(2)
    terminated, truncated, valid = np.zeros((3, 200, 16), bool)
    for t in range(200):  # an ended step is followed by one that only resets
        ended = (terminated | truncated)[t - 1] if t else np.zeros(16, bool)
        valid[t] = ~ended
        terminated[t] = valid[t] & (rng.random(16) < 0.1)
        truncated[t] = valid[t] & (rng.random(16) < 0.1)
    batch = rows(np.zeros(valid.shape), terminated, truncated, valid)

    assert (~valid).any()
    np.testing.assert_array_equal(cut(batch), truncated)  # so every target is bit-identical


def test_a_single_fragment_is_passed_on_without_a_copy() -> None:
    one = Fragment(None, rows(*np.zeros((4, 3, 2))))  # type: ignore[arg-type]
    order = np.zeros((1, 6), np.int32)
    assert stack([one], order).steps.reward is one.steps.reward
    assert stack([one, one], order).steps.reward.shape == (3, 4)


OBJECTIVES: dict[str, Any] = {
    "ppo": PPOConfig(normalize_advantages=False),
    "impala": ImpalaConfig(),
}


@pytest.mark.parametrize("algorithm", OBJECTIVES)
def test_the_next_trajectory_of_a_lane_changes_nothing_before_it(algorithm: str) -> None:
    config = OBJECTIVES[algorithm]
    network = Network(
        SeatSpec((Leaf("", "box", (2,), "float32"),), Categorical(2)), NetworkConfig(hidden=(4,))
    )
    params, stats = initial_arrays(network, seed=0)
    objective = algorithm_of(config).make_objective(network)
    hyper = {name: np.float32(value) for name, value in live_hyperparameters(config).items()}
    rng = np.random.default_rng(0)
    valid = np.ones((8, 1), bool)
    valid[3] = False  # shows the fourth observation of the trajectory in rows 0 to 2
    ended = np.zeros((8, 1), bool)
    reward = np.ones((8, 1), np.float32)
    observation = rng.standard_normal((9, 1, 2)).astype(np.float32)

    @jax.jit
    def learn(observation: Any, reward: Any) -> Any:
        zeros = np.zeros((8, 1), np.float32)
        made = rows(reward, ended, ended, valid)._replace(
            observation={"": observation}, action=np.zeros((8, 1), np.int32), log_prob=zeros - 0.7
        )
        batch = Batch(made, np.zeros((1, 1), np.int32))
        prepared = objective.prepare(params, stats, {}, batch, hyper)
        own = np.arange(3)  # as if the minibatch were the first trajectory alone
        found = prepared.rows
        if algorithm == "ppo":
            loss = objective.loss(params, objective.take(found, own), stats, hyper)[0]
        else:
            alone = found._replace(valid=found.valid & (np.arange(8) < 3)[:, None])
            loss = objective.loss(params, alone, stats, hyper)[0]
        return prepared.target[:3], loss

    later, shown, more = observation.copy(), observation.copy(), reward.copy()
    later[4:] += 1
    more[3:] += 5
    shown[3] += 1

    calm = learn(observation, reward)
    np.testing.assert_array_equal(calm[0], learn(later, more)[0])
    np.testing.assert_array_equal(calm[1], learn(later, more)[1])
    assert not np.array_equal(calm[0], learn(shown, reward)[0])
