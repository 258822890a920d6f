"""EnvRunner as a plain class: every step once, with the weights that were set. No Ray here."""

from __future__ import annotations

import copy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rookery
from rookery.config.reading import build
from rookery.errors import InputError, UnknownName
from rookery.messages.steps import Steps
from rookery.ray import EnvRunner, RunnerWeights, Sample
from rookery.spaces import Categorical

SLOTS = 3
EPISODE = 5
SMALL = {"actors": {"envs_per_actor": SLOTS, "rollout_steps": 8}}
CONNECT_FOUR = {
    "environment": {"id": "pettingzoo:connect_four_v3"},
    "actors": {"envs_per_actor": 2, "rollout_steps": 16},
}


class NumberedEnv(gymnasium.Env[np.ndarray, int]):
    """Shows how many steps it has played in its life, so that each step can be told apart."""

    observation_space = gymnasium.spaces.Box(0, np.inf, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    closed = 0

    def __init__(self) -> None:
        self.played = self.left = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.left = EPISODE
        return np.array([self.played], np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.played += 1
        self.left -= 1
        return np.array([self.played], np.float32), 1.0, self.left == 0, False, {}

    def close(self) -> None:
        NumberedEnv.closed += 1


rookery.register("numbered", NumberedEnv)


def numbered(**changes: Any) -> EnvRunner:
    return EnvRunner({"environment": {"id": "numbered"}, **SMALL, **changes})


def lanes(samples: list[Sample], policy: str | None = None) -> list[np.ndarray]:
    """By lane: the observations of its steps, in order."""
    found: list[list[np.ndarray]] = []
    for sample in samples:
        steps = sample.fragment(policy).steps
        found = found or [[] for _ in range(steps.valid.shape[1])]
        (seen,) = steps.observation.values()
        for lane, kept in enumerate(found):
            kept.append(seen[:-1, lane][steps.valid[:, lane]])
    return [np.concatenate(kept) for kept in found]


def versions(steps: Steps, number: int) -> set[int]:
    return set((number - steps.behind[steps.valid].astype(int)).tolist())


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=8))
@settings(max_examples=40)
def test_whatever_is_asked_every_step_is_seen_once_and_names_the_weights_that_were_set(
    asked: list[tuple[int, bool]],
) -> None:
    runner = numbered()
    samples, number = [], 0

    for num_steps, new_weights in asked:
        if new_weights:
            number += 1
            arrays = {"main": runner.get_weights()["main"]}
            runner.set_weights(RunnerWeights.of(arrays, number))
        samples.append(sample := runner.sample(num_steps=num_steps))
        assert num_steps <= sample.steps < num_steps + SLOTS
        assert sample.version.number == number
        assert versions(sample.fragment().steps, number) == {number}

    runner.stop()
    assert [sample.sequence for sample in samples] == list(range(len(samples)))
    for before, after in pairwise(samples):
        assert after.first_step == before.first_step + before.steps
    for seen in lanes(samples):
        assert seen[:, 0].tolist() == list(range(len(seen)))
    assert sum(len(seen) for seen in lanes(samples)) == sum(sample.steps for sample in samples)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=5))
@settings(max_examples=4)
def test_at_tables_too_the_rows_do_not_depend_on_how_they_are_asked_for(asked: list[int]) -> None:
    seats = {"player_0": "main", "player_1": "script:random"}
    config = {**CONNECT_FOUR, "seats": seats}
    pieces, whole = EnvRunner(config, seed=3), EnvRunner(config, seed=3)
    piecewise = lanes([pieces.sample(num_steps=number) for number in asked])

    at_once = lanes([whole.sample(num_steps=sum(len(lane) for lane in piecewise) + 4)])

    for lane, reference in zip(piecewise, at_once, strict=True):
        shared = min(len(lane), len(reference))
        assert shared > 0
        np.testing.assert_array_equal(lane[:shared], reference[:shared])
    pieces.stop()
    whole.stop()


def test_self_play_shows_both_seats_and_marks_steps_that_older_weights_decided() -> None:
    runner = EnvRunner(CONNECT_FOUR)
    runner.sample(num_steps=4)
    runner.set_weights(RunnerWeights.of({"main": runner.get_weights()["main"]}, number=3))

    sample = runner.sample(num_steps=20)

    header, steps = sample.fragment()
    assert header.seats == ("player_0", "player_1")
    assert set(steps.seat[steps.valid].tolist()) == {0, 1}
    assert versions(steps, 3) == {0, 3}  # those held over the change were decided before it
    assert steps.mask is not None and not np.isnan(steps.log_prob[steps.valid]).any()
    runner.stop()


def test_a_compiled_game_against_a_script_goes_by_whole_calls() -> None:
    config = {
        "environment": {"id": "pgx:tic_tac_toe"},
        "seats": {"player_0": "main", "player_1": "script:random"},
        "actors": {"envs_per_actor": 4, "rollout_steps": 12},
    }
    runner = EnvRunner(config)

    samples = [runner.sample(num_steps=number) for number in (1, 50)]
    by_episodes = runner.sample(num_episodes=9)

    assert samples[1].steps >= 50
    assert samples[1].first_step == samples[0].steps
    assert by_episodes.sequence == 2 and len(by_episodes.episodes) >= 9
    assert {game.players for game in samples[1].games} == {("main", "script:random")}
    runner.stop()


def test_episodes_can_be_asked_for_and_are_counted() -> None:
    runner = numbered()

    sample = runner.sample(num_episodes=4)
    whole = runner.sample()

    assert len(sample.episodes) >= 4
    assert {each.length for each in sample.episodes} == {EPISODE}
    assert whole.fragment().steps.valid.shape == (8, SLOTS)
    told = runner.get_metrics()
    assert told["samples"] == 2 and told["mean_return"] == EPISODE
    assert told["agent_steps"] == told["agent_steps_total"] == sample.steps + whole.steps
    assert runner.get_metrics()["mean_return"] is None
    runner.stop()


def test_rows_of_several_rollouts_are_one_trajectory() -> None:
    """A sample is played in pieces, since resets are no steps; it has no gap and no row twice."""
    runner = numbered()

    steps = runner.sample(num_steps=40).fragment().steps

    (seen,) = steps.observation.values()
    assert seen.shape[0] == steps.reward.shape[0] + 1
    stepped = steps.valid
    assert (seen[1:][stepped] - seen[:-1][stepped] == 1).all()
    assert steps.begins.sum() == SLOTS + (steps.terminated[:-1].sum() - _unstarted(steps))
    runner.stop()


def _unstarted(steps: Steps) -> int:
    """Episodes that ended so late that only their reset is still shown."""
    ended = steps.terminated[:-1]
    return sum(not steps.valid[row + 1 :, lane].any() for row, lane in np.argwhere(ended).tolist())


def test_runners_begin_with_the_same_weights_and_play_apart_by_their_seed() -> None:
    one, same, other = (
        EnvRunner({"environment": {"id": "CartPole-v1"}, **SMALL}, seed=s) for s in (1, 1, 2)
    )

    rows = [
        runner.sample(num_steps=30).fragment().steps.observation[""]
        for runner in (one, same, other)
    ]

    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])
    for name, array in one.get_weights()["main"].items():
        np.testing.assert_array_equal(array, other.get_weights()["main"][name])


@pytest.mark.parametrize("given_as", ["id", "mapping", "yaml", "config"])
def test_a_config_is_given_in_any_form(given_as: str, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("environment: {id: CartPole-v1}\nactors: {envs_per_actor: 4}\n")
    forms: dict[str, Any] = {
        "id": "CartPole-v1",
        "mapping": {"environment": {"id": "CartPole-v1"}},
        "yaml": str(path),
        "config": build({"environment": {"id": "CartPole-v1"}, "actors": {"envs_per_actor": 4}}),
    }

    runner = EnvRunner(forms[given_as])

    assert runner.sample(num_steps=4).steps >= 4
    assert runner.get_spaces()["main"].action == Categorical(2)
    if given_as in ("yaml", "config"):
        assert runner.config.actors.envs_per_actor == 4
    runner.stop()


def test_after_stop_nothing_is_played_and_the_environment_is_closed() -> None:
    before = NumberedEnv.closed
    runner = numbered()
    described = NumberedEnv.closed

    runner.stop()
    runner.stop()

    assert described > before and NumberedEnv.closed == described + SLOTS
    with pytest.raises(InputError, match="was stopped: make a new one"):
        runner.sample(num_steps=1)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("CartPole-v7", "did you mean CartPole-v1"),
        ({"environment": {"id": "CartPole-v1"}, "sead": 1}, "did you mean seed"),
        ({**CONNECT_FOUR, "seats": {"player_0": "main", "*": "league:main"}}, "has no league"),
        ({"environment": {"id": "CartPole-v1"}, "replay": {"run": "x"}}, "replays nothing"),
        ("no_such.yaml", "cannot read the config"),
    ],
)
def test_a_config_that_cannot_be_played_is_refused_in_one_line(config: Any, told: str) -> None:
    with pytest.raises(InputError, match=told) as refused:
        EnvRunner(config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "asked", [{"num_steps": 0}, {"num_episodes": -1}, {"num_steps": 1, "num_episodes": 1}]
)
def test_a_senseless_amount_is_refused(asked: dict[str, int]) -> None:
    runner = numbered()
    with pytest.raises(InputError, match="num_"):
        runner.sample(**asked)
    with pytest.raises(InputError, match="seed=-1"):
        EnvRunner("CartPole-v1", seed=-1)
    runner.stop()


def test_what_was_played_is_the_same_after_it_crossed_a_process() -> None:
    runner = numbered()
    sample = runner.sample(num_steps=20)

    again = copy.copy(sample)  # taken apart and put together as between processes

    assert again.fragments[0].header == sample.fragments[0].header
    np.testing.assert_array_equal(again.fragments[0].steps.reward, sample.fragments[0].steps.reward)
    with pytest.raises(UnknownName, match="that learn here: main"):
        sample.fragment("mian")
    runner.stop()


def test_nothing_of_ray_is_imported_by_rookery_or_by_a_runner() -> None:
    code = """
import sys
import rookery.api, rookery.cli.main, rookery.actor.build
assert not any(name == "rookery.ray" or name.split(".")[0] == "ray" for name in sys.modules)
import rookery.ray
rookery.ray.EnvRunner("CartPole-v1").sample(num_steps=1)
assert not any(name.split(".")[0] in ("ray", "jax") for name in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_of_several_policies_that_learn_each_has_its_own_fragment_and_weights() -> None:
    seats = {"player_0": "red", "player_1": "blue"}
    runner = EnvRunner({**CONNECT_FOUR, "seats": seats, "policies": {"red": {}, "blue": {}}})
    runner.sample(num_steps=10)
    runner.set_weights(RunnerWeights.of({"blue": runner.get_weights()["red"]}, number=4))

    sample = copy.copy(runner.sample(num_steps=30))  # as it comes from another process

    headers = [sample.fragment(policy).header for policy in ("red", "blue")]
    assert [(h.sequence, h.part, h.parts) for h in headers] == [(2, 0, 2), (3, 1, 2)]
    assert headers[1].first_step == headers[0].first_step + headers[0].steps
    assert sample.sequence == 1 and sample.steps == headers[0].steps + headers[1].steps >= 30
    for number, policy in enumerate(("red", "blue")):
        steps = sample.fragment(policy).steps
        assert set(steps.seat[steps.valid].tolist()) == {number}
    same = (runner.get_weights()[policy]["pi.out.w"] for policy in ("red", "blue"))
    np.testing.assert_array_equal(*same)
    runner.stop()
