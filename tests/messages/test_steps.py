"""One record of rows: its fields are the wire's names, its shapes and its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.errors import MessageError
from rookery.messages.steps import Steps, check_steps, each, fits, from_named, named_arrays, padded

NAMES = [  # as the version before wrote them
    *("observation/a", "observation/b", "action", "reward", "terminated", "truncated", "valid"),
    *("log_prob", "seat", "player", "behind", "mask", "state/h"),
]


def steps(rows: int = 3, lanes: int = 2, fill: int = 1) -> Steps:
    shape = (rows, lanes)
    flags, indices = np.full(shape, bool(fill)), np.full(shape, fill, np.uint8)
    return Steps(
        observation={
            "a": np.full((rows + 1, lanes, 4), fill, np.float32),
            "b": np.full((rows + 1, lanes), fill, np.int8),
        },
        action=np.full((*shape, 2), fill, np.int32),
        reward=np.full(shape, fill, np.float32),
        terminated=flags,
        truncated=flags,
        valid=flags,
        log_prob=np.full(shape, fill, np.float32),
        seat=indices,
        player=indices,
        behind=indices,
        mask=np.ones((rows + 1, lanes, 5), bool),
        state={"h": np.full((*shape, 3), fill, np.float32)},
    )


def test_the_wires_names_are_the_fields() -> None:
    named = named_arrays(steps())
    assert [name for name, _ in named] == NAMES
    back = from_named(Steps, dict(named), ("observation", "state"))
    assert [name for name, _ in named_arrays(back)] == NAMES


def test_what_is_there_only_sometimes_may_be_missing_and_nothing_else() -> None:
    arrays = dict(named_arrays(steps()))
    bare = {name: array for name, array in arrays.items() if name not in ("mask", "state/h")}
    found = from_named(Steps, bare, ("observation", "state"))
    assert found.mask is None and found.state == {}
    del bare["player"]
    with pytest.raises(MessageError, match="without player"):
        from_named(Steps, bare, ("observation", "state"))


@pytest.mark.parametrize("name", NAMES)
def test_every_array_is_checked_for_its_rows_and_lanes(name: str) -> None:
    good = steps()
    check_steps(good)
    field, _, leaf = name.partition("/")
    value: Any = getattr(good, field)
    short = {**value, leaf: value[leaf][:-1]} if leaf else value[:-1]
    with pytest.raises(MessageError, match="shape"):
        check_steps(good._replace(**{field: short}))


def column(*flags: float) -> np.ndarray:
    return np.array(flags)[:, None]


def test_a_trajectory_begins_after_an_end_an_edge_and_another_decider() -> None:
    made = steps(8, 1, 0)._replace(
        valid=column(1, 1, 1, 0, 1, 1, 1, 1).astype(bool),
        terminated=column(0, 1, 0, 0, 0, 0, 0, 0).astype(bool),
        player=column(0, 0, 0, 0, 0, 0, 2, 2).astype(np.uint8),
    )
    assert made.begins[:, 0].tolist() == [True, False, True, False, True, False, True, False]
    state = np.arange(1.0, 9.0)[:, None]
    kept = made.with_state({"h": state}).state["h"]
    assert kept[:, 0].tolist() == [1, 0, 3, 0, 5, 0, 7, 0]
    assert state.all(), "what was given stays as it is"


def test_rows_are_known_where_the_policys_probability_is() -> None:
    made = steps(3, 1)._replace(
        valid=column(1, 1, 0).astype(bool), log_prob=column(-1, np.nan, -1).astype(np.float32)
    )
    assert made.known[:, 0].tolist() == [True, False, False]


def test_padding_leaves_the_rows_as_they_are_and_shows_what_came_after_them() -> None:
    small, blank = steps(2, 1), steps(4, 3, 0)
    assert fits(small, blank)
    large = padded(small, blank)
    check_steps(large)
    assert large.valid.sum() == 2 and large.valid[:2, 0].all()
    assert large.observation["a"][:3, 0].all() and not large.observation["a"][3:].any()
    assert large.mask is not None and large.mask.all()
    assert not blank.valid.any(), "the blank one can be used again"


def test_other_shapes_types_and_leaves_do_not_fit() -> None:
    blank = steps(4, 3, 0)
    assert not fits(steps(5, 1), blank) and not fits(steps(2, 4), blank)
    assert not fits(steps()._replace(action=np.zeros((3, 2, 2), np.int64)), blank)
    assert not fits(steps()._replace(mask=None), blank)
    assert not fits(steps()._replace(state={}), blank)


def test_parts_are_joined_field_by_field() -> None:
    joined = each(lambda a, b: np.concatenate([a, b], axis=1), steps(), steps(lanes=1))
    check_steps(joined)
    assert joined.reward.shape == (3, 3) and joined.state["h"].shape == (3, 3, 3)
