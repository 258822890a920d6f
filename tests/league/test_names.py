"""A name tells whether its player learns."""

from __future__ import annotations

import pytest

from rookery.league.names import is_frozen, is_live, policy_of, weights_of

FROZEN = ["main@340", "main@340/greedy", "script:random", "engine:stockfish?level=1", "RUN@7"]


@pytest.mark.parametrize("player", FROZEN)
def test_whatever_does_not_learn_is_frozen(player: str) -> None:
    assert is_frozen(player)
    assert not is_live(player)


def test_a_bare_name_is_a_live_policy() -> None:
    assert is_live("main")
    assert not is_frozen("main")


def test_a_snapshot_knows_its_policy_and_its_weights() -> None:
    assert policy_of("main@340/greedy") == "main"
    assert weights_of("main@340/greedy") == weights_of("main@340") == "main@340"
    assert policy_of("main") is None
    assert policy_of("engine:x?user=a@b") is None
