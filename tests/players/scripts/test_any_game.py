"""random and first-legal, in numpy and compiled, for every kind of action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.players.scripts.any_game import FirstLegalPlayer, RandomPlayer
from rookery.spaces import ActionSpace, Categorical, Continuous, Leaf, MultiCategorical, SeatSpec

LANES = 600


def seat(action: ActionSpace) -> SeatSpec:
    return SeatSpec((Leaf("", "box", (2,), "float32"),), action)


@pytest.fixture(params=["numpy", "jax"])
def namespace(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """(xp, key)."""
    if request.param == "numpy":
        return np, np.random.default_rng(0)
    import jax
    import jax.numpy as jnp

    return jnp, jax.random.key(0)


def act(player: Any, xp: Any, mask: Any, key: Any) -> Any:
    observation = {"": xp.zeros((LANES, 2))}
    if xp is np:
        return player.act({}, observation, mask, {}, key)
    import jax

    return jax.jit(lambda o, m, k: player.act({}, o, m, {}, k))(observation, mask, key)


def test_random_is_uniform_over_the_legal_actions(namespace: tuple[Any, Any]) -> None:
    xp, key = namespace
    mask = np.tile([True, False, True, True], (LANES, 1))
    decision = act(RandomPlayer(seat(Categorical(4)), xp), xp, mask, key)
    counts = np.bincount(np.asarray(decision.action), minlength=4)
    assert counts[1] == 0 and counts[[0, 2, 3]].min() > 150
    assert np.allclose(decision.log_prob, -np.log(3), atol=1e-5)


def test_random_covers_the_bounds_of_real_actions(namespace: tuple[Any, Any]) -> None:
    xp, key = namespace
    space = Continuous((2,), (0.0, -4.0), (1.0, 4.0))
    decision = act(RandomPlayer(seat(space), xp), xp, None, key)
    actions = np.asarray(decision.to_environment)
    assert actions.shape == (LANES, 2)
    assert (actions.min(0) < [0.05, -3.6]).all() and (actions.max(0) > [0.95, 3.6]).all()
    assert np.isnan(decision.log_prob).all()


def test_first_legal_is_certain_of_the_first(namespace: tuple[Any, Any]) -> None:
    xp, key = namespace
    mask = np.tile([False, True, True], (LANES, 1))
    decision = act(FirstLegalPlayer(seat(Categorical(3)), xp), xp, mask, key)
    assert (np.asarray(decision.action) == 1).all()
    assert (np.asarray(decision.log_prob) == 0).all()


def test_first_legal_takes_the_first_of_each_of_several_choices(
    namespace: tuple[Any, Any],
) -> None:
    xp, key = namespace
    mask = np.tile([False, True, False, False, True], (LANES, 1))
    decision = act(FirstLegalPlayer(seat(MultiCategorical((2, 3))), xp), xp, mask, key)
    assert (np.asarray(decision.action) == [1, 2]).all()
