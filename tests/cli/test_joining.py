"""Workers that join a run on their own: an actor has a name that nobody had before."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest

from rookery.cli import workers
from rookery.config.reading import build
from rookery.messages import JOINED_FROM
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec

if TYPE_CHECKING:
    from tests.conftest import Cli

SEAT = SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))
SPEC = EnvironmentSpec("CartPole-v1", {"player_0": SEAT})


def test_an_ordinal_that_was_used_before_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([7, 7, 8])
    monkeypatch.setattr(secrets, "randbelow", lambda limit: next(draws))
    assert workers._unused({0, JOINED_FROM + 7}) == JOINED_FROM + 8


@pytest.mark.parametrize("kind", ["actor", "learner"])
def test_nobody_joins_a_run_that_is_not_to_train(cli: Cli, kind: str) -> None:
    cli.home.create(build({"environment": {"id": "CartPole-v1"}}), SPEC, "ann", "done")
    said = cli.refused_here(kind, "done")
    assert said == "rookery: done is created, so nobody trains it: rookery resume done"
    assert not cli.home.state("done").workers
