"""Engines: whole games, death in the middle of one, deadlines, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rookery.errors import RookeryError
from rookery.players import Question
from rookery.players.chess_actions import action_of, uci_of
from rookery.spaces import SeatSpec

CHESS = "pettingzoo:chess_v6"
STOCKFISH = shutil.which("stockfish") or shutil.which("stockfish", path="/usr/games")
needs_stockfish = pytest.mark.skipif(STOCKFISH is None, reason="stockfish is not installed")

# Speaks just enough UCI; on `go` it does what its first argument says.
FAKE = """#!{python}
import os, sys, time
for line in sys.stdin:
    word = line.split()[0]
    if word == "uci": print("id name fake\\nuciok", flush=True)
    if word == "isready": print("readyok", flush=True)
    if word == "go":
        {go}
"""


def raw_chess() -> Any:
    from pettingzoo.classic.chess.chess import raw_env

    env = raw_env()
    env.reset()
    return env


def question(env: Any) -> Question:
    seat = env.agent_selection
    seen = env.observe(seat)
    return Question(
        "game", 0, seat, {"": seen["observation"]}, seen["action_mask"] > 0, env.board.fen()
    )


others: set[int] = set()  # children that tests before have started for all, like a broker


@pytest.fixture(autouse=True)
def _others() -> None:
    others.clear()
    others.update(process.pid for process in psutil.Process().children())


def engines() -> list[psutil.Process]:
    """Our children that this test has started."""
    children = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
    return [p for p in children if p.pid not in others]


@pytest.fixture
def engine(made: Callable[..., Any], chess: SeatSpec) -> Iterator[Callable[..., Any]]:
    """Players by name; closed at the end, when no process may be left."""
    players: list[Any] = []

    def make(text: str) -> Any:
        players.append(made(text, chess, CHESS))
        return players[-1]

    yield make
    for player in players:
        player.close()
    assert not engines()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a program of ours where engine:fake is looked for."""

    def write(go: str) -> None:
        path = tmp_path / "fake"
        path.write_text(FAKE.format(python=sys.executable, go=go))
        path.chmod(0o755)
        monkeypatch.setenv("ROOKERY_ENGINE_FAKE", str(path))

    return write


def test_every_move_of_many_games_has_the_environments_number() -> None:
    """Random games, promotions and castling included: our numbers are just those of the mask."""
    rng, promotions, castlings = np.random.default_rng(0), 0, 0
    for _ in range(6):
        env = raw_chess()
        while not any(env.terminations.values()) and env.board.ply() < 300:
            mask = env.observe(env.agent_selection)["action_mask"]
            moves = list(env.board.legal_moves)
            black = not env.board.turn
            numbers = [action_of(move.uci(), black) for move in moves]
            assert [uci_of(n, env.board.fen()) for n in numbers] == [m.uci() for m in moves]
            assert sorted(numbers) == np.flatnonzero(mask).tolist()
            chosen = int(rng.integers(len(moves)))
            eager = [i for i, m in enumerate(moves) if m.promotion or env.board.is_castling(m)]
            chosen = int(rng.choice(eager)) if eager else chosen
            promotions += moves[chosen].promotion is not None
            castlings += env.board.is_castling(moves[chosen])
            env.step(numbers[chosen])
            assert env.board.peek() == moves[chosen]
    assert promotions and castlings


@needs_stockfish
def test_it_plays_a_whole_game_against_itself(engine: Callable[..., Any]) -> None:
    weak, strong = (
        engine("engine:stockfish?level=0&nodes=50"),
        engine("engine:stockfish?nodes=2000"),
    )
    assert weak.kind == "engine"
    env = raw_chess()
    while not any(env.terminations.values()):
        player = strong if env.agent_selection == "player_0" else weak
        answer = player.ask(question(env)).result(30)
        assert answer.decided_by == "player"
        assert env.observe(env.agent_selection)["action_mask"][answer.action]
        env.step(answer.action)
    assert env.board.result(claim_draw=True) == "1-0"


@needs_stockfish
def test_a_killed_engine_is_replaced_in_the_middle_of_a_game(engine: Callable[..., Any]) -> None:
    player, env, killed = engine("engine:stockfish?nodes=100"), raw_chess(), set()
    for move in range(12):
        if move % 4 == 1:
            (process,) = engines()
            process.send_signal(signal.SIGKILL)
            killed.add(process.pid)
        answer = player.ask(question(env)).result(30)
        assert answer.decided_by == "player"
        env.step(answer.action)
    assert len(killed) == 3
    assert engines()[0].pid not in killed


@needs_stockfish
def test_an_engine_killed_while_it_thinks_is_asked_again(
    engine: Callable[..., Any], eventually: Callable[..., Any]
) -> None:
    player, env = engine("engine:stockfish?time=1&deadline=30"), raw_chess()
    (process,) = engines()
    used = process.cpu_times().user
    asked = player.ask(question(env))
    eventually(lambda: process.cpu_times().user > used + 0.1, "it to think")
    process.kill()
    assert asked.result(30).decided_by == "player"
    assert engines()[0].pid != process.pid


@needs_stockfish
@pytest.mark.parametrize("fallback", ["random", "resign", "stop"])
def test_a_hung_engine_is_killed_at_the_deadline(fallback: str, engine: Callable[..., Any]) -> None:
    player = engine(f"engine:stockfish?time=0.01&deadline=2&fallback={fallback}")
    (process,) = engines()
    process.suspend()
    asked, next_one = player.ask(question(raw_chess())), player.ask(question(raw_chess()))
    if fallback == "stop":
        with pytest.raises(RookeryError, match=r"engine:stockfish.*deadline of 2 s"):
            asked.result(30)
    else:
        answer = asked.result(30)
        assert answer.decided_by == "fallback" and answer.resigned == (fallback == "resign")
        assert question(raw_chess()).mask[answer.action]
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert next_one.result(30).decided_by == "player"


def test_an_engine_that_always_dies_ends_in_the_fallback(
    engine: Callable[..., Any], fake: Callable[[str], None]
) -> None:
    fake("os._exit(1)")
    player = engine("engine:fake?fallback=stop")
    with pytest.raises(RookeryError, match="failed 3 times in one move"):
        player.ask(question(raw_chess())).result(30)


def test_an_engine_that_talks_nonsense_ends_in_the_fallback(
    engine: Callable[..., Any], fake: Callable[[str], None]
) -> None:
    fake('print("bestmove a1a1x", flush=True)')
    assert engine("engine:fake").ask(question(raw_chess())).result(30).decided_by == "fallback"


def test_closing_ends_a_move_under_way(
    engine: Callable[..., Any], fake: Callable[[str], None], tmp_path: Path, eventually: Any
) -> None:
    fake(f'open({str(tmp_path / "thinks")!r}, "w"); time.sleep(600)')
    player = engine("engine:fake?deadline=600")
    asked = player.ask(question(raw_chess()))
    eventually((tmp_path / "thinks").exists, "it to think")
    player.close()
    with pytest.raises(RookeryError, match="closed"):
        asked.result(10)


@needs_stockfish
def test_no_engine_outlives_a_killed_process(eventually: Callable[..., Any]) -> None:
    code = (
        "from rookery.players.engine import *; import sys;"
        "e = EngineThinker('e', find_engine('stockfish'), EngineOptions(None, None, 1, 1, 16));"
        "e.check(); print(e.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        parent.kill()

    def ended() -> bool:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE

    eventually(ended, "the engine to end", timeout=10)


@needs_stockfish
def test_a_player_that_nobody_closed_holds_up_no_exit() -> None:
    code = (
        "from rookery.players.factory import *;"
        "from rookery.spaces import *;"
        "seat = SeatSpec((), Categorical(4672));"
        f"PlayerFactory({CHESS!r}).member('engine:stockfish', 'player_0', seat)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_a_position_it_says_so(
    engine: Callable[..., Any], fake: Callable[[str], None]
) -> None:
    fake("pass")
    bare = question(raw_chess())._replace(position=None)
    with pytest.raises(RookeryError, match="FEN"):
        engine("engine:fake?fallback=stop").ask(bare).result(10)


@pytest.mark.parametrize(
    ("text", "environment", "says"),
    [
        ("engine:stockfish", "pgx:chess", "plays chess only: pgx:chess is not pettingzoo:chess_v6"),
        ("engine:stokfish", CHESS, "did you mean stockfish"),
        ("engine:sh", CHESS, "unknown engine 'sh'"),
        ("engine:stockfish?level=21", CHESS, "takes a whole number from 0 to 20"),
        ("engine:stockfish?level=-1", CHESS, "takes a whole number from 0 to 20"),
        ("engine:stockfish?levle=2", CHESS, "did you mean level"),
        ("engine:stockfish?path=x", CHESS, "unknown option of engine:stockfish 'path'"),
        ("engine:stockfish?time=10&deadline=5", CHESS, "would think for time=10 s"),
        ("engine:fake?level=3", CHESS, "has no Skill Level"),
    ],
)
def test_a_bad_engine_is_refused_in_one_line(
    text: str,
    environment: str,
    says: str,
    chess: SeatSpec,
    made: Callable[..., Any],
    refused: Callable[..., str],
    fake: Callable[[str], None],
) -> None:
    fake("pass")
    assert says in refused(made, text, chess, environment)
    assert not engines()


def test_what_is_not_installed_or_no_engine_is_said(
    chess: SeatSpec,
    made: Callable[..., Any],
    refused: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ROOKERY_ENGINE_STOCKFISH", "/nowhere/stockfish")
    assert "not a program" in refused(made, "engine:stockfish", chess, CHESS)
    monkeypatch.setenv("ROOKERY_ENGINE_STOCKFISH", shutil.which("true") or "true")
    assert "does not start as a UCI engine" in refused(made, "engine:stockfish", chess, CHESS)
    monkeypatch.delenv("ROOKERY_ENGINE_STOCKFISH")
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr("rookery.players.engine._GAMES", os.devnull)
    line = refused(made, "engine:stockfish", chess, CHESS)
    assert "is not installed: apt install stockfish, or set ROOKERY_ENGINE_STOCKFISH" in line


def test_without_python_chess_the_extra_is_named(
    chess: SeatSpec,
    made: Callable[..., Any],
    refused: Callable[..., str],
    fake: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake("pass")
    monkeypatch.setitem(sys.modules, "chess.engine", None)
    assert "rookery[chess]" in refused(made, "engine:fake", chess, CHESS)
