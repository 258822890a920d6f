"""Games of a match that can be watched again, move by move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from rookery.config.reading import build
from rookery.control.home import Home
from rookery.envs.registry import describe
from rookery.errors import InputError, UnknownName
from rookery.evaluation import kept_games
from rookery.evaluation.kept_games import keep, kept_game, kept_matches, taped
from rookery.evaluation.match import Ways, play_match
from rookery.viewing import Watch
from rookery.viewing.replay import Replay

RANDOM = "script:random"


def played(home: Home, environment: str, games: int = 12, id: str = "m") -> str:
    """A run, and a match that was kept for it."""
    spec = describe(environment)
    run = home.create(build({"environment": {"id": environment}}), spec, "ann", "r")

    def tape(ways: Ways) -> None:
        keep(home.run_dir(run), taped(id, ways))

    play_match(home, environment, RANDOM, RANDOM, games, tape=tape)
    return run


@pytest.mark.parametrize(
    "environment",
    [
        "pgx:tic_tac_toe",
        "pgx:kuhn_poker",  # chance deals
        "pettingzoo:connect_four_v3",
        "pettingzoo:rps_v2",  # all at once
    ],
)
def test_a_kept_game_is_shown_again_to_its_end(tmp_path: Path, environment: str) -> None:
    home = Home(tmp_path)
    run = played(home, environment)
    (match,) = kept_matches(home.run_dir(run)).matches
    assert 1 <= len(match.games) <= 16
    for kept in match.games[:3]:
        replay = Replay(home, Watch(run=run, game=kept.game))
        frames = [replay.next() for _ in range(replay.watching.steps + 1)]
        assert [frame.step for frame in frames] == list(range(replay.watching.steps + 1))
        assert [frame.over for frame in frames] == [False] * replay.watching.steps + [True]
        totals = [seat.returned for seat in frames[-1].seats.values()]
        assert totals == pytest.approx(kept.totals)
        assert sum(s.action is not None for f in frames for s in f.seats.values()) == kept.moves
        assert replay.next() == frames[-1] and replay.seek(1) == frames[1]
        replay.close()


def test_moves_have_their_names(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run = played(home, "pgx:tic_tac_toe", 2)
    replay = Replay(home, Watch(run=run, game="m.1"))
    moves = {seat.move for seat in replay.next().seats.values()}
    assert moves & {"top left", "middle centre", "bottom right"} or any(" " in m for m in moves)


def test_a_game_that_goes_another_way_is_not_shown(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run = played(home, "pgx:tic_tac_toe", 2)
    path = home.run_dir(run) / "games" / "m.json"
    match: Any = msgspec.json.decode(path.read_bytes())
    match["games"][0]["totals"] = [7.0, -7.0]
    path.write_bytes(msgspec.json.encode(match))
    with pytest.raises(InputError, match="does not repeat itself"):
        Replay(home, Watch(run=run, game="m.1"))
    with pytest.raises(UnknownName, match="newest matches are kept"):
        kept_game(home.run_dir(run), "m.99")


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, shown = Home(tmp_path / "home"), []
    play_match(home, "pgx:tic_tac_toe", RANDOM, RANDOM, 100, tape=shown.append)
    ways: Ways = shown[0]
    match = taped("x", ways)
    assert len(match.games) == kept_games.MOST_GAMES
    assert len({game.seed for game in match.games}) == 2  # both ways round
    assert {(t > 0) - (t < 0) for game in match.games for t in game.totals} == {-1, 0, 1}
    monkeypatch.setattr(kept_games, "MOST_MATCHES", 2)
    for id in "abc":
        keep(tmp_path, msgspec.structs.replace(match, id=id))
    assert [each.match for each in kept_matches(tmp_path).matches] == ["c", "b"]
    monkeypatch.setattr(kept_games, "MOST_BYTES", 100)
    keep(tmp_path, msgspec.structs.replace(match, id="d"))
    assert not (tmp_path / "games" / "d.json").exists()
    monkeypatch.setattr(kept_games, "MOST_MOVES", 3)
    assert taped("x", ways).games == ()
