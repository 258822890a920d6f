"""Action spaces as heads, whatever the space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.envs.action_spaces import write_space
from rookery.spaces import Categorical, Continuous

ACTION_SPACES = st.one_of(
    st.tuples(st.integers(1, 9), st.integers(-3, 3)).map(
        lambda a: spaces.Discrete(a[0], start=a[1])
    ),
    st.lists(st.tuples(st.integers(1, 5), st.integers(-2, 2)), min_size=1, max_size=3).map(
        lambda a: spaces.MultiDiscrete([n for n, _ in a], start=[s for _, s in a])
    ),
    st.tuples(st.floats(-9, 0, width=32), st.floats(0, 9, width=32)).map(
        lambda a: spaces.Box(a[0], a[1], (2, 2))
    ),
)


@settings(max_examples=80, deadline=None)
@given(space=ACTION_SPACES, seed=st.integers(0, 99))
def test_every_action_of_a_policy_is_one_of_the_environment(space: Any, seed: int) -> None:
    writer, rng = write_space(space, "it"), np.random.default_rng(seed)
    head = writer.head
    if isinstance(head, Continuous):
        actions = rng.normal(0, 20, (4, *head.shape)).astype(np.float32)
    else:
        sizes = head.n if isinstance(head, Categorical) else head.sizes
        actions = rng.integers(0, sizes, (4, *writer.shape))
    for action in writer.encoder(4)(actions, np.zeros(4, bool)):
        assert space.contains(action)


def test_an_action_out_of_range_is_an_error_unless_it_is_ignored() -> None:
    encode = write_space(spaces.Discrete(2), "it").encoder(3)
    with pytest.raises(ValueError, match="action 2 of slot 1"):
        encode(np.array([0, 2, 1]), np.zeros(3, bool))
    assert encode(np.array([0, -1, 1]), np.array([False, True, False])).tolist() == [0, -1, 1]
