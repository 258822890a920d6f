"""Gymnax environments and compiled ones in general."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rookery.envs import SOLO_SEAT, CompiledStep
from rookery.envs.jax.environment import SteppedCompiled, register_pytrees
from rookery.envs.jax.gymnax import GymnaxEnvironment
from rookery.errors import ConfigError, EnvironmentFailed, InputError, UnknownName
from rookery.spaces import Categorical, Continuous
from rookery.testing.envs import CountingCompiled


def test_a_compiled_step_is_a_pytree_however_often_it_is_registered() -> None:
    register_pytrees()
    register_pytrees()
    step = CompiledStep({"a": 1}, 2, 3, 4, 5)
    assert jax.tree.leaves(step) == [1, 2, 3, 4, 5]
    assert jax.tree.map(lambda x: x + 1, step) == CompiledStep({"a": 2}, 3, 4, 5, 6)


def test_a_whole_rollout_is_one_scan_with_a_steady_carry() -> None:
    env = GymnaxEnvironment("gymnax:Breakout-MinAtar")

    @jax.jit
    def rollout(key: Any) -> Any:
        state, _ = env.reset(key)

        def body(state: Any, key: Any) -> Any:
            action = jax.random.randint(key, (), 0, 3)
            state, step = env.step(key, state, action)
            return state, (step, env._env.get_obs(state[0]))

        return jax.lax.scan(body, state, jax.random.split(key, 300))[1]

    steps, raw = jax.vmap(rollout)(jax.random.split(jax.random.key(0), 3))
    np.testing.assert_array_equal(steps.observation[""], raw)  # a byte holds all that it shows
    assert steps.observation[""].shape == (3, 300, 10, 10, 4)
    assert steps.observation[""].dtype == jnp.uint8 and raw.dtype == jnp.float32
    leaf = env.spec.seats[SOLO_SEAT].observation[0]
    assert (leaf.kind, leaf.shape, leaf.low, leaf.high) == ("image", (10, 10, 4), 0, 1)
    ended = np.asarray(steps.terminated | steps.truncated)
    assert ended.sum() > 5
    np.testing.assert_array_equal(np.asarray(steps.reset)[:, 1:], ended[:, :-1])
    assert not np.asarray(steps.reward)[np.asarray(steps.reset)].any()
    assert float(steps.reward.sum()) > 0


def test_continuous_actions_are_clipped() -> None:
    env = GymnaxEnvironment("gymnax:Pendulum-v1")
    assert env.spec.seats[SOLO_SEAT].action == Continuous((1,), (-2.0,), (2.0,), "float32")
    assert env._action(jnp.asarray([50.0])).tolist() == [2.0]
    assert env._action(jnp.asarray([-1.5])).tolist() == [-1.5]


class Noisy(CountingCompiled):
    """Observes nothing but the randomness it was given."""

    def step(self, key: Any, state: Any, action: Any) -> Any:
        state, step = super().step(key, state, action)
        noise = {"": jax.random.uniform(key, (self.length + 1,))}
        return state, dataclasses.replace(step, observation=noise)


def test_each_step_of_each_slot_has_its_own_randomness() -> None:
    env = SteppedCompiled(Noisy(), 3)
    env.reset(seed=0)
    actions = {SOLO_SEAT: np.zeros(3, np.int64)}
    rows = np.concatenate([env.step(actions)[SOLO_SEAT].observation[""] for _ in range(4)])
    assert len({row.tobytes() for row in rows}) == 12


def test_options_reach_the_parameters_and_the_constructor() -> None:
    env = GymnaxEnvironment("gymnax:CartPole-v1", {"max_steps_in_episode": 7, "gravity": 5})
    assert env.spec.max_episode_steps == 7 and env._params.gravity == 5.0
    full = GymnaxEnvironment("gymnax:Breakout-MinAtar", {"use_minimal_action_set": False})
    assert full.spec.seats[SOLO_SEAT].action == Categorical(6)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"gravty": 1.0}, "did you mean gravity"), ({"gravity": "low"}, "not of type float")],
)
def test_a_wrong_option_is_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GymnaxEnvironment("gymnax:CartPole-v1", options)


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="gymnax:Breakout-MinAtar"):
        GymnaxEnvironment("gymnax:Brekout-MinAtar")


def test_a_compiled_environment_that_cannot_be_traced_fails_with_its_own_frames() -> None:
    class Broken(CountingCompiled):
        def step(self, key: Any, state: Any, action: Any) -> Any:
            raise RuntimeError("no step today")

    env = SteppedCompiled(Broken(), 2)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailed, match="no step today") as caught:
        env.step({SOLO_SEAT: np.zeros(2, np.int64)})
    assert "test_gymnax.py" in caught.value.user_traceback
    assert "rookery/envs/" not in caught.value.user_traceback


def test_a_state_of_another_version_is_refused() -> None:
    env = SteppedCompiled(CountingCompiled(length=3), 2)
    env.reset(seed=0)
    state = env.save()
    with pytest.raises(InputError, match="another version"):
        SteppedCompiled(CountingCompiled(length=4), 2).restore(state)
