"""Minimax: it wins and blocks in one, looks as far as it says, and agrees with a plain search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rookery.players.scripts.connect_four import (
    MAX_DEPTH,
    MinimaxConnectFour,
    best_moves,
    rows_of,
    winning_cells,
)

WINS_IN_ONE = {
    "along a row": (3, ["xxx....", "ooox..."]),
    "up a column": (0, ["x......", "xo.....", "xo....."]),
    "along a rising diagonal": (3, ["..xo...", ".xoo...", "xoox..."]),
    "along a falling diagonal": (0, ["ox.....", "oox....", "ooxx..."]),
    "into a gap": (2, ["oo.o...", "xx.x..."]),
}


def board(rows: list[str]) -> np.ndarray:
    """(1, 6, 7, 2) from the lowest rows; x is to move."""
    drawn = [row.ljust(7, ".") for row in rows]
    full = [*["." * 7] * (6 - len(drawn)), *drawn]
    cells = np.array([list(row) for row in full])
    return np.stack([cells == "x", cells == "o"], -1)[None]


def best(planes: np.ndarray, depth: int) -> list[int]:
    return np.flatnonzero(best_moves(np, planes, depth)[0]).tolist()


@pytest.mark.parametrize("way", WINS_IN_ONE)
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
@pytest.mark.parametrize("mirrored", [False, True])
def test_it_takes_a_win_in_one(way: str, depth: int, mirrored: bool) -> None:
    column, rows = WINS_IN_ONE[way]
    planes = board(rows)
    if mirrored:
        planes, column = planes[:, :, ::-1], 6 - column
    assert column in best(planes, depth)
    won = planes[0, ..., 0].copy()
    for found in best(planes, depth):
        height = int(planes[0, :, found].any(-1).sum())
        after = won.copy()
        after[5 - height, found] = True
        assert plain_four(after)


@pytest.mark.parametrize("way", ["up a column", "along a rising diagonal", "into a gap"])
@pytest.mark.parametrize("mirrored", [False, True])
def test_it_blocks_a_loss_in_one_from_two_plies_on(way: str, mirrored: bool) -> None:
    """The same boards seen by the other side, who has no win of its own there."""
    column, rows = WINS_IN_ONE[way]
    rows = [row.translate(str.maketrans("xo", "ox")) for row in rows]
    if way == "into a gap":
        rows = ["......x", "oo.o..x"]
    planes = board(rows)
    if mirrored:
        planes, column = planes[:, :, ::-1], 6 - column
    assert best(planes, 2) == best(planes, 4) == [column]
    assert len(best(planes, 1)) > 1  # one ply doesn't see it


def test_it_sees_an_open_three_coming_at_four_plies_and_not_at_two() -> None:
    planes = board(["..x....", "..oo..x"])
    assert best(planes, 2) == [0, 1, 2, 3, 4, 5, 6]
    assert best(planes, 4) == [1, 4]


def test_where_all_is_lost_every_move_is_as_good() -> None:
    """Both ends of the row of three are open."""
    assert best(board(["..xx...", "..ooo.x"]), 4) == [0, 1, 2, 3, 4, 5, 6]


def plain_four(stones: np.ndarray) -> bool:
    for r in range(6):
        for c in range(7):
            for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
                cells = [(r + dr * i, c + dc * i) for i in range(4)]
                if all(0 <= y < 6 and 0 <= x < 7 and stones[y, x] for y, x in cells):
                    return True
    return False


def plain_values(mine: np.ndarray, theirs: np.ndarray, depth: int) -> dict[int, float]:
    """Minimax as one writes it, with discounted wins."""
    values = {}
    for column in range(7):
        height = int((mine | theirs)[:, column].sum())
        if height == 6:
            continue
        moved = mine.copy()
        moved[5 - height, column] = True
        if plain_four(moved):
            values[column] = 1.0
        elif depth == 1:
            values[column] = 0.0
        else:
            replies = plain_values(theirs, moved, depth - 1)
            values[column] = -0.99 * max(replies.values()) if replies else 0.0
    return values


def random_boards(count: int, seed: int) -> np.ndarray:
    """Positions of games nobody has won, x to move, some of them nearly full."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        stones = np.zeros((6, 7, 2), bool)
        for move in range(2 * int(rng.integers(0, 21))):
            column = rng.choice(np.flatnonzero(~stones[0].any(-1)))
            stones[5 - int(stones[:, column].any(-1).sum()), column, move % 2] = True
        if not plain_four(stones[..., 0]) and not plain_four(stones[..., 1]):
            found.append(stones)
    return np.stack(found)


@pytest.mark.parametrize(("depth", "count"), [(1, 60), (2, 40), (3, 12), (4, 2)])
def test_it_agrees_with_a_plain_search(depth: int, count: int) -> None:
    planes = random_boards(count, seed=depth)
    found = best_moves(np, planes, depth)
    for stones, moves in zip(planes, found, strict=True):
        values = plain_values(stones[..., 0], stones[..., 1], depth)
        highest = max(values.values(), default=0)
        expected = [column for column, value in values.items() if value == highest]
        assert np.flatnonzero(moves).tolist() == expected


def test_the_winning_cells_are_those_that_make_four() -> None:
    rng = np.random.default_rng(0)
    stones = rng.random((20, 6, 7)) < 0.5
    rows = winning_cells(np, rows_of(stones))
    for lane, r, c in np.ndindex(stones.shape):
        if not stones[lane, r, c] and not plain_four(stones[lane]):
            after = stones[lane].copy()
            after[r, c] = True
            assert bool(rows[r, lane] >> c & 1) == plain_four(after)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_numpy_and_jax_find_the_same_moves(depth: int) -> None:
    import jax
    import jax.numpy as jnp

    planes = random_boards(64, seed=9)
    compiled = jax.jit(lambda planes: best_moves(jnp, planes, depth))(planes)
    assert (np.asarray(compiled) == best_moves(np, planes, depth)).all()
    player = MinimaxConnectFour("", depth, jnp)
    act = jax.jit(lambda planes, key: player.act({}, {"": planes}, None, {}, key))
    chosen = act(planes, jax.random.key(1))
    expected = MinimaxConnectFour("", depth).act(
        {}, {"": planes}, None, {}, np.random.default_rng(0)
    )
    assert np.allclose(chosen.log_prob, expected.log_prob)
    assert chosen.action.dtype == expected.action.dtype == np.int32


def test_many_lanes_at_once_are_the_same_as_a_few() -> None:
    planes = random_boards(30, seed=4)
    many = np.concatenate([planes] * 20)
    whole = MinimaxConnectFour("", MAX_DEPTH - 1)._best(many)
    assert (whole[:30] == best_moves(np, planes, MAX_DEPTH - 1)).all()
    assert (whole[:30] == whole[-30:]).all()


def test_ties_are_broken_uniformly() -> None:
    empty = np.zeros((7000, 6, 7, 2), bool)
    decision = MinimaxConnectFour("", 2).act({}, {"": empty}, None, {}, np.random.default_rng(5))
    counts = np.bincount(decision.action, minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 22.5  # chi-square, 6 degrees, 0.1 %
    assert np.allclose(decision.log_prob, -np.log(7))


def play(players: tuple[Any, Any], lanes: int, seed: int) -> np.ndarray:
    """1, -1 or 0 for the first player, by lane."""
    rng, stones = np.random.default_rng(seed), np.zeros((lanes, 6, 7, 2), bool)
    results, index = np.zeros(lanes, int), np.arange(lanes)
    for move in range(42):
        mine = move % 2
        mask = ~stones[:, 0].any(-1)
        planes = stones if mine == 0 else stones[..., ::-1]
        column = players[mine].act({}, {"": planes}, mask, {}, rng).action
        going = (results == 0) & mask.any(-1)
        assert mask[going, column[going]].all()
        row = 5 - stones.any(-1).sum(1)[index, column]
        stones[index[going], row[going], column[going], mine] = True
        for lane in np.flatnonzero(going):
            if plain_four(stones[lane, ..., mine]):
                results[lane] = 1 - 2 * mine
    return results


def test_looking_further_wins_more() -> None:
    shallow, deep = MinimaxConnectFour("", 1), MinimaxConnectFour("", 4)
    score = play((deep, shallow), 20, 0).sum() - play((shallow, deep), 20, 1).sum()
    assert score > 24  # of 40


@pytest.mark.parametrize("column", range(7))
def test_an_action_is_a_column_and_row_5_the_bottom_in_both_libraries(column: int) -> None:
    import jax
    import pgx
    from pettingzoo.classic.connect_four.connect_four import raw_env

    env = pgx.make("connect_four")
    state = env.step(env.step(env.init(jax.random.key(0)), column), column)
    seen = [np.asarray(state.observation)]
    other = raw_env()
    other.reset()
    other.step(column)
    other.step(column)
    seen.append(other.observe(other.agent_selection)["observation"])
    for planes in seen:  # by the one who moved first, and is to move
        assert np.argwhere(planes[..., 0]).tolist() == [[5, column]]
        assert np.argwhere(planes[..., 1]).tolist() == [[4, column]]
