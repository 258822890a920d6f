"""Players by name: what a name stands for becomes something that decides for a seat.

Scripts, engines and files are made from their names alone. A policy, a league and a snapshot need a
run's weights: whoever has those makes them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.errors import InputError, UnknownName
from rookery.players import DeferredPlayer, Player
from rookery.players.deferred import ThinkingPlayer
from rookery.players.kinds import COMPILED_DEPTH, KINDS, PlayerKind
from rookery.players.names import PlayerName
from rookery.players.options import read_options
from rookery.players.scripts import connect_four, tic_tac_toe
from rookery.players.scripts.any_game import FirstLegalPlayer, RandomPlayer
from rookery.spaces import Categorical, Continuous, MultiCategorical, SeatSpec

__all__ = ["KINDS", "PlayerKind", "check_name", "compilable", "kind_of", "make_player"]

_DEFAULT_ENGINE_S = 0.05


def make_player(
    name: PlayerName, seat: SeatSpec, environment_id: str, xp: Any = np
) -> Player | DeferredPlayer:
    """The player, checked against the seat it is for; one line where it can't be.

    `xp` is jax.numpy for a player inside a compiled rollout, which only a `compilable` one can be.
    """
    options = read_options(name, kind_of(name).options)
    if xp is not np and not compilable(name):
        raise InputError(f"player {name} can't be part of a compiled rollout")
    match name.kind, name.name:
        case "script", script if ":" in script:
            return _make_function(name, seat, environment_id, options)
        case "script", script:
            return _make_script(script, seat, environment_id, options, xp)
        case "engine", _:
            return _make_engine(name, environment_id, options)
        case "onnx", path:
            from rookery.players.onnx import OnnxPlayer

            return OnnxPlayer(path, seat, options["greedy"])
        case kind, _:
            raise InputError(f"player {name} is a {kind}: it needs the weights of a run to play")


def check_name(name: PlayerName) -> None:
    """Refuse a name that nothing stands for, or options it doesn't take; make nothing."""
    read_options(name, kind_of(name).options)


def compilable(name: PlayerName) -> bool:
    """Can it be a JAX function, and so part of a compiled rollout? Of the kinds made here."""
    if name.kind != "script" or ":" in name.name:
        return False
    options = read_options(name, kind_of(name).options)
    return int(options.get("depth", 0)) <= COMPILED_DEPTH


def kind_of(name: PlayerName) -> PlayerKind:
    """The line of `KINDS` that describes it."""
    of_kind = [kind for kind in KINDS if kind.kind == name.kind]
    if name.kind != "script":
        return of_kind[0]
    found = "" if ":" in name.name else name.name
    for kind in of_kind:
        if kind.name == found:
            return kind
    known = [kind.name for kind in of_kind if kind.name]
    raise UnknownName("script", name.name, known, "or write module:function for your own")


def _make_script(
    script: str, seat: SeatSpec, environment_id: str, options: dict[str, Any], xp: Any
) -> Player:
    match script:
        case "random":
            return RandomPlayer(seat, xp)
        case "first-legal":
            if isinstance(seat.action, Continuous):
                raise InputError(
                    f"script:first-legal needs actions that can be counted: "
                    f"environment {environment_id} has {_actions(seat)}"
                )
            return FirstLegalPlayer(seat, xp)
        case "perfect":
            game = ("script:perfect", "tic-tac-toe", tic_tac_toe.BOARD, tic_tac_toe.ACTIONS)
            leaf = _board_leaf(seat, environment_id, *game)
            return tic_tac_toe.PerfectTicTacToe(leaf, xp)
        case _:
            game = ("script:minimax", "Connect Four", connect_four.BOARD, connect_four.ACTIONS)
            leaf = _board_leaf(seat, environment_id, *game)
            return connect_four.MinimaxConnectFour(leaf, options["depth"], xp)


def _make_function(
    name: PlayerName, seat: SeatSpec, environment_id: str, options: dict[str, Any]
) -> DeferredPlayer:
    from rookery.players.function import FunctionThinker, import_function

    if not isinstance(seat.action, Categorical):
        raise InputError(
            f"{name.base} answers with one number: "
            f"environment {environment_id} has {_actions(seat)}"
        )
    function = import_function(name.name)
    thinkers = [FunctionThinker(name.base, function) for _ in range(options["pool"])]
    return ThinkingPlayer(
        name.text, "script", seat.action.n, thinkers, options["deadline"], options["fallback"]
    )


def _make_engine(name: PlayerName, environment_id: str, options: dict[str, Any]) -> DeferredPlayer:
    from rookery.players import chess_actions
    from rookery.players.engine import ENVIRONMENT, EngineOptions, EngineThinker, find_engine

    if environment_id != ENVIRONMENT:
        raise InputError(f"{name.base} plays chess only: {environment_id} is not {ENVIRONMENT}")
    time_s, nodes, deadline_s = options["time"], options["nodes"], options["deadline"]
    if time_s is None and nodes is None:
        time_s = _DEFAULT_ENGINE_S
    if time_s is not None and time_s >= deadline_s:
        raise InputError(
            f"{name.base} would think for time={time_s:g} s, "
            f"which its deadline={deadline_s:g} does not leave it"
        )
    how = EngineOptions(options["level"], nodes, time_s, options["threads"], options["hash"])
    path = find_engine(name.name)
    thinkers = [EngineThinker(name.base, path, how) for _ in range(options["pool"])]
    try:
        thinkers[0].check()
    except BaseException:
        for thinker in thinkers:
            thinker.close()
        raise
    return ThinkingPlayer(
        name.text, "engine", chess_actions.ACTIONS, thinkers, deadline_s, options["fallback"]
    )


def _board_leaf(
    seat: SeatSpec,
    environment_id: str,
    script: str,
    game: str,
    board: tuple[int, ...],
    actions: int,
) -> str:
    """Where the game's board is in an observation; a seat of another game is refused."""
    if len(seat.observation) == 1 and seat.observation[0].shape == board:
        action = seat.action
        if isinstance(action, Categorical) and action.n == actions:
            return seat.observation[0].path
    shapes = " and ".join(str(leaf.shape) for leaf in seat.observation)
    raise InputError(
        f"{script} plays {game} only: environment {environment_id} has {shapes} observations and "
        f"{_actions(seat)}, not a {board} board and {actions} actions"
    )


def _actions(seat: SeatSpec) -> str:
    match seat.action:
        case Categorical(n=n):
            return f"{n} actions"
        case MultiCategorical(sizes=sizes):
            return f"{len(sizes)} actions at a time"
        case Continuous(shape=shape):
            return f"real actions of shape {shape}"
