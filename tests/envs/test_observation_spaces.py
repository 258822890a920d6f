"""Observation spaces as leaves, whatever the space."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.envs.observation_spaces import read_space

LEAF_SPACES = st.one_of(
    st.tuples(
        st.lists(st.integers(1, 9), max_size=3).map(tuple),
        st.sampled_from([np.float32, np.float64, np.uint8, np.int32, np.int64]),
    ).map(lambda a: spaces.Box(0, 100, a[0], a[1])),
    st.tuples(st.integers(1, 9), st.integers(-3, 3)).map(
        lambda a: spaces.Discrete(a[0], start=a[1])
    ),
    st.lists(st.tuples(st.integers(1, 5), st.integers(-2, 2)), min_size=1, max_size=3).map(
        lambda a: spaces.MultiDiscrete([n for n, _ in a], start=[s for _, s in a])
    ),
    st.integers(1, 5).map(spaces.MultiBinary),
)
SPACES = st.recursive(
    LEAF_SPACES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1).map(spaces.Dict),
    ),
    max_leaves=5,
)


def leaf_values(space: Any, value: Any, path: str = "") -> dict[str, np.ndarray]:
    """The leaves of one observation, by a second and slower way."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        found: dict[str, np.ndarray] = {}
        for key, part in parts:
            found |= leaf_values(part, value[key], f"{path}.{key}" if path else str(key))
        return found
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        value = value - space.start
    return {path: np.asarray(value)}


@settings(max_examples=80, deadline=None)
@given(space=SPACES, seed=st.integers(0, 9))
def test_no_value_is_lost_or_moved_between_leaves(space: Any, seed: int) -> None:
    space.seed(seed)
    observations = [space.sample() for _ in range(3)]
    readers = read_space(space, "it")
    batch = concatenate(space, observations, create_empty_array(space, 3))
    for reader in readers:
        rows = reader.read_rows(observations)
        np.testing.assert_array_equal(rows, reader.read_batch(batch), strict=True)
        assert rows.shape == (3, *reader.leaf.shape) and rows.dtype.name == reader.leaf.dtype
        for row, observation in zip(rows, observations, strict=True):
            expected = leaf_values(space, observation)[reader.leaf.path]
            raw = np.moveaxis(row, -1, 0) if reader.layout == "channels_first" else row
            np.testing.assert_allclose(raw.reshape(expected.shape), expected, rtol=1e-6)
    assert len(readers) == len(leaf_values(space, observations[0]))
