"""The Gymnasium adapter: spaces, actions, masks and failures."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rookery.envs import SOLO_SEAT, SeatView
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.envs.gymnasium.probe import _frames_limit
from rookery.errors import ConfigError, EnvironmentFailed, InputError
from rookery.spaces import Categorical, Continuous, Leaf, MultiCategorical
from rookery.testing.envs import (
    ContinuousBandit,
    CountingEnv,
    FailingEnv,
    HangingEnv,
    MaskedEnv,
    NestedEnv,
)


class Scripted(gymnasium.Env[Any, Any]):
    """Any spaces; samples observations, remembers what was played."""

    def __init__(self, observation: Any = None, action: Any = None) -> None:
        self.observation_space = observation or spaces.Box(0, 1, (1,))
        self.action_space = action or spaces.Discrete(2)
        self.played: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.played.append(action)
        return self.observation_space.sample(), 0.0, False, False, {}


def adapt(factory: Any, slots: int = 2, **options: Any) -> GymnasiumEnvironment:
    return GymnasiumEnvironment("test", slots, options, factory)


def step(env: GymnasiumEnvironment, actions: Any) -> SeatView:
    return env.step({SOLO_SEAT: np.asarray(actions)})[SOLO_SEAT]


# --- observation spaces ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "leaf"),
    [
        (spaces.Box(-1, 2, (3,)), Leaf("", "box", (3,), "float32", low=-1, high=2)),
        (spaces.Box(-1, 2, ()), Leaf("", "box", (1,), "float32", low=-1, high=2)),
        (spaces.Box(0, 9, (2, 3), np.int64), Leaf("", "box", (2, 3), "float32", low=0, high=9)),
        (spaces.Box(0, 9, (2,), np.int16), Leaf("", "box", (2,), "int16", low=0, high=9)),
        (spaces.Box(-np.inf, np.inf, (8, 8)), Leaf("", "box", (8, 8), "float32")),
        (spaces.Box(0, 9, (9, 8, 3), np.uint8), Leaf("", "image", (9, 8, 3), "uint8", (), 0, 9)),
        (spaces.Box(0, 9, (4, 9, 8), np.uint8), Leaf("", "image", (9, 8, 4), "uint8", (), 0, 9)),
        (spaces.Box(0, 9, (8, 8, 16), np.uint8), Leaf("", "image", (8, 8, 16), "uint8", (), 0, 9)),
        (spaces.Box(0, 1, (10, 12)), Leaf("", "image", (10, 12, 1), "float32", low=0, high=1)),
        (spaces.Box(0, 1, (6, 6, 3)), Leaf("", "box", (6, 6, 3), "float32", low=0, high=1)),
        (spaces.Discrete(4, start=-2), Leaf("", "discrete", (), "int32", sizes=(4,))),
        (spaces.MultiDiscrete([3, 2]), Leaf("", "multi_discrete", (2,), "int32", sizes=(3, 2))),
        (spaces.MultiBinary((2, 2)), Leaf("", "multi_binary", (2, 2), "uint8", low=0, high=1)),
    ],
)  # fmt: skip
def test_each_space_has_its_leaf(space: Any, leaf: Leaf) -> None:
    env = adapt(lambda: Scripted(space))
    assert env.spec.seats[SOLO_SEAT].observation == (leaf,)
    for view in (env.reset(seed=0)[SOLO_SEAT], step(env, [0, 0])):
        array = view.observation[""]
        assert (array.shape, array.dtype.name) == ((2, *leaf.shape), leaf.dtype)


def test_nested_observations_arrive_leaf_by_leaf_with_their_values() -> None:
    env = adapt(NestedEnv)
    assert [leaf.path for leaf in env.spec.seats[SOLO_SEAT].observation] == [
        "arm.angle", "arm.on", "camera", "pair.0", "pair.1",
    ]  # fmt: skip
    env.reset(seed=0)
    for count in range(1, 6):
        seen = step(env, [[0, 0], [0, 0]]).observation
        np.testing.assert_allclose(seen["arm.angle"], [[0.25 * count, -0.5 * count]] * 2)
        assert seen["arm.on"].tolist() == [[count % 2, 1, 0]] * 2
        assert seen["camera"].shape == (2, 8, 9, 3)
        assert (seen["camera"] == [count, 100 + count, count]).all()
        assert seen["pair.0"].tolist() == [count % 5] * 2  # counted from 0, not from its start
        assert seen["pair.1"].tolist() == [[count % 3, count % 2]] * 2


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Text(5), "has a Text,"),
        (spaces.Dict({"a": spaces.Tuple((spaces.Discrete(2), spaces.Text(5)))}), "Text at 'a.1'"),
        (spaces.Sequence(spaces.Discrete(2)), "has a Sequence,"),
        (spaces.Graph(spaces.Box(0, 1, (1,)), None), "has a Graph,"),
        (spaces.Dict({"x": spaces.OneOf((spaces.Discrete(2),))}), "OneOf at 'x'"),
        (spaces.Box(0, 1, (2, 2, 2, 2)), "Box with 4 dimensions"),
    ],
)  # fmt: skip
def test_an_unsupported_observation_is_named_with_its_place(space: Any, named: str) -> None:
    with pytest.raises(InputError, match="supported are Box") as caught:
        adapt(lambda: Scripted(space))
    assert named in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "space", [spaces.MultiBinary(3), spaces.Dict({"a": spaces.Discrete(2)}), spaces.Text(3)]
)
def test_an_unsupported_action_is_named(space: Any) -> None:
    message = f"the action space is a {type(space).__name__}, .*Discrete, MultiDiscrete and Box"
    with pytest.raises(InputError, match=message):
        adapt(lambda: Scripted(action=space))


def test_two_parts_with_one_path_are_refused() -> None:
    one = spaces.Discrete(2)
    with pytest.raises(InputError, match=r"two parts named 'a\.b'"):
        adapt(lambda: Scripted(spaces.Dict({"a": spaces.Dict({"b": one}), "a.b": one})))


def test_an_observation_that_does_not_fit_its_space_is_told() -> None:
    class Lying(Scripted):
        def reset(self, **kwargs: Any) -> Any:
            return np.zeros((1, 1), np.float32), {}

    with pytest.raises(InputError, match=r"shape \(1, 1\), but its space says \(1,\)"):
        adapt(Lying)


# --- actions -----------------------------------------------------------------------------------


def played(space: Any, actions: Any) -> tuple[Any, list[Any]]:
    made: list[Scripted] = []
    env = adapt(lambda: made.append(Scripted(action=space)) or made[-1])
    env.reset(seed=0)
    step(env, actions)
    return env.spec.seats[SOLO_SEAT].action, [copy.played[-1] for copy in made[-2:]]


def test_discrete_actions_begin_at_the_spaces_start() -> None:
    head, actions = played(spaces.Discrete(3, start=5), [0, 2])
    assert head == Categorical(3, start=5)
    assert actions == [5, 7] and all(spaces.Discrete(3, start=5).contains(a) for a in actions)


def test_multi_discrete_actions_begin_at_their_starts() -> None:
    space = spaces.MultiDiscrete([3, 2], start=[1, -1])
    head, actions = played(space, [[0, 1], [2, 0]])
    assert head == MultiCategorical((3, 2), (1, -1))
    assert [a.tolist() for a in actions] == [[1, 0], [3, -1]]
    assert all(space.contains(a) for a in actions)


def test_continuous_actions_are_clipped_and_open_bounds_stay_open() -> None:
    space = spaces.Box(np.array([-1, -np.inf]), np.array([2, np.inf]), dtype=np.float64)
    head, actions = played(space, np.array([[-3, -300], [1.5, 900]], np.float32))
    assert head == Continuous((2,), (-1, -np.inf), (2, np.inf), "float64")
    assert [a.tolist() for a in actions] == [[-1, -300], [1.5, 900]]
    assert all(space.contains(a) for a in actions)


def test_a_box_of_integers_gets_the_nearest_one() -> None:
    _, actions = played(spaces.Box(0, 9, (1,), np.int32), np.array([[2.6], [9.9]], np.float32))
    assert [a.tolist() for a in actions] == [[3], [9]] and actions[0].dtype == np.int32


def test_the_continuous_bandit_rewards_nearness() -> None:
    env = adapt(ContinuousBandit)
    env.reset(seed=0)
    view = step(env, [[0.5], [-5.0]])  # the second is clipped to -1
    np.testing.assert_allclose(view.reward, [0.0, -2.25])
    assert view.terminated.all()


# --- masks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask_in", ["info", "observation"])
def test_masks_tell_the_legal_actions(mask_in: str) -> None:
    env = adapt(MaskedEnv, actions=4, length=3, mask_in=mask_in)
    seat = env.spec.seats[SOLO_SEAT]
    assert seat.masked
    assert [leaf.path for leaf in seat.observation] == ["" if mask_in == "info" else "board"]
    view = env.reset(seed=0)[SOLO_SEAT]
    even, odd, any_ = [True, False] * 2, [False, True] * 2, [True] * 4
    # The final observation allows nothing; since its action is ignored, any may be chosen.
    for expected in (even, odd, even, any_, even):
        assert view.mask is not None and view.mask.dtype == np.bool_
        assert view.mask.tolist() == [expected] * 2
        view = step(env, view.mask.argmax(axis=1))


def test_an_illegal_action_is_the_environments_to_refuse() -> None:
    env = adapt(MaskedEnv)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailed, match="illegal action 1 at step 0") as caught:
        step(env, [0, 1])
    assert caught.value.slot == 1


class MaskedPair(Scripted):
    """Two choices of 3 and 2, masked as one array or as one each."""

    def __init__(self, flat: bool) -> None:
        super().__init__(action=spaces.MultiDiscrete([3, 2]))
        masks = (np.array([1, 0, 1]), np.array([0, 1]))
        self.mask = np.concatenate(masks) if flat else masks

    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0], {"action_mask": self.mask}


@pytest.mark.parametrize("flat", [True, False])
def test_masks_of_several_choices_lie_side_by_side(flat: bool) -> None:
    view = adapt(MaskedPair, flat=flat).reset(seed=0)[SOLO_SEAT]
    assert view.mask is not None
    assert view.mask.tolist() == [[True, False, True, False, True]] * 2


def test_a_mask_of_the_wrong_width_is_told() -> None:
    class Wrong(Scripted):
        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs)[0], {"action_mask": np.ones(3)}

    with pytest.raises(InputError, match=r"mask has the shape \(3,\), not \(2,\)"):
        adapt(Wrong)


def test_taxi_is_masked_by_its_info() -> None:
    env = GymnasiumEnvironment("Taxi-v4", 3)
    view = env.reset(seed=0)[SOLO_SEAT]
    assert env.spec.seats[SOLO_SEAT].masked and view.mask is not None
    assert view.mask.shape == (3, 6) and 0 < view.mask.sum() < 18


# --- failures ----------------------------------------------------------------------------------


def test_a_failing_step_names_seat_slot_step_and_only_the_users_frames() -> None:
    env = adapt(FailingEnv, slots=3, at=7, length=4, max_episode_steps=100)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailed, match="fails at step 7") as caught:
        for _ in range(20):  # 4 steps, a reset row, then the 7th step of slot 0
            step(env, [0, 0, 0])
    failure = caught.value
    assert (failure.seat, failure.slot, failure.step) == (SOLO_SEAT, 0, 6)
    assert isinstance(failure.__cause__, RuntimeError) and "\n" not in str(failure)
    trace = failure.user_traceback
    assert "rookery/testing/envs.py" in trace and trace.endswith("fails at step 7\n")
    assert "rookery/envs/" not in trace and "wrappers" not in trace


def test_a_failing_reset_is_told_when_it_happens() -> None:
    env = adapt(FailingEnv, at=2, where="reset", length=2)
    env.reset(seed=0)
    step(env, [0, 0])
    step(env, [0, 0])
    with pytest.raises(EnvironmentFailed, match="in reset after 2 steps of slot 0") as caught:
        step(env, [0, 0])
    assert caught.value.step == 2 and "in _fail" in caught.value.user_traceback


def test_an_environment_that_cannot_begin_fails_while_it_is_made() -> None:
    with pytest.raises(EnvironmentFailed, match="fails at reset 1"):
        adapt(FailingEnv, at=1, where="reset")


def test_a_broken_constructor_shows_its_own_frames() -> None:
    def broken() -> Any:
        raise ZeroDivisionError("oh")

    with pytest.raises(EnvironmentFailed, match="ZeroDivisionError in being made") as caught:
        adapt(broken)
    assert "in broken" in caught.value.user_traceback


def test_an_observation_that_goes_bad_later_is_a_failure_not_a_crash() -> None:
    class Rotting(CountingEnv):
        def step(self, action: Any) -> Any:
            return np.zeros(3), 0.0, False, False, {}

    env = adapt(Rotting)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailed, match="does not fit its space"):
        step(env, [0, 0])


def test_a_native_environment_that_raises_is_translated_too() -> None:
    env = GymnasiumEnvironment("CartPole-v1", 2)
    with pytest.raises(EnvironmentFailed, match="Call reset before") as caught:
        step(env, [0, 0])
    assert caught.value.slot is None and "cartpole.py" in caught.value.user_traceback


def test_a_hanging_environment_hangs_only_at_its_step() -> None:
    env = adapt(HangingEnv, at=3, seconds=0.05)
    env.reset(seed=0)
    assert [step(env, [0, 0]).reward.tolist() for _ in range(4)] == [[1.0, 1.0]] * 4


def test_slots_are_checked() -> None:
    with pytest.raises(ConfigError, match="at least 1 slot"):
        adapt(CountingEnv, slots=0)


def test_options_that_the_vector_environment_lacks_fall_back_to_the_loop() -> None:
    gymnasium.register(
        "OnlySingleHasOption-v0",
        entry_point=lambda flavour="plain": CountingEnv(),
        vector_entry_point="gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv",
    )
    assert GymnasiumEnvironment("OnlySingleHasOption-v0", 2).native
    assert not GymnasiumEnvironment("OnlySingleHasOption-v0", 2, {"flavour": "x"}).native


# --- seeds -------------------------------------------------------------------------------------


class Choosy(Scripted):
    """Like Atari's emulator: refuses seeds of more than 31 bits."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert seed is None or seed < 2**31, f"seed {seed} does not fit"
        return super().reset(seed=seed)


@pytest.mark.parametrize("seed", [0, 2**31, 2**32 - 1])
def test_no_environment_gets_a_seed_that_does_not_fit_31_bits(seed: int) -> None:
    env = adapt(Choosy, slots=16)
    first, second = env.reset(seed), env.reset(seed)
    np.testing.assert_array_equal(
        first[SOLO_SEAT].observation[""], second[SOLO_SEAT].observation[""]
    )


def test_a_vector_environment_can_count_on_from_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    env = GymnasiumEnvironment("CartPole-v1", 8)
    assert env.native
    got: list[int] = []
    inner: Any = env._copies
    whole = inner._env.reset
    monkeypatch.setattr(inner._env, "reset", lambda seed: (got.append(seed), whole(seed=seed))[1])
    for seed in (2**31 - 1, 2**31, 2**32 - 1):
        env.reset(seed)
    assert max(got) + 8 <= 2**31


def test_ataris_limit_of_frames_is_one_of_steps() -> None:
    assert _frames_limit({"max_num_frames_per_episode": 108_000, "frameskip": 4}) == 27_000
    assert _frames_limit({"max_num_frames_per_episode": 9, "frameskip": (2, 5)}) is None
    assert _frames_limit({}) is None
