"""`script:perfect`: tic-tac-toe without a mistake.

The game is solved once in a process, when the first such player is made: 5,478 positions, each with
the moves that keep its value. A move is then a look-up, which also works in a compiled rollout. All
moves that keep the value are equally likely, so it doesn't favour a quick win over a later one, and
meets its opponent with every sound game there is.

pgx:tic_tac_toe and pettingzoo:tictactoe_v3 number the cells alike: action 3 * i + j is the cell
[i, j] of the observation, whose planes are (mine, theirs).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rookery.players import Decision
from rookery.players.choice import board_leaf, choose
from rookery.players.kinds import PlayerKind, Wanted, always
from rookery.players.member import Member
from rookery.players.scripts import Rule

BOARD, ACTIONS = (3, 3, 2), 9
_LINES = (0o007, 0o070, 0o700, 0o111, 0o222, 0o444, 0o421, 0o124)  # bits of cells: rows, columns, …
_FULL = 0o777
_POWERS = 3 ** np.arange(9)


@dataclass(frozen=True)
class PerfectTicTacToe(Rule):
    leaf: str  # where the board is in an observation
    xp: Any = np

    def decide(self, observation: dict[str, Any], mask: Any, key: Any) -> Decision:
        xp = self.xp
        planes = (observation[self.leaf] > 0).reshape(-1, ACTIONS, 2)
        legal = ~planes.any(-1) if mask is None else mask > 0
        code = (planes @ np.array([1, 2], np.int32)) @ _POWERS.astype(np.int32)
        return choose(xp, xp.asarray(best_moves())[code], legal, {}, key)


@cache
def best_moves() -> np.ndarray:
    """(3^9, 9) bool: by the board's code, which moves keep the value of the one to move.

    The code's digit i is 1 for a stone of the one to move on cell i, 2 for one of the other. No
    move of a position that can't be reached is marked, nor of one where the game is over.
    """
    table = np.zeros((3**9, 9), np.bool_)

    @cache
    def value(mine: int, theirs: int) -> int:
        """1 a win, 0 a draw, -1 a loss, for the one to move."""
        if any(theirs & line == line for line in _LINES):
            return -1
        if mine | theirs == _FULL:
            return 0
        empty = [cell for cell in range(9) if not (mine | theirs) >> cell & 1]
        values = {cell: -value(theirs, mine | 1 << cell) for cell in empty}
        best = max(values.values())
        table[_code(mine) + 2 * _code(theirs), [c for c, v in values.items() if v == best]] = True
        return best

    value(0, 0)
    table.flags.writeable = False
    return table


def _code(stones: int) -> int:
    return sum(int(_POWERS[cell]) for cell in range(9) if stones >> cell & 1)


def _make(wanted: Wanted) -> Member:
    leaf = board_leaf(wanted, "tic-tac-toe", BOARD, ACTIONS)
    return wanted.member(PerfectTicTacToe(leaf, wanted.xp))


PERFECT = PlayerKind(
    "script:perfect", "tic-tac-toe without a mistake", _make, compilable=always, outside="nothing"
)
