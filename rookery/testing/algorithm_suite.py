"""What every algorithm must do. Subclass the suite and say how its config is made:

    class TestReinforce(AlgorithmSuite):
        def make_config(self):
            return ReinforceConfig(learning_rate=0.01)

It is asked to learn a bandit that shows which of three actions is right, in batches of `STEPS` rows
and `LANES` lanes: `updates` says how many it may take.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

from rookery.algorithms import algorithm_of
from rookery.algorithms.batch import stack
from rookery.algorithms.networks import Network, initial_arrays
from rookery.algorithms.policies import PolicySetup
from rookery.algorithms.train_state import init_state
from rookery.config.algorithm import AlgorithmConfig, live_hyperparameters
from rookery.config.models import NetworkConfig
from rookery.config.reading import validate
from rookery.learner.trainer import Trainer
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader
from rookery.messages.frame import Arrays
from rookery.messages.steps import Steps
from rookery.players.policy import PolicyPlayer
from rookery.spaces import Categorical, Leaf, SeatSpec

STEPS, LANES, ACTIONS = 16, 16, 3
NETWORK = Network(
    SeatSpec((Leaf("", "box", (ACTIONS,), "float32"),), Categorical(ACTIONS)),
    NetworkConfig(hidden=(16,), normalize_observations=True),
)
RIGHT = 0.9  # the share of right actions of who has learned


def play(arrays: Mapping[str, Any], rng: np.random.Generator) -> Fragment:
    """Games of one step each, played by the policy; some rows are not steps at all."""
    shown = rng.integers(ACTIONS, size=(STEPS + 1, LANES))
    observation = np.eye(ACTIONS, dtype=np.float32)[shown]
    rows = {"": observation[:-1].reshape(-1, ACTIONS)}
    decision = PolicyPlayer(NETWORK).act(arrays, rows, None, {}, rng)
    action = np.asarray(decision.action, np.int32).reshape(STEPS, LANES)
    valid = rng.random((STEPS, LANES)) < 0.9
    nothing = np.zeros((STEPS, LANES), np.uint8)
    header = FragmentHeader(
        run="suite",
        policy="main",
        actor="0.1",
        sequence=0,
        first_step=0,
        steps=int(valid.sum()),
        version=WeightsVersion(1, 0),
        seats=("seat",),
        players=("policy",),
    )
    steps = Steps(
        observation={"": observation},
        action=action,
        reward=(action == shown[:-1]).astype(np.float32),
        terminated=valid,
        truncated=np.zeros_like(valid),
        valid=valid,
        log_prob=np.asarray(decision.log_prob, np.float32).reshape(STEPS, LANES),
        seat=nothing,
        player=nothing,
        behind=nothing,
    )
    return Fragment(header, steps)


def same(left: Any, right: Any) -> bool:
    """Whether two trees hold the same arrays, bit for bit."""
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def _under(prefix: str, saved: Arrays) -> Arrays:
    return {name: array for name, array in saved.items() if name.startswith(prefix)}


class AlgorithmSuite:
    """The contract of `rookery.algorithms.Algorithm`."""

    updates = 100

    def make_config(self) -> AlgorithmConfig:
        """One that learns quickly."""
        raise NotImplementedError

    @pytest.fixture
    def config(self) -> AlgorithmConfig:
        return algorithm_of(self.make_config()).fitted(STEPS, LANES)

    @pytest.fixture
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(0)

    @pytest.fixture
    def trainer(self, config: AlgorithmConfig) -> Trainer:
        return self.make_trainer(config, seed=0)

    def make_trainer(self, config: AlgorithmConfig, seed: int) -> Trainer:
        return Trainer([PolicySetup("main", NETWORK, config, LANES)], STEPS, seed)

    def learn(self, trainer: Trainer, rng: np.random.Generator) -> dict[str, float]:
        return trainer.update({"main": [play(trainer.acting_arrays()["main"], rng)]}, 0.0)["main"]

    def saved(self, trainer: Trainer) -> Arrays:
        """As a checkpoint has it: through bytes."""
        found: Arrays = safetensors.numpy.load(safetensors.numpy.save(trainer.save()))
        return found

    def beginning(self, config: AlgorithmConfig, rng: np.random.Generator) -> tuple[Any, Any, Any]:
        """What an update takes: a first state, a batch, and the live hyperparameters."""
        algorithm = algorithm_of(config)
        params, stats = initial_arrays(NETWORK, 0)
        state = init_state(params, stats, algorithm.init_extra(NETWORK, params))
        played = play(NETWORK.acting_arrays(params, stats), rng)
        batch = stack([played], algorithm.make_order(rng, STEPS, LANES))
        live = live_hyperparameters(config)
        return state, batch, {name: np.float32(value) for name, value in live.items()}

    # --- its config ------------------------------------------------------------------------------

    def test_its_config_comes_back_from_its_own_json(self, config: AlgorithmConfig) -> None:
        written = config.model_dump(mode="json")
        read = validate({"environment": {"id": "suite"}, "algorithm": written}).algorithm
        assert algorithm_of(read).config == config
        assert type(algorithm_of(config)) is type(algorithm_of(read))

    def test_a_config_that_was_fitted_fits(self, config: AlgorithmConfig) -> None:
        algorithm = algorithm_of(config)
        algorithm.check(STEPS, LANES)
        assert algorithm.fitted(STEPS, LANES) == config

    def test_several_learners_can_share_it_or_it_says_so(self, config: AlgorithmConfig) -> None:
        """Whoever shares its minibatches has to say how much each of them weighs."""
        algorithm = algorithm_of(config)
        try:
            own = algorithm_of(algorithm.shared(STEPS, LANES, 2))
        except ValueError as error:
            assert "learner.count" in str(error)
            return
        own.check(STEPS, LANES // 2)
        assert own.make_objective(NETWORK).weigh is not None
        orders = [
            each.make_order(np.random.default_rng(0), STEPS, lanes)
            for each, lanes in ((algorithm, LANES), (own, LANES // 2))
        ]
        assert orders[0].shape == (orders[1].shape[0], 2 * orders[1].shape[1])

    def test_it_is_read_without_jax(self, config: AlgorithmConfig) -> None:
        module = type(algorithm_of(config)).__module__
        code = f"import sys, {module}; sys.exit('jax' in sys.modules)"
        places = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": places},
            timeout=60,
            check=False,
        )
        assert done.returncode == 0

    # --- its update ------------------------------------------------------------------------------

    def test_its_order_has_one_shape_and_follows_its_generator(
        self, config: AlgorithmConfig
    ) -> None:
        algorithm = algorithm_of(config)
        first, again = np.random.default_rng(1), np.random.default_rng(1)
        orders = [algorithm.make_order(first, STEPS, LANES) for _ in range(2)]
        assert orders[0].shape == orders[1].shape and orders[0].dtype == np.int32
        assert same(orders, [algorithm.make_order(again, STEPS, LANES) for _ in range(2)])

    def test_an_update_is_pure_and_finite(
        self, config: AlgorithmConfig, rng: np.random.Generator
    ) -> None:
        given = self.beginning(config, rng)
        before = jax.tree.map(np.array, given)
        update = jax.jit(algorithm_of(config).make_update(NETWORK))
        first, second = update(*given), update(*before)
        assert same(first, second) and same(given, before)
        assert jax.tree.map(np.shape, first[0]) == jax.tree.map(np.shape, given[0])
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(first))
        assert not same(first[0].params, given[0].params)

    def test_live_hyperparameters_are_arguments(
        self, config: AlgorithmConfig, rng: np.random.Generator
    ) -> None:
        state, batch, hyper = self.beginning(config, rng)
        traces, traced = [], algorithm_of(config).make_update(NETWORK)

        @jax.jit
        def update(*given: Any) -> Any:
            traces.append(1)  # Python runs only while JAX traces
            return traced(*given)

        usual, _ = update(state, batch, hyper)
        for name, value in hyper.items():
            update(state, batch, {**hyper, name: np.float32(value * 0.5)})
        slower, _ = update(state, batch, {**hyper, "learning_rate": hyper["learning_rate"] / 2})
        assert not same(usual.params, slower.params)
        assert len(traces) == 1

    def test_rows_outside_valid_have_no_gradient(
        self, config: AlgorithmConfig, rng: np.random.Generator
    ) -> None:
        given = self.beginning(config, rng)
        played = play(NETWORK.acting_arrays(given[0].params, given[0].stats), rng)
        order = given[1].order
        update = jax.jit(algorithm_of(config).make_update(NETWORK))
        calm, _ = update(given[0], stack([played], order), given[2])
        steps = played.steps
        outside = ~steps.valid
        assert outside.any()
        steps.reward[outside] = 100.0
        steps.action[outside] = (steps.action[outside] + 1) % ACTIONS
        steps.log_prob[outside] = -5.0
        loud, _ = update(given[0], stack([played], order), given[2])
        assert same((calm.params, calm.optimizer), (loud.params, loud.optimizer))
        steps.reward[~outside] += 1.0
        steps.action[~outside] = (steps.action[~outside] + 1) % ACTIONS
        other, _ = update(given[0], stack([played], order), given[2])
        assert not same(calm.params, other.params)

    # --- its state -------------------------------------------------------------------------------

    def test_a_batch_without_a_row_changes_nothing(
        self, trainer: Trainer, rng: np.random.Generator
    ) -> None:
        self.learn(trainer, rng)  # momentum to drift by
        before = self.saved(trainer)
        empty = play(trainer.acting_arrays()["main"], rng)
        empty.steps.valid[:] = False
        assert trainer.update({"main": [empty]}, 0.0) == {}
        assert same(self.saved(trainer), before)

    def test_a_reward_that_is_no_number_changes_nothing(
        self, trainer: Trainer, rng: np.random.Generator
    ) -> None:
        self.learn(trainer, rng)
        before = self.saved(trainer)
        poisoned = play(trainer.acting_arrays()["main"], rng)
        poisoned.steps.reward[poisoned.steps.valid] = np.nan
        assert trainer.update({"main": [poisoned]}, 0.0)["main"]["skipped"] == 1.0
        after = self.saved(trainer)
        for name in ("params", "optimizer", "stats", "extra"):
            prefix = f"main/{name}/"
            assert same(*(_under(prefix, saved) for saved in (before, after)))
        assert self.learn(trainer, rng)["skipped"] == 0.0
        assert not same(self.saved(trainer), after)

    def test_a_restored_state_goes_on_bit_for_bit(
        self, config: AlgorithmConfig, trainer: Trainer, rng: np.random.Generator
    ) -> None:
        for _ in range(2):
            self.learn(trainer, rng)
        saved = self.saved(trainer)
        other = self.make_trainer(config, seed=5)
        other.restore(saved)
        assert same(self.saved(other), saved)
        for seed in range(2):
            generators = (np.random.default_rng(seed), np.random.default_rng(seed))
            assert self.learn(trainer, generators[0]) == self.learn(other, generators[1])
        assert same(self.saved(trainer), self.saved(other))
        assert not same(self.saved(trainer), saved)

    def test_a_policy_that_is_reset_begins_anew(
        self, config: AlgorithmConfig, trainer: Trainer, rng: np.random.Generator
    ) -> None:
        self.learn(trainer, rng)
        trainer.reset("main", salt=1)
        saved = self.saved(trainer)
        params = {
            name.removeprefix("main/params/"): array
            for name, array in saved.items()
            if name.startswith("main/params/")
        }
        for name, array in algorithm_of(config).init_extra(NETWORK, params).items():
            assert np.array_equal(saved[f"main/extra/{name}"], array), name
        assert not saved["main/optimizer/mean"].any()
        self.learn(trainer, rng)

    # --- does it learn ---------------------------------------------------------------------------

    def test_it_learns_a_bandit(self, trainer: Trainer, rng: np.random.Generator) -> None:
        for _ in range(self.updates):
            self.learn(trainer, rng)
        steps = play(trainer.acting_arrays()["main"], rng).steps
        assert steps.reward[steps.valid].mean() > RIGHT
