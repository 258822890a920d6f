"""One trainer, several policies: alone, or seeing through one encoder."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from rookery.algorithms.impala import ImpalaConfig
from rookery.algorithms.networks import Network
from rookery.algorithms.policies import PolicySetup, initial_weights
from rookery.algorithms.ppo import PPOConfig
from rookery.config.models import NetworkConfig
from rookery.errors import ConfigError, DamagedCheckpoint
from rookery.learner.trainer import Trainer
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader
from rookery.messages.frame import Arrays
from rookery.messages.steps import Steps
from rookery.messages.steps import each as of_each
from rookery.spaces import Categorical, Leaf, SeatSpec

STEPS, LANES = 6, 4
ONCE: dict[str, Any] = {  # one gradient step of the whole batch, which nothing clips
    "ppo": PPOConfig(epochs=1, minibatch_size=STEPS * LANES, max_grad_norm=1e9),
    "impala": ImpalaConfig(epochs=1, minibatches=1, max_grad_norm=1e9),
}
OFTEN = PPOConfig(epochs=2, minibatch_size=8, learning_rate=0.01, normalize_returns=True)
EYE: dict[str, Any] = {"encoder": "eye", "encoder_hidden": [5]}


def policy(
    name: str,
    algorithm: Any = OFTEN,
    actions: int = 2,
    lanes: int = LANES,
    trains_encoder: bool = True,
    **network: Any,
) -> PolicySetup:
    spec = SeatSpec((Leaf("", "box", (3,), "float32"),), Categorical(actions))
    options = {"hidden": [4], "normalize_observations": True, **network}
    config = NetworkConfig.model_validate(options)
    return PolicySetup(name, Network(spec, config), algorithm, lanes, trains_encoder)


def fragment(seed: int, actions: int = 2, lanes: int = LANES, steps: int = STEPS) -> Fragment:
    rng = np.random.default_rng(seed)
    shape = (steps, lanes)
    zeros = np.zeros(shape, np.uint8)
    return Fragment(
        header=FragmentHeader(
            run="r",
            policy="p",
            actor="0.1",
            sequence=0,
            first_step=0,
            steps=steps * lanes,
            version=WeightsVersion(1, 0),
            seats=("seat",),
            players=("policy",),
        ),
        steps=Steps(
            observation={"": rng.standard_normal((steps + 1, lanes, 3)).astype(np.float32)},
            action=rng.integers(0, actions, shape).astype(np.int32),
            reward=rng.standard_normal(shape).astype(np.float32),
            terminated=rng.random(shape) < 0.1,
            truncated=np.zeros(shape, bool),
            valid=np.ones(shape, bool),
            log_prob=np.full(shape, -np.log(actions), np.float32),
            seat=zeros,
            player=zeros,
            behind=zeros,
        ),
    )


def idle(seed: int, actions: int = 2) -> Fragment:
    """A fragment of a policy that did not play."""
    played = fragment(seed, actions)
    played.steps.valid[:] = False
    return played


def part(arrays: Arrays, prefix: str) -> Arrays:
    return {name: array for name, array in arrays.items() if name.startswith(prefix)}


def same(left: Arrays, right: Arrays) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[n], right[n]) for n in left)


@functools.cache
def _made(policies: tuple[PolicySetup, ...]) -> tuple[Trainer, Arrays]:
    trainer = Trainer(policies, STEPS, seed=0)
    return trainer, {name: np.array(array) for name, array in trainer.save().items()}


def beginning(*policies: PolicySetup) -> Trainer:
    """A trainer at its beginning; tests share a few, for compiling is what takes their time."""
    trainer, saved = _made(policies)
    trainer.restore(saved)
    return trainer


def pair(**network: Any) -> Trainer:
    return beginning(policy("a", **network), policy("b", **network))


def encoder_gradient(trainer: Trainer, fragments: dict[str, list[Fragment]]) -> np.ndarray:
    """Of the first gradient step, out of Adam's first moment."""
    trainer.update(fragments, 0.0)
    return np.asarray(trainer.save()["encoder:eye/optimizer/mean"]) / np.float32(0.1)


# --- what is not finite --------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", [89.0, -91.0])
def test_an_action_that_has_become_far_less_or_far_more_likely_can_be_trained_on(
    behaviour: float,
) -> None:
    """exp(-90) is 0 and exp(90) is infinite in float32."""
    trainer = beginning(policy("a", ImpalaConfig(clip=0.2, max_grad_norm=1e9)))
    played = fragment(0)
    played.steps.log_prob[2, 1] = behaviour
    before = trainer.acting_arrays()["a"]
    values = trainer.update({"a": [played]}, 0.0)["a"]
    assert values["skipped"] == 0 and all(np.isfinite(value) for value in values.values())
    assert not same(trainer.acting_arrays()["a"], before)


def test_an_encoder_stays_as_it_is_if_what_one_of_its_policies_learns_is_not_finite() -> None:
    trainer = pair(**EYE)
    before = trainer.acting_arrays()
    played = {"a": [fragment(0)], "b": [fragment(1)]}
    played["b"][0].steps.reward[0, 0] = np.nan
    values = trainer.update(played, 0.0)
    assert [values[name]["skipped"] for name in "ab"] == [1.0, 1.0]
    assert all(same(trainer.acting_arrays()[name], before[name]) for name in "ab")


# --- a shared encoder ----------------------------------------------------------------------------


@pytest.mark.soak
@pytest.mark.parametrize("kind", ONCE)
def test_the_encoder_learns_from_the_sum_of_both(kind: str) -> None:
    def trainer(b_trains: bool = True) -> Trainer:
        b = policy("b", ONCE[kind], 3, trains_encoder=b_trains, **EYE)
        return beginning(policy("a", ONCE[kind], **EYE), b)

    of_a, of_b = {"a": [fragment(1)]}, {"b": [fragment(2, 3)]}

    only_a = encoder_gradient(trainer(), of_a)
    only_b = encoder_gradient(trainer(), of_b)
    together = encoder_gradient(trainer(), {**of_a, **of_b})
    watched = encoder_gradient(trainer(b_trains=False), {**of_a, **of_b})

    assert np.abs(only_a).max() > 1e-4 and np.abs(only_b).max() > 1e-4
    np.testing.assert_allclose(together, only_a + only_b, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(watched, only_a, rtol=1e-4, atol=1e-7)


def test_a_policy_that_only_watches_learns_its_own_part_and_leaves_the_encoder() -> None:
    trainer = beginning(policy("a", **EYE), policy("b", trains_encoder=False, **EYE))
    trainer.update({"a": [fragment(1)], "b": [fragment(2)]}, 0.0)
    before = trainer.save()

    trainer.update({"b": [fragment(3)]}, 0.0)

    after = trainer.save()
    assert same(part(before, "a/"), part(after, "a/"))  # with its encoder, which has momentum
    assert same(part(before, "encoder:"), part(after, "encoder:"))
    assert not np.array_equal(before["b/params/pi.0.w"], after["b/params/pi.0.w"])


def test_the_encoder_steps_with_the_first_rate_and_each_policy_with_its_own() -> None:
    trainer = pair(**EYE)
    usual = trainer.hyper["a"]["learning_rate"]
    before = trainer.save()

    trainer.hyper["a"]["learning_rate"] = 0.0
    trainer.update({"a": [fragment(1)], "b": [fragment(2)]}, 0.0)
    trainer.hyper["a"]["learning_rate"] = usual

    after = trainer.save()
    assert same(part(before, "a/params"), part(after, "a/params"))
    assert not same(part(before, "b/params/pi"), part(after, "b/params/pi"))
    assert np.array_equal(before["b/params/enc.0.w"], after["b/params/enc.0.w"])


def test_members_see_the_same_encoder_after_every_update() -> None:
    trainer = pair(**EYE)
    first = trainer.acting_arrays()
    for seed in range(3):
        trainer.update({"a": [fragment(seed)], "b": [fragment(seed + 9)]}, 0.0)
    arrays = trainer.acting_arrays()
    assert np.array_equal(arrays["a"]["enc.0.w"], arrays["b"]["enc.0.w"])
    assert not np.array_equal(arrays["a"]["enc.0.w"], first["a"]["enc.0.w"])
    assert not any(name.startswith(("v.", "ret.")) for name in arrays["b"])


def test_a_group_that_does_not_fit_is_refused_at_once() -> None:
    policies = [policy("a", **EYE), policy("b", ImpalaConfig(), **EYE)]
    with pytest.raises(ConfigError, match="'a' and 'b'"):
        Trainer(policies, STEPS, seed=0)


# --- policies by themselves ----------------------------------------------------------------------


@pytest.mark.soak
def test_independent_policies_do_not_affect_one_another() -> None:
    once = ImpalaConfig(learning_rate=0.02, epochs=1, minibatches=1)
    a, b = policy("main"), policy("b", once, 3, lanes=2)
    both, alone = Trainer([a, b], STEPS, seed=0), beginning(a)
    both.compile()

    for seed in range(3):
        found = both.update({"main": [fragment(seed)], "b": [fragment(seed, 3, lanes=2)]}, 0.0)
        expected = alone.update({"main": [fragment(seed)]}, 0.0)

    assert found["main"] == expected["main"]
    assert same(part(both.save(), "main/"), alone.save())
    assert found["b"]["gradient_steps"] == 1 and found["main"]["gradient_steps"] == 6


def test_policies_of_one_shape_share_a_compiled_update_but_not_their_weights() -> None:
    slow = OFTEN.model_copy(update={"learning_rate": 1e-4})
    trainer = Trainer([policy("main"), policy("a", slow)], STEPS, seed=0)
    assert len(trainer._updates) == 1
    assert trainer.learning_rate("main", 0.0) == 0.01 and trainer.learning_rate("a", 0.0) == 1e-4
    arrays = trainer.acting_arrays()
    assert not np.array_equal(arrays["main"]["pi.0.w"], arrays["a"]["pi.0.w"])


def test_a_linear_schedule_is_each_policys_own() -> None:
    falling = OFTEN.model_copy(update={"schedule": "linear"})
    trainer = Trainer([policy("main", falling), policy("a")], STEPS, seed=0)
    rates = [trainer.learning_rate(name, 0.75) for name in ("main", "a")]
    np.testing.assert_allclose(rates, [0.0025, 0.01])


def test_batches_of_another_size_change_the_weights_only_by_training() -> None:
    trainer = beginning(policy("main"))
    trainer.update({"main": [fragment(1)]}, 0.0)
    before = trainer.acting_arrays()["main"]
    trainer.reshape([policy("main", lanes=2 * LANES)])
    assert same(trainer.acting_arrays()["main"], before)
    found = trainer.update({"main": [fragment(2), fragment(3)]}, 0.0)
    assert found["main"]["gradient_steps"] == 12  # of 6 x 8 rows, two epochs, by eights
    resumed = beginning(policy("main", lanes=2 * LANES))
    resumed.restore(trainer.save())
    trainer.reshape([policy("main")])  # and back
    assert trainer.update({"main": [fragment(4)]}, 0.0)["main"]["gradient_steps"] == 6


def test_several_fragments_stand_side_by_side() -> None:
    left, right = fragment(1, lanes=1), fragment(2, lanes=3)
    one = Fragment(left.header, of_each(lambda a, b: np.hstack([a, b]), left.steps, right.steps))

    split = beginning(policy("main"))
    split.update({"main": [left, right]}, 0.0)
    expected = split.save()
    whole = beginning(policy("main"))
    whole.update({"main": [one]}, 0.0)

    assert same(whole.save(), expected)


# --- a policy that did not play ------------------------------------------------------------------


@pytest.mark.parametrize("network", [{}, EYE], ids=["alone", "shared encoder"])
@pytest.mark.parametrize("absence", ["no fragments", "no valid row", "nothing known"])
def test_a_policy_that_did_not_play_does_not_move(network: dict[str, Any], absence: str) -> None:
    trainer = pair(**network)
    trainer.update({"a": [fragment(1)], "b": [fragment(2)]}, 0.0)  # momentum to drift by
    before = trainer.save()
    absent: dict[str, list[Fragment]] = {"b": [idle(4)]}
    if absence == "no fragments":
        absent = {}
    elif absence == "nothing known":
        absent = {"b": [fragment(4)]}
        absent["b"][0].steps.log_prob[:] = np.nan

    found = trainer.update({"a": [fragment(3)], **absent}, 0.0)

    after = trainer.save()
    assert found.keys() == {"a"}
    own = [n for n in part(before, "b/") if not n.startswith("b/params/enc.")]
    assert len(own) > 10
    assert same({n: before[n] for n in own}, {n: after[n] for n in own})
    assert not np.array_equal(before["a/params/pi.0.w"], after["a/params/pi.0.w"])


def test_when_nobody_played_nothing_moves() -> None:
    trainer = Trainer([policy("main"), policy("a", **EYE), policy("b", **EYE)], STEPS, seed=0)
    before = trainer.save()
    assert trainer.update({"main": [idle(1)], "a": []}, 0.0) == {}
    assert same(before, trainer.save())


# --- saving, restoring, beginning anew -----------------------------------------------------------


def test_a_restored_trainer_goes_on_bit_for_bit() -> None:
    def learn(trainer: Trainer, seed: int) -> Any:
        return trainer.update({"a": [fragment(seed)], "b": [fragment(seed + 9)]}, 0.3)

    first = pair(**EYE)
    for seed in range(2):
        learn(first, seed)
    saved = {name: np.array(array) for name, array in first.save().items()}
    other = Trainer(first.policies, STEPS, seed=5)
    other.compile()
    other.restore(saved)

    for seed in (7, 8):
        assert learn(first, seed) == learn(other, seed)
    assert same(first.save(), other.save())
    assert not same(first.save(), saved)


def test_an_update_that_is_begun_changes_nothing_until_it_is_finished() -> None:
    def played(seed: int) -> Any:
        return {"a": [fragment(seed)], "b": [fragment(seed + 9)]}

    def saved(trainer: Trainer) -> Arrays:
        return {name: np.array(array) for name, array in trainer.save().items()}

    trainer = pair(**EYE)
    expected = [(saved(trainer), {})]
    for seed in range(2):
        values = trainer.update(played(seed), 0.3)
        expected.append((saved(trainer), values))

    trainer = pair(**EYE)
    begun = [trainer.begin(played(seed), 0.3) for seed in range(2)]
    assert same(trainer.save(), expected[0][0]), "neither is finished"
    for running, (arrays, values) in zip(begun, expected[1:], strict=True):
        assert trainer.finish(running) == values
        assert same(trainer.save(), arrays)


def test_saved_names_say_whose_they_are() -> None:
    saved = Trainer([policy("main"), policy("a", **EYE)], STEPS, seed=0).save()
    assert {"main/params/pi.0.w", "main/optimizer/mean", "main/stats/ret.mean"} <= saved.keys()
    assert {"main/learner.order", "main/learner.rng", "a/learner.rng"} <= saved.keys()
    assert {"a/params/enc.0.w", "encoder:eye/optimizer/square"} <= saved.keys()


@pytest.mark.parametrize(
    "name", ["b/params/pi.0.w", "b/learner.order", "encoder:eye/optimizer/mean"]
)
def test_a_checkpoint_of_another_shape_is_refused(name: str) -> None:
    trainer = Trainer([policy("main"), policy("b", **EYE)], STEPS, seed=0)
    saved = trainer.save()
    with pytest.raises(DamagedCheckpoint, match=name):
        trainer.restore({**saved, name: np.zeros((1, 1), np.float32)})


@pytest.mark.parametrize("name", ["b/params/pi.0.w", "encoder:eye/optimizer/mean"])
def test_a_checkpoint_that_lacks_an_array_is_refused(name: str) -> None:
    trainer = Trainer([policy("main"), policy("b", **EYE)], STEPS, seed=0)
    saved = trainer.save()
    del saved[name]
    with pytest.raises(DamagedCheckpoint, match=name):
        trainer.restore(saved)


def test_a_reset_policy_begins_anew_but_its_encoder_and_the_others_stay() -> None:
    trainer = pair(**EYE)
    trainer.update({"a": [fragment(1)], "b": [fragment(2)]}, 0.0)
    before = trainer.save()

    trainer.reset("b", salt=1)
    once = trainer.save()
    trainer.reset("b", salt=2)
    twice = trainer.save()

    for prefix in ("a/", "encoder:", "b/params/enc."):
        assert same(part(before, prefix), part(twice, prefix))
    assert not twice["b/optimizer/mean"].any() and twice["b/optimizer/count"] == 0
    assert twice["b/stats/obs.count"] == 0
    first = initial_weights(trainer.policies, 0)["b"][0]["pi.0.w"]
    for other in (before["b/params/pi.0.w"], once["b/params/pi.0.w"], first):
        assert not np.array_equal(twice["b/params/pi.0.w"], other)
    trainer.update({"a": [fragment(3)], "b": [fragment(4)]}, 0.0)  # and it goes on learning


def test_the_first_weights_are_those_that_were_published_before_it() -> None:
    policies = [policy("main"), policy("a", **EYE), policy("b", actions=3, **EYE)]
    arrays = Trainer(policies, STEPS, seed=3).acting_arrays()
    for each in policies:
        published = each.network.acting_arrays(*initial_weights(policies, 3)[each.name])
        assert same(arrays[each.name], published)
