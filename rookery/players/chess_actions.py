"""Chess moves as the action numbers of pettingzoo:chess_v6.

An action is a square to leave, by file and rank, and one of 73 ways to leave it: 7 distances in
each of 8 directions as a queen moves, 8 jumps of a knight, and 9 promotions to less than a queen.
The one to move always plays up the board: Black's moves are mirrored, rank 8 for rank 1.
"""

from __future__ import annotations

from itertools import product

ENVIRONMENT = "pettingzoo:chess_v6"

_QUEEN = {step: i for i, step in enumerate(s for s in product((-1, 0, 1), repeat=2) if any(s))}
_KNIGHT = {
    jump: i
    for i, jump in enumerate(
        j for j in product(range(-2, 3), repeat=2) if sorted(map(abs, j)) == [1, 2]
    )
}
_QUEEN_STEPS, _KNIGHT_JUMPS = tuple(_QUEEN), tuple(_KNIGHT)
_KNIGHTS_BEGIN, _PROMOTIONS_BEGIN = 7 * len(_QUEEN), 7 * len(_QUEEN) + len(_KNIGHT)


def action_of(uci: str, black: bool) -> int:
    """The action of a legal move in UCI notation, such as `e2e4` or `a7a8n`."""
    file, rank = _square(uci[0:2], black)
    to_file, to_rank = _square(uci[2:4], black)
    way = _way(to_file - file, to_rank - rank, uci[4:])
    return (file * 8 + rank) * 73 + way


def uci_of(action: int, position: str) -> str:
    """The move of a legal action, in the position (FEN) where it is made."""
    board, side = position.split()[:2]
    (file, rank), way = divmod(action // 73, 8), action % 73
    promotion = ""
    if way < _KNIGHTS_BEGIN:
        (files, ranks), distance = _QUEEN_STEPS[way % 8], way // 8 + 1
        files, ranks = files * distance, ranks * distance
        if rank + ranks == 7 and _piece(board, file, 7 - rank if side == "b" else rank) in "Pp":
            promotion = "q"
    elif way < _PROMOTIONS_BEGIN:
        files, ranks = _KNIGHT_JUMPS[way - _KNIGHTS_BEGIN]
    else:
        way -= _PROMOTIONS_BEGIN
        files, ranks, promotion = way // 3 - 1, 1, "nbr"[way % 3]
    squares = ((file, rank), (file + files, rank + ranks))
    return "".join(_text(f, 7 - r if side == "b" else r) for f, r in squares) + promotion


def _text(file: int, rank: int) -> str:
    return f"{chr(ord('a') + file)}{rank + 1}"


def _piece(board: str, file: int, rank: int) -> str:
    """Of a FEN's first field, whose rows begin with rank 8 and count empty squares."""
    row = board.split("/")[7 - rank]
    return "".join(" " * int(sign) if sign.isdigit() else sign for sign in row)[file]


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
