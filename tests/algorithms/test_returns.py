"""Advantages and targets are right by hand, by a slow reference, and at their fixed point."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.actor.loop import Admitted, Played
from rookery.actor.rollouts.compiled import CompiledRollout
from rookery.actor.rollouts.stepped import SteppedRollout
from rookery.algorithms import returns
from rookery.algorithms.networks import Network, initial_arrays
from rookery.config.models import NetworkConfig
from rookery.envs import SOLO_SEAT
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.envs.jax.environment import register_pytrees
from rookery.messages import WeightsVersion
from rookery.players.policy import PolicyPlayer, draw_jax
from rookery.testing.envs import CountingCompiled, CountingEnv

gae = jax.jit(returns.gae)
vtrace = jax.jit(returns.vtrace)

NO, YES = False, True
End = Literal["terminated", "truncated"]


def column(*values: Any, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(values, dtype)[:, None]


def flags(*values: bool) -> np.ndarray:
    return column(*values, dtype=bool)


def same(found: Any, expected: list[float]) -> None:
    np.testing.assert_allclose(np.asarray(found)[:, 0], expected, rtol=1e-5, atol=1e-5)


# --- by hand, gamma = lambda = 1/2 ---------------------------------------------------------------


def test_gae_without_an_end_bootstraps_from_the_last_observation() -> None:
    found = gae(column(1, 2), flags(NO, NO), flags(NO, NO), column(10, 20, 40), 0.5, 0.5)
    # delta = [1 + 10 - 10, 2 + 20 - 20] = [1, 2]; A = [1 + 2/4, 2]
    same(found.advantage, [1.5, 2])
    same(found.value, [11.5, 22])


def test_gae_at_a_terminated_step_bootstraps_from_zero_and_nothing_flows_back() -> None:
    # row 1 terminates, row 2 only resets, row 3 is the first step of the next episode
    found = gae(
        column(1, 2, 0, 4),
        flags(NO, YES, NO, NO),
        flags(NO, NO, NO, NO),
        column(10, 20, 999, 30, 40),
        0.5,
        0.5,
    )
    # delta = [1 + 10 - 10, 2 + 0 - 20, _, 4 + 20 - 30] = [1, -18, _, -6]
    advantage = np.asarray(found.advantage)[:, 0]
    np.testing.assert_allclose(advantage[[0, 1, 3]], [1 - 18 / 4, -18, -6])


def test_gae_at_a_truncated_step_bootstraps_from_its_final_observation() -> None:
    # row 2 only resets; value_t[2] = 40 is of the final observation of the first episode
    found = gae(
        column(1, 2, 0, 4),
        flags(NO, NO, NO, NO),
        flags(NO, YES, NO, NO),
        column(10, 20, 40, 30, 40),
        0.5,
        0.5,
    )
    # delta = [1, 2 + 20 - 20, _, -6]
    advantage = np.asarray(found.advantage)[:, 0]
    np.testing.assert_allclose(advantage[[0, 1, 3]], [1 + 2 / 4, 2, -6])


@pytest.mark.parametrize(("end", "last"), [("terminated", 2 - 20), ("truncated", 2 + 20 - 20)])
def test_gae_of_an_episode_that_ends_at_the_edge(end: End, last: float) -> None:
    ends = {"terminated": flags(NO, NO), "truncated": flags(NO, NO), end: flags(NO, YES)}
    found = gae(column(1, 2), ends["terminated"], ends["truncated"], column(10, 20, 40), 0.5, 0.5)
    same(found.advantage, [1 + last / 4, last])


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_a_reset_row_changes_no_other_row(end: End) -> None:
    done = flags(NO, YES, NO, NO)
    never = flags(NO, NO, NO, NO)
    pair = (done, never) if end == "terminated" else (never, done)
    rows = [0, 1, 3]

    def targets(reward: float, log_ratio: float) -> list[np.ndarray]:
        rewards, values = column(1, 2, reward, 4), column(10, 20, 40, 30, 40)
        ratios = column(0.1, -0.2, log_ratio, 0.3)
        first = gae(rewards, *pair, values, 0.9, 0.8)
        second = vtrace(rewards, *pair, values, ratios, 0.9, 0.8, 1.0, 1.0)
        return [np.asarray(x)[rows] for x in (*first, *second)]

    for quiet, loud in zip(targets(0, 0), targets(1e6, 5), strict=True):
        np.testing.assert_array_equal(quiet, loud)


def test_vtrace_by_hand_with_clipped_ratios() -> None:
    log_ratio = np.log(column(0.5, 4.0))
    found = vtrace(
        column(1, 2), flags(NO, NO), flags(NO, NO), column(10, 20, 40), log_ratio, 0.5, 1, 2, 1
    )
    # rho = [0.5, 2], c = [0.5, 1]; delta = [0.5 * 1, 2 * 2]
    # v_1 = 20 + 4; v_0 = 10 + 0.5 + 0.5 * 0.5 * 4
    same(found.value, [11.5, 24])
    # A_t = rho (r + gamma v_{t+1} - V)
    same(found.advantage, [0.5 * (1 + 12 - 10), 2 * (2 + 20 - 20)])


def test_vtrace_by_hand_over_both_ends_with_reset_rows() -> None:
    zeros = column(0, 0, 0, 0, 0)
    found = vtrace(
        column(1, 2, 0, 4, 5),
        flags(NO, YES, NO, NO, NO),
        flags(NO, NO, NO, NO, YES),
        column(10, 20, 40, 30, 8, 6),
        zeros,
        0.5,
        1.0,
        1.0,
        1.0,
    )
    # v: the end 2 of the first episode, then 1 + 2/2; the second is cut at V = 6: 5 + 3, 4 + 8/2
    value = np.asarray(found.value)[:, 0]
    np.testing.assert_allclose(value[[0, 1, 3, 4]], [2, 2, 8, 8])
    advantage = np.asarray(found.advantage)[:, 0]
    np.testing.assert_allclose(advantage[[0, 1, 3, 4]], [2 - 10, 2 - 20, 8 - 30, 8 - 8])


# --- against references --------------------------------------------------------------------------

ENDS = st.sampled_from(["", "", "", "terminated", "truncated"])


@st.composite
def streams(draw: Any) -> tuple[np.ndarray, ...]:
    """One lane: rewards, ends and values, with the reset rows that follow ends."""
    steps = draw(st.sampled_from([1, 2, 5, 12]))  # each is compiled once
    number = st.floats(-5, 5, width=32)
    rows: list[str] = []
    while len(rows) < steps:
        rows.append(draw(ENDS))
        if rows[-1]:
            rows.append("reset")
    rows = rows[:steps]
    if draw(st.booleans()):
        rows = ["reset", *rows][:steps]  # the fragment before this one ended an episode
    reward = column(*(0 if row == "reset" else draw(number) for row in rows))
    value = column(*(draw(number) for _ in range(steps + 1)))
    terminated, truncated, reset = (
        flags(*(row == kind for row in rows)) for kind in ("terminated", "truncated", "reset")
    )
    return reward, terminated, truncated, ~reset, value


def episodes(terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray) -> list[list[int]]:
    """The rows of each stretch of one episode."""
    found: list[list[int]] = [[]]
    for t in range(len(valid)):
        if valid[t, 0]:
            found[-1].append(t)
        if not valid[t, 0] or terminated[t, 0] or truncated[t, 0]:
            found.append([])
    return [rows for rows in found if rows]


@settings(max_examples=150, deadline=None)
@given(streams(), st.floats(0, 1, width=32), st.floats(0, 1, width=32))
def test_gae_equals_a_slow_reference_over_whole_episodes(
    stream: tuple[np.ndarray, ...], gamma: float, gae_lambda: float
) -> None:
    reward, terminated, truncated, valid, value = (
        x.astype(float) if x.dtype != bool else x for x in stream
    )

    found = np.asarray(gae(*_args(stream), gamma, gae_lambda).advantage)[:, 0]

    for rows in episodes(terminated, truncated, valid):
        for t in rows:
            # A_t = sum over n of (1 - lambda) lambda^(n-1) x (n-step return) - V, written out
            later = [u for u in rows if u >= t]
            advantage = 0.0
            for k, u in enumerate(later):
                after = 0.0 if terminated[u, 0] else value[u + 1, 0]
                delta = reward[u, 0] + gamma * after - value[u, 0]
                advantage += (gamma * gae_lambda) ** k * delta
            np.testing.assert_allclose(found[t], advantage, rtol=1e-4, atol=1e-4)


@settings(max_examples=150, deadline=None)
@given(streams(), st.floats(0, 1, width=32))
def test_vtrace_on_policy_with_lambda_one_equals_n_step_returns(
    stream: tuple[np.ndarray, ...], gamma: float
) -> None:
    reward, terminated, truncated, valid, value = stream
    zeros = np.zeros_like(reward)

    found = np.asarray(vtrace(*_args(stream), zeros, gamma, 1.0, 1.0, 1.0).value)[:, 0]

    for rows in episodes(terminated, truncated, valid):
        last = rows[-1]
        total = 0.0 if terminated[last, 0] else float(value[last + 1, 0])
        for t in reversed(rows):
            total = float(reward[t, 0]) + gamma * total
            np.testing.assert_allclose(found[t], total, rtol=1e-4, atol=1e-4)


def _args(stream: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    reward, terminated, truncated, _, value = stream
    return reward, terminated, truncated, value


def test_values_without_the_last_observation_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"T\+1"):
        returns.gae(column(1, 2), flags(NO, NO), flags(NO, NO), column(1, 2), 0.9, 0.9)


# --- the fixed point through the real rollouts ---------------------------------------------------

SLOTS, GAMMA = 2, 0.9


class CountingVector(VectorEnv[Any, Any, Any]):
    """The counting environment as a native vector environment."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 (Gymnasium's type)

    def __init__(self, num_envs: int = 1, length: int = 5, end: str = "terminated") -> None:
        self.num_envs, self.length, self.end = num_envs, length, end
        self.single_observation_space = spaces.Box(0.0, 1.0, (length + 1,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.counts, self.ends = np.zeros(num_envs, int), np.zeros(num_envs, bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.counts[:], self.ends[:] = 0, False
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        self.counts = np.where(self.ends, 0, self.counts + 1)
        self.ends = self.counts == self.length
        never = np.zeros(self.num_envs, bool)
        ends = (self.ends, never) if self.end == "terminated" else (never, self.ends)
        return self._observe(), np.ones(self.num_envs), *ends, {}

    def _observe(self) -> np.ndarray:
        return (np.arange(self.length + 1) == self.counts[:, None]).astype(np.float32)


gymnasium.register(
    "CountingForReturns-v0",
    entry_point="rookery.testing.envs:CountingEnv",
    vector_entry_point=CountingVector,  # type: ignore[arg-type]
)


def make_rollout(adapter: str, end: End, length: int, steps: int) -> Callable[[], Played]:
    """Plays the counting environment with an untrained policy, going on where it left off."""
    options = {"length": length, "end": end}
    if adapter == "compiled":
        register_pytrees()
        compiled = CountingCompiled(length, end)
        network = Network(compiled.spec.seats[SOLO_SEAT], NetworkConfig(hidden=(4,)))
        player = PolicyPlayer(network, jax.numpy, draw_jax)
        rollout: Any = CompiledRollout(compiled, player, SOLO_SEAT, steps, SLOTS, 0)
    else:
        if adapter == "native":
            env = GymnasiumEnvironment("CountingForReturns-v0", SLOTS, options)
            assert env.native
        else:
            env = GymnasiumEnvironment("counting", SLOTS, options, CountingEnv)
        network = Network(env.spec.seats[SOLO_SEAT], NetworkConfig(hidden=(4,)))
        rng = np.random.default_rng(0)
        rollout = SteppedRollout(env, PolicyPlayer(network), SOLO_SEAT, steps, rng, 0)
    arrays = network.acting_arrays(*initial_arrays(network, 0))
    admitted = Admitted(WeightsVersion(1, 0), {"main": arrays})
    return lambda: rollout(admitted)


@functools.cache
def played(adapter: str, end: End, length: int, steps: int) -> tuple[np.ndarray, ...]:
    """Counts, rewards, flags of as many fragments as it takes to come back to the beginning.

    A lap is length + 1 rows with its reset row, so that many fragments hold every way in which an
    episode can be cut. They stand side by side, as a learner's batch has them.
    """
    play = make_rollout(adapter, end, length, steps)
    fragments = [play().steps["main"] for _ in range(length + 1)]
    counts = np.concatenate([f.observation[""].argmax(-1) for f in fragments], axis=1)
    assert counts.shape == (steps + 1, SLOTS * (length + 1))
    joined = [
        np.concatenate([getattr(f, name) for f in fragments], axis=1)
        for name in ("reward", "terminated", "truncated", "valid")
    ]
    return counts, *joined


def fitted_table(
    adapter: str, end: End, length: int, steps: int, estimate: Callable[..., Any]
) -> np.ndarray:
    """A table of values, one per count, set again and again to the mean of its targets."""
    counts, reward, terminated, truncated, valid = played(adapter, end, length, steps)
    table = np.zeros(length + 1)
    for _ in range(120):
        target = np.asarray(
            estimate(reward, terminated, truncated, table[counts].astype(np.float32))
        )
        for n in range(length):
            table[n] = target[(counts[:-1] == n) & valid].mean()
        if end == "truncated":
            # Nothing is ever played from a final observation, so a table knows nothing of it; the
            # world goes on there as everywhere else, which is what a network would generalise.
            table[length] = table[:length].mean()
    return table


def gae_targets(reward: Any, terminated: Any, truncated: Any, value_t: Any) -> Any:
    return gae(reward, terminated, truncated, value_t, GAMMA, 0.8).value


def vtrace_targets(reward: Any, terminated: Any, truncated: Any, value_t: Any) -> Any:
    zeros = np.zeros_like(reward)
    return vtrace(reward, terminated, truncated, value_t, zeros, GAMMA, 1.0, 1.0, 1.0).value


# With length 4, T = 4 ends every episode's first fragment exactly at its edge and leaves the reset
# row to the next one; T = 5 puts the reset row last; the others let the end wander.
CUTS = [
    *((adapter, steps) for adapter in ("looped", "native") for steps in (1, 4, 5, 13)),
    *(("compiled", steps) for steps in (4, 13)),  # each is a compile
]


@pytest.mark.parametrize("estimate", [gae_targets, vtrace_targets])
@pytest.mark.parametrize(("adapter", "steps"), CUTS)
def test_constant_reward_under_truncation_is_worth_one_over_one_minus_gamma(
    adapter: str, steps: int, estimate: Any
) -> None:
    table = fitted_table(adapter, "truncated", 4, steps, estimate)

    np.testing.assert_allclose(table, 1 / (1 - GAMMA), rtol=1e-3)


@pytest.mark.parametrize("estimate", [gae_targets, vtrace_targets])
@pytest.mark.parametrize(("adapter", "steps"), CUTS)
def test_constant_reward_under_termination_is_worth_the_finite_sum(
    adapter: str, steps: int, estimate: Any
) -> None:
    table = fitted_table(adapter, "terminated", 4, steps, estimate)

    left = np.asarray([4, 3, 2, 1])
    np.testing.assert_allclose(table[:4], (1 - GAMMA**left) / (1 - GAMMA), rtol=1e-5)


@pytest.mark.parametrize("adapter", ["looped", "native", "compiled"])
def test_an_episode_that_ends_at_the_edge_ends_in_its_own_fragment(adapter: str) -> None:
    play = make_rollout(adapter, "truncated", 4, 4)

    turn = play()
    first, second = turn.steps["main"], play().steps["main"]

    assert first.truncated[:, 0].tolist() == [NO, NO, NO, YES] and first.valid.all()
    assert first.observation[""][-1].argmax(-1).tolist() == [4] * SLOTS
    assert [e.total_reward for e in turn.episodes["main"]] == [4.0] * SLOTS
    assert second.valid[:, 0].tolist() == [NO, YES, YES, YES]
    assert second.observation[""][0].argmax(-1).tolist() == [4] * SLOTS
    assert second.reward[0].tolist() == [0.0] * SLOTS
