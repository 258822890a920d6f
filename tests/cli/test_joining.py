"""An actor that joins on its own has a name that nobody had before."""

from __future__ import annotations

import secrets

import pytest

from rookery.cli import workers
from rookery.messages import JOINED_FROM


def test_an_ordinal_that_was_used_before_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([7, 7, 8])
    monkeypatch.setattr(secrets, "randbelow", lambda limit: next(draws))
    assert workers._unused({0, JOINED_FROM + 7}) == JOINED_FROM + 8
