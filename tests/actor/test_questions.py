"""Deferred players at a table: what they are asked, what is waited for, and how games end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from rookery.actor.lineup import FixedLineup
from rookery.actor.rollouts import questions
from rookery.actor.rollouts.table import Table
from rookery.envs.registry import make
from rookery.players import MAX_THOUGHT, GameOver, PlayerAnswer, Question
from rookery.players.factory import PlayerFactory
from rookery.players.member import Member

GAME = "rookery.testing.games:DwindlingGame"  # red moves twice, green 3 times, blue 4 times
CONNECT_FOUR = "pgx:connect_four"


class CountedFuture(Future[PlayerAnswer]):
    """Counts whoever looks whether it is done."""

    looked = 0

    def done(self) -> bool:
        CountedFuture.looked += 1
        return super().done()


class Recording:
    """Answers at once with the first legal action, or when the test says so; remembers all."""

    kind = "toy"

    def __init__(self, at_once: bool = True) -> None:
        self.at_once = at_once
        self.asked: list[tuple[Question, Future[PlayerAnswer]]] = []
        self.told: list[GameOver] = []

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        future: Future[PlayerAnswer] = CountedFuture()
        self.asked.append((question, future))
        if self.at_once:
            future.set_result(first_legal(question))
        return future

    def game_over(self, over: GameOver) -> None:
        self.told.append(over)

    def close(self) -> None:
        pass


class Failing(Recording):
    def game_over(self, over: GameOver) -> None:
        super().game_over(over)
        raise RuntimeError("I hate losing")


def first_legal(question: Question) -> PlayerAnswer:
    return PlayerAnswer(np.asarray(np.flatnonzero(question.mask)[0], np.int32))


def table_of(
    game: str, slots: int, *players: Recording | str, seed: int = 0
) -> tuple[Table, Callable[[], None]]:
    env = make(game, slots)
    factory = PlayerFactory(env.spec.id)
    own = {
        id(player): Member("toy", player, "toy")
        for player in players
        if not isinstance(player, str)
    }
    members = [
        factory.member(player, seat, spec) if isinstance(player, str) else own[id(player)]
        for player, (seat, spec) in zip(players, env.spec.seats.items(), strict=True)
    ]
    table = Table(env, FixedLineup(members), np.random.default_rng(0), seed, name="t")
    table.begin()
    return table, env.close


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.001)


def play(table: Table, steps: int) -> None:
    for _ in range(steps):
        table.step({})


# --- what is asked -------------------------------------------------------------------------------


def test_a_question_tells_game_move_and_what_happened_since() -> None:
    green = Recording()
    table, close = table_of(GAME, 2, "script:first-legal", green, "script:first-legal")
    play(table, 9 + 1 + 9 + 1)  # two games in each slot, with their resets
    close()
    first = [question for question, _ in green.asked if question.game == "t.0.1"]
    assert [question.move for question in first] == [0, 1, 2]
    assert {question.seat for question in first} == {"green"}
    # the first legal move is 0, or 1 after a 0; it pays its number, and a half to the others
    assert [(m.seat, int(m.action)) for m in first[0].since] == [("red", 0)]
    assert [m.seat for m in first[1].since] == ["green", "blue", "red"]
    assert [m.seat for m in first[2].since] == ["green", "blue"]  # red has made its last move
    assert [question.reward for question in first] == [0.5, 1.0 + 0.5 + 0.5, 0.0 + 0.5]
    assert {q.game for q, _ in green.asked} == {"t.0.1", "t.0.2", "t.1.1", "t.1.2"}
    assert not first[0].legal and first[0].position is None


def test_moves_have_names_where_the_environment_has_them() -> None:
    first, second = Recording(), Recording()
    table, close = table_of(CONNECT_FOUR, 1, first, second)
    play(table, 2)
    close()
    question = second.asked[0][0] if second.asked else first.asked[1][0]
    assert question.legal == {column: f"column {column + 1}" for column in range(7)}
    assert [move.name for move in question.since] == ["column 1"]


def test_chess_is_asked_with_its_position_and_moves_in_uci() -> None:
    chess = pytest.importorskip("chess")
    white, black = Recording(), Recording()
    table, close = table_of("pettingzoo:chess_v6", 1, white, black)
    play(table, 10)
    close()
    board = chess.Board()
    for player in [white, black] * 5:
        question, _ = player.asked.pop(0)
        assert question.position is not None
        assert chess.Board(question.position).board_fen() == board.board_fen()
        legal = {move.uci() for move in board.legal_moves}
        assert set(question.legal.values()) == legal
        if board.move_stack:
            assert question.since[-1].name == board.peek().uci()
        board.push_uci(question.legal[int(first_legal(question).action)])


def test_a_thought_is_cut_to_a_bound() -> None:
    assert len(PlayerAnswer(0, thought="x" * 100_000).thought) == MAX_THOUGHT


# --- waiting -------------------------------------------------------------------------------------


def test_hundreds_are_waited_for_and_nobody_looks_at_those_that_are_not_done() -> None:
    slots, steps = 200, 40
    red = Recording(at_once=False)
    table, close = table_of(GAME, slots, red, "script:first-legal", "script:first-legal")
    table._questions.ask(table.env, table.views, table.turn)
    assert len(red.asked) == slots
    CountedFuture.looked = 0
    for _ in range(steps):  # one slot goes on alone
        question, future = red.asked[-1]
        if not future.done():
            future.set_result(first_legal(question))
        table.step({})
    assert {question.game.partition(".1")[0] for question, _ in red.asked[slots:]} == {"t"}
    assert len(red.asked) > slots + steps // 10  # its own further questions
    assert CountedFuture.looked == steps  # this test's own
    table.close()
    close()


def test_a_table_where_all_wait_wakes_with_the_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(questions, "ALL_WAIT_S", 60.0)
    red = Recording(at_once=False)
    table, close = table_of(GAME, 3, red, "script:first-legal", "script:first-legal")
    stepped: list[Any] = []
    thread = threading.Thread(target=lambda: stepped.append(table.step({})), daemon=True)
    began = time.monotonic()
    thread.start()
    eventually(lambda: len(red.asked) == 3)
    question, future = red.asked[1]
    future.set_result(first_legal(question))
    thread.join(30)
    close()
    assert time.monotonic() < began + 30
    assert stepped[0].turn[:, 0].tolist() == [False, True, False]  # in this very step


def test_slots_of_one_seat_wait_for_each_other() -> None:
    """Gymnasium steps all its slots together; the actions are real numbers."""
    player = Recording(at_once=False)
    table, close = table_of("rookery.testing.envs:ContinuousBandit", 3, player)

    def answer() -> None:
        for number in range(3):
            eventually(lambda n=number: len(player.asked) == 3 and len(taken()) == n)
            player.asked[number][1].set_result(PlayerAnswer(np.array([number / 4], np.float32)))

    def taken() -> Any:  # the table has seen that they came, and goes on waiting
        return table._questions._answers

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    moved = table.step({})
    thread.join(30)
    close()
    assert moved.actions[0].tolist() == [[0.0], [0.25], [0.5]]
    assert moved.reward[:, 0].tolist() == [-0.25, -0.0625, 0.0]


def test_a_failed_answer_ends_the_run_with_its_error() -> None:
    red = Recording(at_once=False)
    table, close = table_of(GAME, 1, red, "script:first-legal", "script:first-legal")
    table._questions.ask(table.env, table.views, table.turn)
    red.asked[0][1].set_exception(RuntimeError("its own"))
    with pytest.raises(RuntimeError, match="its own"):
        table.step({})
    close()


# --- the end of a game ---------------------------------------------------------------------------


def test_players_are_told_of_each_game_once_with_its_totals() -> None:
    red, blue = Recording(), Recording()
    table, close = table_of(GAME, 2, red, "script:first-legal", blue)
    play(table, 10 * 3)
    close()
    for player, seat in ((red, "red"), (blue, "blue")):
        games = [over.game for over in player.told]
        assert len(games) == len(set(games)) == 2 * 3
        assert {over.seats for over in player.told} == {(seat,)}
        assert {over.how for over in player.told} == {"terminated"}  # blue's end is the last
    games, _ = table.book.take()
    totals = [tuple(over.totals.values()) for over in red.told]
    assert sorted(totals) == sorted(game.totals for game in games)


def test_a_player_in_several_seats_is_told_once() -> None:
    both = Recording()
    table, close = table_of(CONNECT_FOUR, 1, both, both)
    play(table, 60)
    close()
    assert both.told and len({over.game for over in both.told}) == len(both.told)
    assert {len(over.seats) for over in both.told} == {2}


def test_a_restart_and_a_close_break_games_off() -> None:
    red = Recording(at_once=False)
    table, close = table_of(GAME, 3, red, "script:first-legal", "script:first-legal")
    table._questions.ask(table.env, table.views, table.turn)
    old = [future for _, future in red.asked]
    table.restart(1)
    assert all(future.cancelled() for future in old)
    assert {over.how for over in red.told} == {"restarted"}
    assert {over.game for over in red.told} == {"t.0.1", "t.1.1", "t.2.1"}
    red.at_once = True
    play(table, 1)
    table.close()
    table.close()
    close()
    assert [over.how for over in red.told[3:]] == ["closed"] * 3


def test_what_a_player_raises_at_the_end_is_logged_and_goes_no_further(
    caplog: pytest.LogCaptureFixture,
) -> None:
    red = Failing()
    table, close = table_of(GAME, 1, red, "script:first-legal", "script:first-legal")
    play(table, 11)
    close()
    assert len(red.told) == 1 and "I hate losing" in caplog.text


def test_a_fallback_is_counted_as_missed_and_a_stand_in_is_not() -> None:
    deciders = iter(["player", "fallback", "stand-in", "fallback"])

    class Replaced(Recording):
        def ask(self, question: Question) -> Future[PlayerAnswer]:
            future: Future[PlayerAnswer] = Future()
            action = first_legal(question).action
            future.set_result(PlayerAnswer(action, decided_by=next(deciders)))  # type: ignore[arg-type]
            return future

    table, close = table_of(GAME, 1, "script:first-legal", "script:first-legal", Replaced())
    play(table, 10)
    close()
    ((game,), _) = table.book.take()
    assert game.missed == (0, 0, 2)
