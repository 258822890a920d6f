"""What is shown of a policy's thoughts is what it acts by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.algorithms.networks import Network
from rookery.config.models import NetworkConfig
from rookery.players.policy import PolicyPlayer
from rookery.spaces import Categorical, Continuous, Leaf, MultiCategorical, SeatSpec
from rookery.viewing import ChoiceHead, NumberHead
from rookery.viewing.thoughts import ALL_SHOWN, MOST_SHOWN, Thought, think

LEAF = Leaf("", "box", (3,), "float32")


def thought_of(
    seat: SeatSpec,
    seed: int,
    mask: np.ndarray | None = None,
    critic: bool = True,
    **network: object,
) -> tuple[Thought, PolicyPlayer, dict[str, np.ndarray], np.ndarray]:
    made = Network(seat, NetworkConfig(hidden=(8,), **network))  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    params, stats = made.init(rng), made.init_stats()
    params = {
        name: x + rng.normal(0, 0.5, x.shape).astype(np.float32) for name, x in params.items()
    }
    arrays = made.acting_arrays(params, stats)
    if critic:
        arrays |= made.critic_arrays(params, stats)
    player = PolicyPlayer(made)
    observation = {"": rng.normal(size=(1, 3)).astype(np.float32)}
    decision = player.act(arrays, observation, mask, {}, rng)
    thought = think(made, arrays, observation, mask, decision, ("first", "second"))
    return thought, player, arrays, observation[""]


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10**6), st.data())
def test_probabilities_are_those_that_the_policy_draws_with(
    actions: int, seed: int, data: st.DataObject
) -> None:
    legal = np.array([data.draw(st.lists(st.booleans(), min_size=actions, max_size=actions))])
    legal[0, seed % actions] = True
    seat = SeatSpec((LEAF,), Categorical(actions), masked=True)
    thought, player, arrays, seen = thought_of(seat, seed, legal)
    (head,) = thought.heads
    assert isinstance(head, ChoiceHead)
    assert (head.count, head.legal) == (actions, legal.sum())
    assert len(head.options) == (actions if actions <= ALL_SHOWN else MOST_SHOWN)
    act, network = player.network.distribution, player.network
    theta = network.policy(np, arrays, network.encode(np, arrays, arrays, {"": seen}))
    for option in head.options:
        assert option.legal == legal[0, option.action]
        chosen = np.array([option.action])
        expected = np.exp(act.log_prob(np, theta, None, legal, chosen)[0]) if option.legal else 0.0
        assert option.p == pytest.approx(expected, abs=1e-6)
    shown = [option.p for option in head.options]
    if actions <= ALL_SHOWN:
        assert sum(shown) == pytest.approx(1)
        assert [option.action for option in head.options] == list(range(actions))
        assert head.options[0].name == "first"
    else:
        assert shown == sorted(shown, reverse=True)


def test_each_of_several_choices_is_told_apart() -> None:
    seat = SeatSpec((LEAF,), MultiCategorical((2, 3)))
    mask = np.array([[True, True, False, True, True]])
    thought, *_ = thought_of(seat, 1, mask)
    first, second = thought.heads
    assert isinstance(first, ChoiceHead) and isinstance(second, ChoiceHead)
    assert [first.count, second.count, second.legal] == [2, 3, 2]
    assert second.options[0].p == 0 and sum(option.p for option in second.options) == pytest.approx(
        1
    )


@pytest.mark.parametrize("gaussian", ["squashed", "clipped"])
def test_numbers_are_told_in_the_environments_units(gaussian: str) -> None:
    seat = SeatSpec((LEAF,), Continuous((2,), (-2.0, 0.0), (2.0, 10.0)))
    thought, *_ = thought_of(seat, 3, gaussian=gaussian)
    for head, (low, high) in zip(thought.heads, [(-2, 2), (0, 10)], strict=True):
        assert isinstance(head, NumberHead)
        assert (head.low, head.high) == (low, high)
        assert low <= head.near <= head.mean <= head.far <= high
        assert low <= head.action <= high


def test_the_value_is_that_of_the_value_network_or_nothing() -> None:
    seat = SeatSpec((LEAF,), Categorical(2))
    thought, player, arrays, seen = thought_of(seat, 5)
    network = player.network
    features = network.encode(np, arrays, arrays, {"": seen})
    assert thought.value == pytest.approx(network.value(np, arrays, arrays, features)[0])
    assert thought_of(seat, 5, critic=False)[0].value is None
