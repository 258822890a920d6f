"""An answer is given again while nothing changed and it is young."""

from __future__ import annotations

import pytest

from rookery.server.feed import memo
from rookery.server.feed.memo import Memo


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(memo.time, "monotonic", lambda: self.now)


def test_it_is_made_anew_when_it_is_old_or_its_stamp_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, made = Clock(monkeypatch), []
    kept: Memo[int] = Memo(0.25)

    def ask(key: str, *stamp: object) -> int:
        return kept.get(key, stamp, lambda: made.append(key) or len(made))  # type: ignore[func-returns-value]

    first, second = [1], [1]  # equal, but not the same
    assert ask("a", first) == 1 and ask("a", first) == 1
    assert ask("a", second) == 2
    assert ask("b", second) == 3
    clock.now += 0.26
    assert ask("a", second) == 4


def test_only_the_newest_are_kept() -> None:
    kept: Memo[int] = Memo(60.0, most=2)
    for key in "abc":
        kept.get(key, (), lambda key=key: ord(key))
    assert kept.get("c", (), lambda: 0) == ord("c")
    assert kept.get("a", (), lambda: 0) == 0
