"""Processes of this machine."""

from __future__ import annotations

import os

import pytest

from rookery.launchers.local import behind
from rookery.worker import WorkerId


def test_the_learner_goes_first_and_many_actors_step_further_back_than_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    actors = [behind(WorkerId("actor", index, 1)) for index in range(4)]
    assert behind(WorkerId("learner", 0, 1)) == 0
    assert actors == [5, 5, 10, 10]
