"""The perfect player: it never loses, draws with itself, and knows both libraries' boards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.players.scripts.any_game import RandomPlayer
from rookery.players.scripts.tic_tac_toe import PerfectTicTacToe, best_moves
from rookery.spaces import SeatSpec

LINES = np.array(
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]
)


def play(players: tuple[Any, Any], boards: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Play every lane to its end from (lanes, 9, 2) stones of both; 1, -1 or 0 for the first."""
    results, stones = np.zeros(len(boards), int), boards.copy()
    for move in range(int(stones[0].sum()), 9):
        mine, theirs = move % 2, 1 - move % 2
        planes = stones[..., [mine, theirs]].reshape(-1, 3, 3, 2)
        free = ~stones.any(-1)
        action = players[mine].act({}, {"": planes}, free, {}, rng).action
        going = results == 0
        assert free[going, action[going]].all()
        stones[going, action[going], mine] = True
        won = stones[..., mine][:, LINES].all(-1).any(-1)
        results[going & won] = 1 - 2 * mine
    return results


def test_it_never_loses_to_random_play_from_either_seat(tic_tac_toe: SeatSpec) -> None:
    rng, empty = np.random.default_rng(0), np.zeros((1000, 9, 2), bool)
    perfect, random = PerfectTicTacToe(""), RandomPlayer(tic_tac_toe)
    first, second = play((perfect, random), empty, rng), play((random, perfect), empty, rng)
    assert first.min() == 0 and first.mean() > 0.8
    assert second.max() == 0 and second.mean() < -0.6


def test_it_never_loses_to_any_line_of_play_and_draws_with_itself() -> None:
    """Every answer of the other to every move that it may choose, from both seats."""
    table, powers = best_moves(), 3 ** np.arange(9)

    def explore(
        mine: frozenset[int], theirs: frozenset[int], perfect: bool, seen: set[Any]
    ) -> None:
        if (mine, theirs, perfect) in seen:
            return
        seen.add((mine, theirs, perfect))
        if any(set(line) <= theirs for line in LINES):
            assert not perfect, f"lost with {sorted(mine)} against {sorted(theirs)}"
            return
        moves = set(range(9)) - mine - theirs
        if perfect and moves:
            code = sum(powers[c] for c in mine) + 2 * sum(powers[c] for c in theirs)
            chosen = set(np.flatnonzero(table[code]))
            assert chosen and chosen <= moves
            moves = chosen
        for cell in moves:
            explore(theirs, mine | {cell}, not perfect, seen)

    explore(frozenset(), frozenset(), True, set())
    explore(frozenset(), frozenset(), False, set())
    perfect = PerfectTicTacToe("")
    results = play((perfect, perfect), np.zeros((500, 9, 2), bool), np.random.default_rng(1))
    assert (results == 0).all()


def test_ties_are_broken_uniformly_and_the_log_probability_says_so() -> None:
    """All nine openings draw, so all are as good."""
    lanes = 9000
    decision = PerfectTicTacToe("").act(
        {}, {"": np.zeros((lanes, 3, 3, 2), np.int8)}, None, {}, np.random.default_rng(2)
    )
    counts = np.bincount(decision.action, minlength=9)
    assert ((counts - 1000) ** 2 / 1000).sum() < 26.1  # chi-square, 8 degrees, 0.1 %
    assert np.allclose(decision.log_prob, -np.log(9))


def test_numpy_and_jax_choose_among_the_same_moves() -> None:
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(3)
    stones = rng.integers(0, 3, (400, 9))
    planes = np.stack([stones == 1, stones == 2], -1).reshape(-1, 3, 3, 2)
    player = PerfectTicTacToe("", jnp)
    act = jax.jit(lambda planes, key: player.act({}, {"": planes}, None, {}, key))
    expected = PerfectTicTacToe("").act({}, {"": planes}, None, {}, rng)
    found = act(planes, jax.random.key(0))
    assert np.allclose(found.log_prob, expected.log_prob)
    code = stones @ 3 ** np.arange(9)
    best = np.where(best_moves()[code].any(-1, keepdims=True), best_moves()[code], stones == 0)
    lanes = np.flatnonzero(best.any(-1))
    assert best[lanes, np.asarray(found.action)[lanes]].all()


@pytest.mark.parametrize("action", range(9))
def test_a_cell_is_the_action_of_the_same_number_in_pgx(action: int) -> None:
    import jax
    import pgx

    env = pgx.make("tic_tac_toe")
    state = env.step(env.init(jax.random.key(0)), action)
    theirs = np.asarray(state.observation)[..., 1]  # now seen by the other
    assert np.flatnonzero(theirs.reshape(9)).tolist() == [action]


@pytest.mark.parametrize("action", range(9))
def test_a_cell_is_the_action_of_the_same_number_in_pettingzoo(action: int) -> None:
    from pettingzoo.classic.tictactoe.tictactoe import raw_env

    env = raw_env()
    env.reset()
    env.step(action)
    seen = env.observe(env.agent_selection)
    assert np.flatnonzero(seen["observation"][..., 1].reshape(9)).tolist() == [action]
    assert np.flatnonzero(seen["action_mask"] == 0).tolist() == [action]


def test_it_takes_the_win_in_both_libraries() -> None:
    """Mine 0 1, theirs 3 4: cell 2 wins, in a plane of booleans as in one of numbers."""
    for dtype in (np.bool_, np.int8):
        planes = np.zeros((1, 9, 2), dtype)
        planes[0, [0, 1], 0] = planes[0, [3, 4], 1] = 1
        board = planes.reshape(1, 3, 3, 2)
        mask = (~planes.any(-1)).astype(dtype)
        decision = PerfectTicTacToe("").act({}, {"": board}, mask, {}, np.random.default_rng(0))
        assert decision.action.tolist() == [2]
        assert decision.log_prob.tolist() == [0.0]


def test_a_lane_without_a_move_is_answered_all_the_same() -> None:
    """Where it isn't its turn the mask is empty; the other lanes must not suffer."""
    empty = np.zeros((2, 3, 3, 2), bool)
    mask = np.array([[False] * 9, [False] * 8 + [True]])
    decision = PerfectTicTacToe("").act({}, {"": empty}, mask, {}, np.random.default_rng(0))
    assert decision.action[1] == 8
    assert np.isfinite(decision.log_prob).all()
