"""What every adapter promises: resets one step later, true final observations, exact saves."""

from __future__ import annotations

import io
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rookery.envs import SOLO_SEAT, Arrays, BatchedEnvironment, SeatView
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.envs.jax.environment import SteppedCompiled
from rookery.envs.registry import make
from rookery.errors import InputError
from rookery.spaces import Categorical, Continuous, MultiCategorical
from rookery.testing.envs import CountingCompiled, CountingEnv

SLOTS = 3
LENGTH = 4


class CountingVector(VectorEnv[Any, Any, Any]):
    """A native vector environment that counts, and that reuses all of its arrays."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012 (Gymnasium's type)

    def __init__(self, num_envs: int = 1, length: int = 5, end: str = "terminated") -> None:
        self.num_envs = num_envs
        self.length, self.end = length, end
        self.single_observation_space = spaces.Box(0.0, 1.0, (length + 1,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self.action_space = gymnasium.vector.utils.batch_space(self.single_action_space, num_envs)
        self.counts = np.zeros(num_envs, int)
        self.observations = np.zeros((num_envs, length + 1), np.float32)
        self.rewards = np.ones(num_envs)
        self.ends = np.zeros(num_envs, bool)
        self.never = np.zeros(num_envs, bool)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.counts[:] = 0
        self.ends[:] = False
        return self._observe(), {}

    def step(self, actions: Any) -> Any:
        assert self.action_space.contains(actions)
        self.counts[:] = np.where(self.ends, 0, self.counts + 1)
        self.ends[:] = self.counts == self.length
        flags = (self.ends, self.never) if self.end == "terminated" else (self.never, self.ends)
        return self._observe(), self.rewards, *flags, {}

    def _observe(self) -> np.ndarray:
        self.observations[:] = np.arange(self.length + 1) == self.counts[:, None]
        return self.observations


gymnasium.register(
    "CountingForTests-v0",
    entry_point="rookery.testing.envs:CountingEnv",
    vector_entry_point=CountingVector,  # type: ignore[arg-type]
)


def counting(adapter: str, end: str) -> BatchedEnvironment:
    options = {"length": LENGTH, "end": end}
    if adapter == "native":
        return GymnasiumEnvironment("CountingForTests-v0", SLOTS, options)
    if adapter == "looped":
        return GymnasiumEnvironment("counting", SLOTS, options, CountingEnv)
    return SteppedCompiled(CountingCompiled(length=LENGTH, end=end), SLOTS)  # type: ignore[arg-type]


def play(env: BatchedEnvironment, steps: int) -> list[SeatView]:
    actions = {SOLO_SEAT: np.zeros(env.slots, np.int64)}
    return [env.step(actions)[SOLO_SEAT] for _ in range(steps)]


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("adapter", ["native", "looped", "compiled"])
def test_an_episode_ends_where_it_should_and_begins_again_one_step_later(
    adapter: str, end: str
) -> None:
    env = counting(adapter, end)
    first = env.reset(seed=0)[SOLO_SEAT]
    assert isinstance(env, SteppedCompiled) or env.native == (adapter == "native")
    assert first.observation[""].argmax(axis=1).tolist() == [0] * SLOTS
    assert not (first.reset.any() or first.terminated.any() or first.truncated.any())
    assert first.reward.tolist() == [0.0] * SLOTS

    views = play(env, 2 * (LENGTH + 1))

    # One episode is LENGTH rewarded steps, then one reset row that is not experience.
    counts, rewards = [1, 2, 3, 4, 0] * 2, [1.0, 1.0, 1.0, 1.0, 0.0] * 2
    ends, resets = [False, False, False, True, False] * 2, [False] * 4 + [True] + [False] * 4
    assert [v.observation[""].argmax(axis=1).tolist() for v in views] == [[c] * 3 for c in counts]
    assert [v.reward.tolist() for v in views] == [[r] * 3 for r in rewards]
    assert [getattr(v, end).tolist() for v in views] == [[e] * 3 for e in ends]
    other = "truncated" if end == "terminated" else "terminated"
    assert not any(getattr(v, other).any() for v in views)
    assert [v.reset.tolist() for v in views] == [[r] * 3 for r in [*resets, True]]
    assert sum(float(v.reward.sum()) for v in views) == 2 * LENGTH * SLOTS
    view = views[0]
    assert (view.reward.dtype, view.terminated.dtype) == (np.float32, np.bool_)
    assert view.observation[""].flags.c_contiguous and view.observation[""].flags.writeable
    env.close()


@pytest.mark.parametrize("adapter", ["native", "looped", "compiled"])
def test_reset_in_mid_episode_begins_anew(adapter: str) -> None:
    env = counting(adapter, "terminated")
    env.reset(seed=0)
    play(env, LENGTH)  # the next step would be a reset row
    env.reset(seed=1)
    view = play(env, 1)[0]
    assert view.observation[""].argmax(axis=1).tolist() == [1] * SLOTS
    assert not view.reset.any() and view.reward.tolist() == [1.0] * SLOTS


def test_native_cart_pole_truncates_with_its_true_final_observation() -> None:
    env = GymnasiumEnvironment("CartPole-v1", 5, {"max_episode_steps": 3})
    assert env.native and env.spec.max_episode_steps == 3
    first = env.reset(seed=1)[SOLO_SEAT].observation[""]
    views = play(env, 8)
    assert [v.truncated.all() for v in views] == [s in (2, 6) for s in range(8)]
    assert [v.reset.all() for v in views] == [s in (3, 7) for s in range(8)]
    assert not any(v.terminated.any() for v in views)
    single = gymnasium.make("CartPole-v1").unwrapped
    for slot in range(5):  # the same physics by hand, from the same start
        single.reset()
        single.state = first[slot].astype(np.float64)  # type: ignore[attr-defined]
        for _ in range(3):
            expected = single.step(0)[0]
        np.testing.assert_allclose(views[2].observation[""][slot], expected, atol=1e-5)
    assert (np.abs(views[3].observation[""]) <= 0.05).all()


def test_native_cart_pole_terminates_with_its_true_final_observation() -> None:
    env = GymnasiumEnvironment("CartPole-v1", 8)
    env.reset(seed=2)
    lengths = np.zeros(8)
    for view in play(env, 100):
        fallen = np.abs(view.observation[""][:, 2]) > 12 * 2 * np.pi / 360
        assert (fallen == view.terminated).all()
        assert (view.reward == np.where(view.reset, 0, 1)).all()
        lengths += view.terminated
    assert lengths.min() >= 8 and not view.truncated.any()  # always left falls in about 9 steps


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_gymnax_keeps_ends_apart_and_the_final_observation(end: str) -> None:
    options: dict[str, Any] = {"max_steps_in_episode": 3} if end == "truncated" else {}
    env = make("gymnax:CartPole-v1", 4, options)
    env.reset(seed=0)
    ended, count = np.zeros(4, bool), {"terminated": 0, "truncated": 0}
    for view in play(env, 40):
        fallen = np.abs(view.observation[""][:, 2]) > 12 * 2 * np.pi / 360
        assert (view.reset == ended).all() and (view.reward == np.where(ended, 0, 1)).all()
        assert (view.terminated == fallen).all()
        assert (np.abs(view.observation[""][view.reset]) <= 0.05).all()
        ended = view.terminated | view.truncated
        for flag in count:
            count[flag] += int(getattr(view, flag).sum())
    # Truncated after 3 steps and 1 reset row: 10 times in 40. Always left falls in 8 to 10 steps.
    if end == "truncated":
        assert count == {"terminated": 0, "truncated": 40}
    else:
        assert 12 <= count["terminated"] <= 20 and count["truncated"] == 0


# --- save and restore --------------------------------------------------------------------------

SAVED: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {}),
    ("CartPole-v1", {"max_episode_steps": 15}),
    ("Acrobot-v1", {"max_episode_steps": 30}),
    ("Pendulum-v1", {"max_episode_steps": 30}),
    ("MountainCar-v0", {"max_episode_steps": 30}),
    ("MountainCarContinuous-v0", {"max_episode_steps": 30}),
    ("FrozenLake-v1", {}),
    ("CliffWalkingSlippery-v1", {"max_episode_steps": 30}),
    ("Taxi-v4", {"max_episode_steps": 30, "fickle_passenger": True}),
    ("Blackjack-v1", {}),
    ("gymnax:Pendulum-v1", {"max_steps_in_episode": 30}),
    ("rookery.testing.envs:CountingEnv", {"length": 7}),
    ("rookery.testing.envs:CountingCompiled", {"length": 7}),
    ("CartPole-v0", {"render_mode": "rgb_array"}),
]


def random_actions(env: BatchedEnvironment, view: SeatView, rng: np.random.Generator) -> Any:
    head = env.spec.seats[SOLO_SEAT].action
    if isinstance(head, Continuous):
        return rng.uniform(-1, 1, (env.slots, *head.shape)).astype(np.float32)
    if isinstance(head, MultiCategorical):
        return rng.integers(0, head.sizes, (env.slots, len(head.sizes)))
    assert isinstance(head, Categorical)
    if view.mask is None:
        return rng.integers(0, head.n, env.slots)
    return np.asarray([rng.choice(np.flatnonzero(legal)) for legal in view.mask])


def play_randomly(env: BatchedEnvironment, view: SeatView, steps: int) -> list[SeatView]:
    rng = np.random.default_rng(7)
    views = [view]
    for _ in range(steps):
        actions = random_actions(env, views[-1], rng)
        views.append(env.step({SOLO_SEAT: actions})[SOLO_SEAT])
    return views


def through_a_file(state: Arrays) -> Arrays:
    file = io.BytesIO()
    np.savez(file, **state)  # refuses objects when loaded without pickle
    file.seek(0)
    return dict(np.load(file, allow_pickle=False))


def assert_same(left: list[SeatView], right: list[SeatView]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        for path in a.observation:
            np.testing.assert_array_equal(a.observation[path], b.observation[path], strict=True)
        for name in ("mask", "reward", "terminated", "truncated", "reset"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), strict=True)


@pytest.mark.parametrize(("id", "options"), SAVED)
def test_a_restored_environment_plays_on_as_if_never_saved(
    id: str, options: dict[str, Any]
) -> None:
    env = make(id, 4, options)
    assert env.spec.can_save
    played = play_randomly(env, env.reset(seed=3)[SOLO_SEAT], 37)
    state = through_a_file(env.save())

    onward = play_randomly(env, played[-1], 60)
    assert any(v.reset.any() for v in onward), "no episode ended: the test would prove little"
    assert_same(play_randomly(env, env.restore(state)[SOLO_SEAT], 60), onward)

    fresh = make(id, 4, options)  # as after a restart of the process
    assert_same(play_randomly(fresh, fresh.restore(state)[SOLO_SEAT], 60), onward)
    env.close()
    fresh.close()


@pytest.mark.parametrize("id", ["CartPole-v1", "FrozenLake-v1", "gymnax:CartPole-v1"])
def test_a_state_of_another_environment_is_refused(id: str) -> None:
    env = make(id, 2)
    env.reset(seed=0)
    state = env.save()
    with pytest.raises(InputError, match="3 slots"):
        make(id, 3).restore(state)
    with pytest.raises(InputError):
        make("Acrobot-v1", 2).restore(state)
    with pytest.raises(InputError):
        env.restore({})


def test_an_environment_that_cannot_be_saved_says_so() -> None:
    env = make("LunarLander-v3", 1)
    env.reset(seed=0)
    assert not env.spec.can_save
    with pytest.raises(InputError, match=r"LunarLander-v3 cannot save"):
        env.save()
    env.close()


@pytest.mark.parametrize("id", ["CartPole-v1", "Acrobot-v1", "gymnax:CartPole-v1"])
def test_seeds_decide_the_episodes_and_slots_differ(id: str) -> None:
    env = make(id, 4)
    first, again, other = (env.reset(seed=s)[SOLO_SEAT].observation[""] for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    rows = {row.tobytes() for row in np.concatenate([first, other])}
    assert len(rows) == 8  # no slot of one seed repeats a slot of its neighbour
