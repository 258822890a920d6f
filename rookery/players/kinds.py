"""Every kind of player there is, as data: what `rookery players` lists and names are checked by."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.players.deferred import FALLBACKS
from rookery.players.names import Kind
from rookery.players.options import PlayerOption, choice, flag, seconds, whole
from rookery.players.scripts.connect_four import MAX_DEPTH

COMPILED_DEPTH = 4  # deeper, the arrays of a compiled minimax no longer fit beside the rollout's


@dataclass(frozen=True)
class PlayerKind:
    """One line of `rookery players`."""

    kind: Kind
    name: str  # after the colon; empty where the user names it
    example: str
    description: str
    options: tuple[PlayerOption, ...] = ()


_LATE = (
    seconds("deadline", "10", "how long a move may take"),
    choice("fallback", "random", "what plays when a move fails or comes too late", FALLBACKS),
    whole("pool", "1", "how many think at a time", 1, 64),
)

KINDS: tuple[PlayerKind, ...] = (
    PlayerKind("policy", "", "main", "a policy of this run, with its newest weights"),
    PlayerKind("league", "", "league:main", "whom the league of a policy picks, game by game"),
    PlayerKind("snapshot", "", "snapshot:RUN@340", "a version of a run's weights that was kept"),
    PlayerKind("script", "random", "script:random", "any legal action, all equally likely"),
    PlayerKind("script", "first-legal", "script:first-legal", "the first legal action"),
    PlayerKind("script", "perfect", "script:perfect", "tic-tac-toe without a mistake"),
    PlayerKind(
        "script",
        "minimax",
        "script:minimax?depth=2",
        "Connect Four, looking some plies ahead",
        (whole("depth", "2", "plies that it looks ahead", 1, MAX_DEPTH),),
    ),
    PlayerKind(
        "script",
        "",
        "script:my_package.rules:choose",
        "your own function of (observation, mask)",
        _LATE,
    ),
    PlayerKind(
        "engine",
        "",
        "engine:stockfish?level=1&time=0.05",
        "a chess engine that is installed on the machine",
        (
            whole("level", "", "Stockfish's Skill Level; not set: its full strength", 0, 20),
            whole("nodes", "", "positions that it may search in a move", 1, 10**12),
            seconds("time", "", "how long it thinks; 0.05 where nodes are not set either"),
            whole("threads", "1", "threads of one engine", 1, 1024),
            whole("hash", "16", "its table's size in MB", 1, 1 << 20),
            *_LATE,
        ),
    ),
    PlayerKind(
        "onnx",
        "",
        "onnx:exported.onnx?greedy=true",
        "a network from a file, exported from anywhere",
        (flag("greedy", "false", "the likeliest action instead of a sampled one"),),
    ),
)
