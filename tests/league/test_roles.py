"""When an exploiter begins anew."""

from __future__ import annotations

from rookery.league.roles import exploiter_done


def done(win_rate: float, games: int, updates: int) -> bool:
    return exploiter_done(win_rate, games, updates, threshold=0.7, min_games=50, max_updates=400)


def test_it_is_done_when_it_surely_beats_its_target() -> None:
    assert done(0.7, 50, 1)
    assert not done(0.69, 50, 1)
    assert not done(1.0, 49, 1)


def test_it_gives_up_in_the_end() -> None:
    assert done(0.0, 0, 400)
    assert not done(0.0, 1000, 399)
