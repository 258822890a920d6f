"""`script:minimax`: Connect Four by looking a few plies ahead.

A win is worth more the sooner it comes, a loss less; everything that lies beyond the last ply
counts as even, and ties are broken uniformly. All lanes and all lines of play are looked at
together, as axes of an array, without a cut-off: it costs 7^depth, but no Python loop over lanes
and no branch, so that it runs in numpy as in a compiled rollout.

What makes it quick: a row of the board is one byte, so that one operation looks at seven cells,
and boards come last in every array (rows, M), so that it looks at them side by side. For a side's
stones a map of the cells that would complete four answers "does this drop win?" for every column at
once; it changes only when that side moves, so that the last two plies need no new board at all.

pgx:connect_four and pettingzoo:connect_four_v3 draw the board alike: the observation's planes are
(mine, theirs), its row 5 is the bottom, and action c drops a stone into column c.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rookery.players import Decision
from rookery.players.choice import board_leaf, choose
from rookery.players.kinds import PlayerKind, Wanted
from rookery.players.member import Member
from rookery.players.options import whole
from rookery.players.scripts import Rule

BOARD, ACTIONS = (6, 7, 2), 7
MAX_DEPTH = 6
COMPILED_DEPTH = 4  # deeper, the arrays of a compiled minimax no longer fit beside the rollout's
_ROWS, _COLUMNS = BOARD[:2]
_BITS = np.uint8(1) << np.arange(_COLUMNS, dtype=np.uint8)  # a column's bit in a row
_ROW = np.uint8(2**_COLUMNS - 1)
_DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))  # (rows, columns) to the next cell of a line
_ILLEGAL = np.int8(-100)  # below every value
_BOARDS_AT_ONCE = 20_000  # of the last expansion: bounds memory, and stays near the caches


@dataclass(frozen=True)
class MinimaxConnectFour(Rule):
    leaf: str  # where the board is in an observation
    depth: int  # plies, its own and the other's, 1 to MAX_DEPTH
    xp: Any = np

    def decide(self, observation: dict[str, Any], mask: Any, key: Any) -> Decision:
        planes = observation[self.leaf] > 0
        legal = ~planes[:, 0].any(-1) if mask is None else mask > 0
        return choose(self.xp, self._best(planes), legal, {}, key)

    def _best(self, planes: Any) -> Any:
        """(lanes, 7) bool; numpy, which holds every step in memory, takes some lanes at a time."""
        lanes = max(1, _BOARDS_AT_ONCE // _COLUMNS ** max(0, self.depth - 2))
        if self.xp is not np or len(planes) <= lanes:
            return best_moves(self.xp, planes, self.depth)
        parts = range(0, len(planes), lanes)
        return np.concatenate([best_moves(np, planes[i : i + lanes], self.depth) for i in parts])


class _Side(NamedTuple):
    stones: Any  # (6, M) uint8
    wins: Any  # (6, M) uint8: a stone here would make four, if the cell is free


def best_moves(xp: Any, planes: Any, depth: int) -> Any:
    """(N, 7) bool: the legal moves of the highest value. `planes` are (N, 6, 7, 2) bool."""
    mine, theirs = rows_of(planes[..., 0]), rows_of(planes[..., 1])
    mover = _Side(mine, winning_cells(xp, mine))
    other = _Side(theirs, winning_cells(xp, theirs) if depth > 1 else theirs)
    values = _values(xp, mover, other, depth)
    return ((values == _highest(xp, values)) & (values > _ILLEGAL)).T


def rows_of(stones: Any) -> Any:
    """(N, 6, 7) bool as (6, N) bytes."""
    return (stones * _BITS).sum(-1).astype(np.uint8).T


def winning_cells(xp: Any, stones: Any) -> Any:
    """(6, M): the cells where one more stone would make four in a row."""
    padded = xp.pad(stones, ((3, 3), (0, 0)))

    def neighbour(rows: int, columns: int) -> Any:
        """At each cell, the one so many rows below and columns to the right; 0 off the board."""
        moved = padded[3 + rows : 3 + rows + _ROWS]
        if columns == 0:
            return moved
        return moved >> np.uint8(columns) if columns > 0 else moved << np.uint8(-columns)

    found = xp.zeros_like(stones)
    for rows, columns in _DIRECTIONS:
        ahead, ahead_2, ahead_3 = (neighbour(rows * i, columns * i) for i in (1, 2, 3))
        back, back_2, back_3 = (neighbour(-rows * i, -columns * i) for i in (1, 2, 3))
        found = found | (ahead & ahead_2 & (ahead_3 | back)) | (back & back_2 & (back_3 | ahead))
    return found & _ROW


def _values(xp: Any, mover: _Side, other: _Side, depth: int) -> Any:
    """(7, M): what each column is worth to the mover, by the plies that are left at its end.

    So a win at once is `depth`, one two plies later `depth - 2`, a loss the negative, 0 neither.
    Whole numbers keep ties exact where discounted ones would lean on rounding.
    """
    taken = mover.stones | other.stones
    floor = xp.concatenate([taken[1:], xp.full_like(taken[:1], _ROW)])
    rests = floor & ~taken  # the cells where a stone would come to rest
    if depth == 1:
        later: Any = np.int8(0)
    elif depth == 2:
        later = -_loses(xp, rests, other.wins).astype(np.int8)
    else:
        later = -_replies(xp, mover, other, rests, depth - 1)
    values = xp.where(_by_column(_any_row(mover.wins & rests)), np.int8(depth), later)
    return xp.where(_by_column(_any_row(rests)), values, _ILLEGAL)


def _loses(xp: Any, rests: Any, wins: Any) -> Any:
    """(7, M): after a drop into each column, has the other a winning one?

    A drop leaves the other columns as they are, and in its own gives the cell above.
    """
    above = xp.concatenate([rests[1:], xp.zeros_like(rests[:1])])
    now, then = _any_row(wins & rests), _any_row(wins & above)
    bits = _BITS[:, None]
    return ((now & ~bits) | (then & bits)) > 0


def _replies(xp: Any, mover: _Side, other: _Side, rests: Any, depth: int) -> Any:
    """(7, M): after each of the mover's moves the best value for the other; 0 if it has none."""

    def for_each_column(rows: Any) -> Any:
        wide = (_ROWS, _COLUMNS, rows.shape[-1])
        rows = rows[:, None] if rows.ndim == 2 else rows
        return xp.broadcast_to(rows, wide).reshape(_ROWS, -1)

    stones = for_each_column(mover.stones[:, None] | (rests[:, None] & _BITS[:, None]))
    moved = _Side(stones, winning_cells(xp, stones))
    waiting = _Side(for_each_column(other.stones), for_each_column(other.wins))
    best = _highest(xp, _values(xp, waiting, moved, depth))
    return xp.where(best == _ILLEGAL, np.int8(0), best).reshape(_COLUMNS, -1)


def _any_row(rows: Any) -> Any:
    """(6, M) -> (M,): the columns that hold a cell."""
    found = rows[0]
    for row in range(1, _ROWS):
        found = found | rows[row]
    return found


def _highest(xp: Any, values: Any) -> Any:
    """(7, M) -> (M,); XLA on a CPU is slow at a reduction fused with what it reads."""
    best = values[0]
    for column in range(1, _COLUMNS):
        best = xp.maximum(best, values[column])
    return best


def _by_column(word: Any) -> Any:
    """(M,) -> (7, M) bool."""
    return (word & _BITS[:, None]) > 0


def _make(wanted: Wanted) -> Member:
    leaf = board_leaf(wanted, "Connect Four", BOARD, ACTIONS)
    return wanted.member(MinimaxConnectFour(leaf, wanted.options["depth"], wanted.xp))


MINIMAX = PlayerKind(
    "script:minimax?depth=2",
    "Connect Four, looking some plies ahead",
    _make,
    (whole("depth", "2", "plies that it looks ahead", 1, MAX_DEPTH),),
    compilable=lambda options: bool(options["depth"] <= COMPILED_DEPTH),
    outside="nothing",
)
