"""The updates: first ratios are 1, reset rows are nothing, statistics wait, and both learn."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from rookery.actor.loop import Admitted
from rookery.actor.rollouts.stepped import SteppedRollout
from rookery.algorithms import algorithm_of
from rookery.algorithms.batch import Batch
from rookery.algorithms.impala import Impala, ImpalaConfig
from rookery.algorithms.networks import Network, initial_arrays
from rookery.algorithms.ppo import PPO, PPOConfig
from rookery.algorithms.train_state import TrainState, init_state
from rookery.algorithms.update import DEVIATION_PACE
from rookery.config.algorithm import live_hyperparameters
from rookery.config.models import NetworkConfig
from rookery.envs import SOLO_SEAT
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.errors import MaskError
from rookery.messages import WeightsVersion
from rookery.messages.steps import Steps
from rookery.players.policy import PolicyPlayer
from rookery.testing.envs import ContinuousBandit, CountingEnv, MaskedEnv, NestedEnv

STEPS, SLOTS = 8, 4
ROWS = STEPS * SLOTS
SIBLINGS: dict[str, Any] = {
    "ppo": functools.partial(PPOConfig, epochs=2, minibatch_size=ROWS),
    "impala": functools.partial(ImpalaConfig, epochs=2, minibatches=1),
}
both = pytest.mark.parametrize("algorithm", SIBLINGS)


class ContextEnv(gymnasium.Env[np.ndarray, np.int64]):
    """A contextual bandit of one step: the reward is 1 for the action that is shown, else 0."""

    def __init__(self, actions: int = 3) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (actions,), np.float32)
        self.action_space = spaces.Discrete(actions)
        self.shown = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.shown = int(self.np_random.integers(int(self.action_space.n)))  # type: ignore[attr-defined]
        return self._observe(), {}

    def step(self, action: np.int64) -> Any:
        return self._observe(), float(action == self.shown), True, False, {}

    def _observe(self) -> np.ndarray:
        return np.eye(int(self.action_space.n), dtype=np.float32)[self.shown]  # type: ignore[attr-defined]


@functools.cache
def compiled(network: Network, config: Any, quickly: bool) -> Any:
    """An algorithm's update; most tests share a few, for compiling is what takes their time."""
    update = algorithm_of(config).make_update(network)
    options = {"xla_backend_optimization_level": 0} if quickly else None
    return jax.jit(update, compiler_options=options)


class Setup:
    """One environment, one network, and an algorithm's compiled update."""

    def __init__(
        self,
        maker: Any,
        options: dict[str, Any] | None = None,
        network: dict[str, Any] | None = None,
        algorithm: str = "ppo",
        steps: int = STEPS,
        slots: int = SLOTS,
        quickly: bool = False,
        **config: Any,
    ) -> None:
        self.env = GymnasiumEnvironment("tested", slots, options or {}, maker)
        spec = self.env.spec.seats[SOLO_SEAT]
        self.network = Network(
            spec, NetworkConfig.model_validate({"hidden": [8], **(network or {})})
        )
        self.config = SIBLINGS[algorithm](**config)
        self.update = compiled(self.network, self.config, quickly)
        self.state = init_state(*initial_arrays(self.network, seed=0), {})
        self.rng = np.random.default_rng(0)
        self.rollout = SteppedRollout(
            self.env, PolicyPlayer(self.network), SOLO_SEAT, steps, np.random.default_rng(1), 2
        )
        self.steps, self.slots = steps, slots

    def play(self) -> Steps:
        arrays = self.network.acting_arrays(self.state.params, self.state.stats)
        played = self.rollout(Admitted(WeightsVersion(1, 0), {"main": arrays}))
        return played.steps["main"]

    def batch(self, experience: Steps) -> Batch:
        order = algorithm_of(self.config).make_order(self.rng, self.steps, self.slots)
        return Batch(experience, order)

    def hyper(self, **changes: float) -> dict[str, np.float32]:
        values = {**live_hyperparameters(self.config), **changes}
        return {name: np.float32(value) for name, value in values.items()}

    def learn(self, batch: Batch | None = None, **changes: float) -> dict[str, float]:
        """One update, of a fresh fragment if none is given."""
        batch = self.batch(self.play()) if batch is None else batch
        self.state, metrics = self.update(self.state, batch, self.hyper(**changes))
        return {name: float(value) for name, value in metrics.items()}


RAW = {"normalize_observations": False}


def plain(algorithm: str = "ppo", end: str = "terminated") -> Setup:
    options = {"length": 3, "end": end}
    return Setup(CountingEnv, options, RAW, algorithm, normalize_returns=False)


def normalised(algorithm: str = "ppo", end: str = "terminated") -> Setup:
    options = {"length": 3, "end": end}
    network = {"normalize_observations": True}
    return Setup(CountingEnv, options, network, algorithm, normalize_returns=True)


def changed(batch: Batch, **rows: Any) -> Batch:
    return batch._replace(steps=batch.steps._replace(**rows))


def same_arrays(left: Any, right: Any) -> bool:
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


# --- at lag 0 every ratio is 1 -------------------------------------------------------------------

NORMALISED = {"normalize_observations": True}
WORLDS: dict[str, Any] = {
    "categorical": plain,
    "categorical, normalised": normalised,
    "masked": lambda: Setup(MaskedEnv),
    "multi-categorical, every kind of leaf, normalised": lambda: Setup(
        NestedEnv, network={**NORMALISED, "channels": [4]}
    ),
    "clipped gaussian": lambda: Setup(ContinuousBandit, {"size": 3}, {"gaussian": "clipped"}),
    "squashed gaussian, normalised": lambda: Setup(
        ContinuousBandit, {"size": 3}, {**NORMALISED, "gaussian": "squashed"}
    ),
    "impala": lambda: plain("impala"),
    "impala, normalised": lambda: normalised("impala"),
}


SOME_WORLDS = ("categorical", "impala")  # the others in a soak
assert set(SOME_WORLDS) <= set(WORLDS)


@pytest.mark.parametrize(
    "world", [w if w in SOME_WORLDS else pytest.param(w, marks=pytest.mark.soak) for w in WORLDS]
)
def test_at_lag_zero_every_first_ratio_is_one(world: str) -> None:
    setup = WORLDS[world]()

    for _ in range(3):  # the later ones with statistics and weights that have moved
        metrics = setup.learn()  # its first gradient step takes every row

        assert metrics["first_ratio_error"] < 1e-5
        assert metrics["gradient_steps"] == 2
    assert float(setup.state.stats["obs.count"]) > 0


def test_a_wrong_behaviour_log_prob_shows_in_the_first_ratio() -> None:
    setup = plain()
    batch = setup.batch(setup.play())
    wrong = np.array(batch.steps.log_prob)
    wrong -= 0.1
    metrics = setup.learn(changed(batch, log_prob=wrong))
    np.testing.assert_allclose(metrics["first_ratio_error"], np.exp(0.1) - 1, rtol=1e-3)


# --- reset rows and unknown rows -----------------------------------------------------------------


@both
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_reset_rows_change_nothing(algorithm: str, end: str) -> None:
    setup = normalised(algorithm, end)
    setup.learn()
    before = setup.state
    batch = setup.batch(setup.play())
    assert (~batch.steps.valid).sum() == 2 * SLOTS
    quiet = setup.learn(batch)
    calm = setup.state

    noise = np.random.default_rng(9)
    reset = ~batch.steps.valid
    rows = {n: np.array(getattr(batch.steps, n)) for n in ("reward", "action", "log_prob")}
    rows["reward"][reset] = noise.standard_normal(reset.sum()) * 100
    rows["action"][reset] = 1 - rows["action"][reset]
    rows["log_prob"][reset] = -3.0
    observation = np.array(batch.steps.observation[""])
    if end == "terminated":
        # A final observation is bootstrapped from only under truncation.
        observation[:-1][reset] = noise.standard_normal(observation[:-1][reset].shape)
    setup.state = before
    loud = setup.learn(changed(batch, observation={"": observation}, **rows))

    assert same_arrays(setup.state, calm)
    assert loud == quiet


def test_the_final_observation_of_a_truncated_episode_does_count() -> None:
    setup = plain(end="truncated")
    before, batch = setup.state, setup.batch(setup.play())
    setup.learn(batch)
    calm, setup.state = setup.state, before
    observation = np.array(batch.steps.observation[""])
    observation[:-1][~batch.steps.valid] += 1
    setup.learn(changed(batch, observation={"": observation}))
    assert not same_arrays(setup.state.params, calm.params)


@both
def test_rows_without_a_behaviour_log_prob_are_left_out_of_the_loss(algorithm: str) -> None:
    setup = plain(algorithm)
    batch = setup.batch(setup.play())
    unknown = np.array(batch.steps.log_prob)
    unknown[:, 0] = np.nan
    metrics = setup.learn(changed(batch, log_prob=unknown))
    assert all(np.isfinite(value) for value in metrics.values())
    assert float(setup.state.stats["obs.count"]) == batch.steps.valid[:, 1:].sum()


# --- statistics ----------------------------------------------------------------------------------


@both
def test_statistics_count_each_valid_step_once_whatever_the_epochs(algorithm: str) -> None:
    setup = normalised(algorithm)
    assert setup.config.epochs > 1
    seen: list[np.ndarray] = []

    for _ in range(4):
        experience = setup.play()
        setup.learn(setup.batch(experience))
        seen.append(experience.observation[""][:-1][experience.valid])

    rows = np.concatenate(seen).astype(float)
    stats = setup.state.stats
    assert float(stats["obs.count"]) == float(stats["ret.count"]) == len(rows)
    np.testing.assert_allclose(stats["obs.mean."], rows.mean(0), atol=1e-5)
    np.testing.assert_allclose(stats["obs.var."], rows.var(0), atol=1e-5)


@both
def test_a_batch_is_trained_with_the_statistics_its_actors_played_with(algorithm: str) -> None:
    setup, fixed = normalised(algorithm), plain(algorithm)
    batch = setup.batch(setup.play())

    setup.learn(batch)
    fixed.learn(batch)  # without statistics at all: an identity, as the first ones are

    for name, array in fixed.state.params.items():
        np.testing.assert_allclose(setup.state.params[name], array, rtol=1e-4, atol=1e-5)
    assert float(setup.state.stats["obs.count"]) > 0


@both
def test_without_a_gradient_statistics_still_wait_for_the_end(algorithm: str) -> None:
    setup = normalised(algorithm)
    before = setup.state

    setup.learn(learning_rate=0.0)

    assert same_arrays(setup.state.params, before.params)
    assert not np.array_equal(setup.state.stats["obs.mean."], before.stats["obs.mean."])


def test_statistics_do_not_move_where_they_are_off() -> None:
    setup = plain()
    setup.learn()
    assert not any(name.startswith("obs.mean") for name in setup.state.stats)
    assert float(setup.state.stats["ret.count"]) == 0


# --- options -------------------------------------------------------------------------------------


@pytest.mark.soak
def test_kl_stop_skips_the_rest_of_a_batch() -> None:
    small = {"hidden": [4]}
    stopped = Setup(ContextEnv, network=small, quickly=True, epochs=8, kl_stop=1e-4)
    patient = Setup(ContextEnv, network=small, quickly=True, epochs=8, kl_stop=1e9)
    batch = stopped.batch(stopped.play())

    short = stopped.learn(batch, learning_rate=0.05)
    whole = patient.learn(batch, learning_rate=0.05)

    assert whole["gradient_steps"] == 8
    assert 1 < short["gradient_steps"] < 8  # the first step's KL is 0, so it never stops there
    # Averages are over the steps that were made, not diluted by those that were not.
    assert short["entropy"] > 0.5 and short["grad_norm"] > 0
    assert not same_arrays(stopped.state.params, patient.state.params)


@pytest.mark.soak
def test_value_clip_keeps_the_value_near_what_it_was() -> None:
    def moved(value_clip: float | None) -> float:
        setup = Setup(CountingEnv, {"length": 5}, quickly=True, epochs=20, value_clip=value_clip)
        batch = setup.batch(setup.play())
        before = setup.state.params

        def value(params: Any) -> Any:
            features = batch.steps.observation[""].reshape(-1, 6)
            return setup.network.scaled_value(
                np, {k: np.asarray(v) for k, v in params.items()}, features
            )

        setup.learn(batch, learning_rate=0.02, max_grad_norm=100.0, entropy_coef=0.0)
        return float(np.abs(value(setup.state.params) - value(before)).mean())

    assert moved(0.05) < 0.5 * moved(None)


@both
def test_an_update_is_a_pure_function(algorithm: str) -> None:
    setup = normalised(algorithm)
    batch, hyper = setup.batch(setup.play()), setup.hyper()
    copies = jax.tree.map(np.array, (setup.state, batch))

    first = setup.update(setup.state, batch, hyper)
    second = setup.update(setup.state, batch, hyper)
    third = setup.update(*copies, hyper)

    assert same_arrays(first, second) and same_arrays(first, third)
    assert same_arrays((setup.state, batch), copies)


@both
def test_live_hyperparameters_act_without_a_new_compile(algorithm: str) -> None:
    setup = plain(algorithm)
    setup.learn()
    batch, before = setup.batch(setup.play()), setup.state
    setup.learn(batch)
    traced = setup.update._cache_size()
    for name, value in setup.hyper().items():
        setup.state = before
        setup.learn(batch)
        usual, setup.state = setup.state, before
        changed = 0.0 if name in ("learning_rate", "max_grad_norm") else float(value) * 0.5 + 0.01
        setup.learn(batch, **{name: changed})
        if name not in ("clip", "gamma", "gae_lambda", "trace_lambda", "rho_clip", "c_clip"):
            assert not same_arrays(usual.params, setup.state.params), name
    assert setup.update._cache_size() == traced


def test_every_row_is_in_every_epoch_once() -> None:
    rng = np.random.default_rng(0)
    order = PPO(PPOConfig(epochs=3, minibatch_size=8)).make_order(rng, STEPS, SLOTS)
    assert order.shape == (12, 8)
    lanes = Impala(ImpalaConfig(epochs=3, minibatches=2)).make_order(rng, STEPS, SLOTS)
    assert lanes.shape == (6, 2)
    for found, count in ((order, ROWS), (lanes, SLOTS)):
        epochs = found.reshape(3, count)
        assert (np.sort(epochs, axis=1) == np.arange(count)).all()
        assert not np.array_equal(epochs[0], epochs[1])


# --- does it learn -------------------------------------------------------------------------------


@both
def test_both_algorithms_learn_a_contextual_bandit(algorithm: str) -> None:
    sizes = {"minibatch_size": 128} if algorithm == "ppo" else {"minibatches": 4}
    setup = Setup(
        ContextEnv,
        network=NORMALISED,
        algorithm=algorithm,
        steps=16,
        slots=16,
        quickly=True,
        learning_rate=0.01,
        normalize_advantages=True,
        **sizes,
    )
    first = setup.play()
    for _ in range(60):
        setup.learn()
    last = setup.play()
    assert first.reward[first.valid].mean() < 0.6
    assert last.reward[last.valid].mean() > 0.95


@pytest.mark.parametrize(
    ("algorithm", "gaussian"),
    [("ppo", "clipped"), pytest.param("impala", "squashed", marks=pytest.mark.soak)],
)
def test_both_algorithms_learn_where_to_point(algorithm: str, gaussian: str) -> None:
    sizes = {"minibatch_size": 128} if algorithm == "ppo" else {"minibatches": 4}
    setup = Setup(
        ContinuousBandit,
        {"target": 0.5},
        {"gaussian": gaussian, "initial_log_std": -0.5},
        algorithm,
        steps=16,
        slots=16,
        quickly=True,
        learning_rate=0.01,
        normalize_advantages=True,
        **sizes,
    )
    for _ in range(60):
        setup.learn()
    arrays = setup.network.acting_arrays(setup.state.params, setup.state.stats)
    greedy = PolicyPlayer(setup.network, greedy=True)
    decision = greedy.act(arrays, {"": np.ones((1, 1), np.float32)}, None, {}, setup.rng)
    assert abs(float(decision.to_environment[0, 0]) - 0.5) < 0.1


def test_the_deviation_steps_faster_than_the_rest() -> None:
    one_step = {"epochs": 1, "minibatch_size": ROWS, "learning_rate": 1e-3}
    setup = Setup(ContinuousBandit, {"target": 0.5}, algorithm="ppo", quickly=True, **one_step)
    before = setup.state.params
    setup.learn()
    moved = {
        name: float(np.abs(np.asarray(x) - np.asarray(before[name])).max())
        for name, x in setup.state.params.items()
    }
    assert moved.pop("log_std") == pytest.approx(DEVIATION_PACE * 1e-3, rel=0.05)
    assert max(moved.values()) == pytest.approx(1e-3, rel=0.05)  # Adam's first step is the rate


def test_the_value_network_learns_the_finite_sum() -> None:
    setup = Setup(
        CountingEnv,
        {"length": 3},
        RAW,
        steps=16,
        slots=8,
        quickly=True,
        minibatch_size=64,
        epochs=4,
        normalize_returns=True,
        learning_rate=0.01,
        gae_lambda=0.95,
    )
    for _ in range(80):
        setup.learn(gamma=0.9)
    params, stats = (
        {k: np.asarray(v) for k, v in part.items()}
        for part in (setup.state.params, setup.state.stats)
    )
    found = setup.network.value(np, params, stats, np.eye(4, dtype=np.float32)[:3])
    np.testing.assert_allclose(found, [2.71, 1.9, 1.0], atol=0.1)


# --- masks ---------------------------------------------------------------------------------------


class StuckEnv(MaskedEnv):
    """Offers nothing at its third step."""

    def legal(self) -> np.ndarray:
        return super().legal() * np.int8(self.count != 2)


def test_an_all_false_mask_names_the_seat() -> None:
    setup = Setup(StuckEnv)
    with pytest.raises(MaskError, match=f"{SOLO_SEAT}.*all false"):
        setup.play()


@pytest.mark.parametrize("greedy", [False, True])
def test_only_legal_actions_are_played(greedy: bool) -> None:
    setup = Setup(MaskedEnv)  # it raises at an illegal one
    setup.rollout.player = PolicyPlayer(setup.network, greedy=greedy)
    experience = setup.play()
    assert experience.mask is not None
    chosen = np.take_along_axis(experience.mask[:-1], experience.action[..., None], -1)[..., 0]
    assert chosen[experience.valid].all()


def test_masks_hold_in_the_learner() -> None:
    setup = Setup(MaskedEnv)
    batch = setup.batch(setup.play())
    free = setup.learn(batch)
    np.testing.assert_allclose(free["entropy"], np.log(2), atol=1e-3)  # two of four are legal


def test_the_state_is_a_tree_of_arrays() -> None:
    state = Setup(ContextEnv).state
    assert isinstance(state, TrainState)
    assert all(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(state))
