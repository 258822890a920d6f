"""Errors that cross a process."""

from __future__ import annotations

import copy

import pytest

from rookery.errors import (
    EnvironmentFailed,
    InputError,
    MissingExtra,
    RookeryError,
    TimedOut,
    UnknownName,
)


@pytest.mark.parametrize(
    "error",
    [
        InputError("one line"),
        UnknownName("environment", "CartPole-v7", ["CartPole-v1"], "run `rookery envs`"),
        MissingExtra("serve_app", "ray"),
        EnvironmentFailed("it raised", seat="a", slot=3, step=7, user_traceback="..."),
        TimedOut("too late"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_same_after_it_was_taken_apart_and_made_again(error: RookeryError) -> None:
    again = copy.copy(error)  # by the same way as into another process

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__
