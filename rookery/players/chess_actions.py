"""Chess moves as the action numbers of pettingzoo:chess_v6.

An action is a square to leave, by file and rank, and one of 73 ways to leave it: 7 distances in
each of 8 directions as a queen moves, 8 jumps of a knight, and 9 promotions to less than a queen.
The one to move always plays up the board: Black's moves are mirrored, rank 8 for rank 1.
"""

from __future__ import annotations

from itertools import product

ACTIONS = 8 * 8 * 73

_QUEEN = {step: i for i, step in enumerate(s for s in product((-1, 0, 1), repeat=2) if any(s))}
_KNIGHT = {
    jump: i
    for i, jump in enumerate(
        j for j in product(range(-2, 3), repeat=2) if sorted(map(abs, j)) == [1, 2]
    )
}
_KNIGHTS_BEGIN, _PROMOTIONS_BEGIN = 7 * len(_QUEEN), 7 * len(_QUEEN) + len(_KNIGHT)


def action_of(uci: str, black: bool) -> int:
    """The action of a legal move in UCI notation, such as `e2e4` or `a7a8n`."""
    file, rank = _square(uci[0:2], black)
    to_file, to_rank = _square(uci[2:4], black)
    way = _way(to_file - file, to_rank - rank, uci[4:])
    return (file * 8 + rank) * 73 + way


def _square(text: str, black: bool) -> tuple[int, int]:
    rank = int(text[1]) - 1
    return ord(text[0]) - ord("a"), 7 - rank if black else rank


def _way(files: int, ranks: int, promotion: str) -> int:
    if (files, ranks) in _KNIGHT:
        return _KNIGHTS_BEGIN + _KNIGHT[files, ranks]
    if promotion in ("n", "b", "r"):
        return _PROMOTIONS_BEGIN + 3 * (files + 1) + "nbr".index(promotion)
    distance = max(abs(files), abs(ranks))
    return (distance - 1) * len(_QUEEN) + _QUEEN[files // distance, ranks // distance]
