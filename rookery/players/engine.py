"""`engine:stockfish`: a chess engine in a process of its own, spoken to in UCI.

Only the owner of a machine says which program is run: an engine is looked for in the variable
`ROOKERY_ENGINE_<NAME>`, on the PATH and among Debian's games, and a player's name, which may come
from far away, only picks one of those. python-chess carries the conversation. It is under the GPL,
so this is the one file that imports it, and only when an engine is asked for.

An engine that dies is started again and asked again; one that doesn't answer by the deadline is
killed. Engines end with this process, however that ends: their input ends then, and so do they.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Container, Coroutine, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from rookery.envs.failures import first_line
from rookery.errors import InputError, MissingExtra, UnknownName
from rookery.players import PlayerAnswer, Question
from rookery.players.chess_actions import ENVIRONMENT, action_of
from rookery.players.deferred import OPTIONS, MoveFailed, ThinkingPlayer, too_late
from rookery.players.kinds import PlayerKind, Wanted
from rookery.players.member import Member
from rookery.players.options import seconds, whole

if TYPE_CHECKING:
    import chess
    import chess.engine

_VARIABLE = "ROOKERY_ENGINE_"
_KNOWN = {"stockfish": "apt install stockfish"}
_GAMES = "/usr/games"  # where Debian puts engines, often not on the PATH of a service
_ATTEMPTS = 3  # starts of an engine in one move
_START_S, _END_S = 20.0, 5.0
_DEFAULT_S = 0.05

T = TypeVar("T")


@dataclass(frozen=True)
class EngineOptions:
    """How strong an engine plays, and what it may use."""

    level: int | None  # Stockfish's Skill Level; None: its full strength
    nodes: int | None
    time_s: float | None
    threads: int
    hash_mb: int


def find_engine(name: str) -> str:
    """The program's path, or one line that says how to come by it."""
    variable = _VARIABLE + name.upper().replace("-", "_").replace(".", "_")
    chosen = os.environ.get(variable)
    if chosen:
        if shutil.which(chosen) is None:
            raise InputError(f"engine {name}: {variable} is {chosen!r}, which is not a program")
        return chosen
    if name not in _KNOWN:
        named = [v[len(_VARIABLE) :].lower() for v in os.environ if v.startswith(_VARIABLE)]
        raise UnknownName("engine", name, [*_KNOWN, *named], f"or set {variable} to its path")
    found = shutil.which(name) or shutil.which(name, path=_GAMES)
    if found is None:
        raise InputError(
            f"engine {name} is not installed: {_KNOWN[name]}, or set {variable} to its path"
        )
    return found


class EngineThinker:
    """One engine process, started when it is first needed, on an event loop in its own thread.

    The `async` methods run on that loop only, so that the process has one owner.
    """

    def __init__(self, name: str, path: str, options: EngineOptions) -> None:
        try:
            import chess.engine
        except ModuleNotFoundError as error:
            raise MissingExtra(f"player {name}", "chess") from error
        self._name, self._path, self._options = name, path, options
        self._limit = chess.engine.Limit(time=options.time_s, nodes=options.nodes)
        self._transport: asyncio.SubprocessTransport | None = None
        self._protocol: chess.engine.UciProtocol | None = None
        self._closed = self._stopped = False
        self._lock = threading.Lock()  # nothing may be put on the loop once it stops
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name=name, daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the engine that runs now."""
        return None if self._transport is None else self._transport.get_pid()

    def check(self) -> None:
        """Start it once, so that what can't work is said before a game begins."""
        import chess.engine

        try:
            self._wait_for(self._running(), _START_S)
        except (chess.engine.EngineError, OSError, TimeoutError) as error:
            why = "it does not answer" if isinstance(error, TimeoutError) else first_line(error)
            raise InputError(
                f"player {self._name}: {self._path} does not start as a UCI engine: {why}"
            ) from error

    def think(self, question: Question, deadline_s: float) -> PlayerAnswer:
        import chess

        if question.position is None:
            raise MoveFailed("plays from a position in FEN, and its environment gave none")
        board = chess.Board(question.position)
        try:
            move = self._wait_for(self._move(board), deadline_s)
        except TimeoutError as error:
            self._wait_for(self._discard(), _END_S)
            raise too_late(deadline_s) from error
        return PlayerAnswer(action_of(move.uci(), board.turn == chess.BLACK))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._wait_for(self._discard(), _END_S)
        with self._lock:
            self._stopped = True
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)

    def _run_loop(self) -> None:
        """Until `close`; a move under way is cancelled then, so that who waits for it goes on."""
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left))
        self._loop.close()

    def _wait_for(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Run it on the loop; TimeoutError when it takes longer."""
        with self._lock:
            if self._stopped:
                work.close()
                raise MoveFailed("was closed")
            limited = asyncio.wait_for(work, timeout_s)
            running = asyncio.run_coroutine_threadsafe(limited, self._loop)
        try:
            return running.result()
        except CancelledError as error:
            raise MoveFailed("was closed") from error

    async def _move(self, board: chess.Board) -> chess.Move:
        """Ask until it answers; an engine that died since, or dies over it, is replaced."""
        import chess.engine

        for _ in range(_ATTEMPTS):
            try:
                protocol = await self._running()
                move = (await protocol.play(board, self._limit)).move
            except (chess.engine.EngineError, OSError) as error:
                failure = first_line(error)
                await self._discard()
            else:
                if move is None:
                    raise MoveFailed("found no move")
                return move
        raise MoveFailed(f"failed {_ATTEMPTS} times in one move: {failure}")

    async def _running(self) -> chess.engine.UciProtocol:
        import chess.engine

        if self._closed:
            raise MoveFailed("was closed")
        if self._protocol is None:
            self._transport, self._protocol = await chess.engine.UciProtocol.popen(
                self._path,
                setpgrp=True,  # Ctrl-C is for us; we end the engine
            )
            await self._protocol.initialize()
            await self._protocol.configure(self._settings(self._protocol.options))
        return self._protocol

    def _settings(self, has: Container[str]) -> dict[str, int | None]:
        options = self._options
        if options.level is not None and "Skill Level" not in has:
            raise InputError(f"player {self._name}: this engine has no Skill Level, so no level")
        wanted = {"Threads": options.threads, "Hash": options.hash_mb}
        if options.level is not None:
            wanted["Skill Level"] = options.level
        return {key: value for key, value in wanted.items() if key in has}

    async def _discard(self) -> None:
        """Kill the process; the next move starts another."""
        transport, protocol = self._transport, self._protocol
        self._transport = self._protocol = None
        if transport is not None and protocol is not None:
            transport.close()  # which kills it, and drops what it still says
            await protocol.returncode


def _make(wanted: Wanted) -> Member:
    name, options = wanted.name, wanted.options
    if wanted.environment_id != ENVIRONMENT:
        raise InputError(
            f"{name.base} plays chess only: {wanted.environment_id} is not {ENVIRONMENT}"
        )
    how, path = _how(name.base, options), find_engine(name.name)
    thinkers = [EngineThinker(name.base, path, how) for _ in range(options["pool"])]
    try:
        thinkers[0].check()
    except BaseException:
        for thinker in thinkers:
            thinker.close()
        raise
    return wanted.member(ThinkingPlayer(wanted, thinkers))


def _how(name: str, options: Mapping[str, Any]) -> EngineOptions:
    time_s, nodes, deadline_s = options["time"], options["nodes"], options["deadline"]
    if time_s is None and nodes is None:
        time_s = _DEFAULT_S
    if time_s is not None and time_s >= deadline_s:
        raise InputError(
            f"{name} would think for time={time_s:g} s, "
            f"which its deadline={deadline_s:g} does not leave it"
        )
    return EngineOptions(options["level"], nodes, time_s, options["threads"], options["hash"])


ENGINE = PlayerKind(
    "engine:stockfish?level=1&time=0.05",
    "a chess engine that is installed on the machine",
    _make,
    (
        whole("level", "", "Stockfish's Skill Level; not set: its full strength", 0, 20),
        whole("nodes", "", "positions that it may search in a move", 1, 10**12),
        seconds("time", "", "how long it thinks; 0.05 where nodes are not set either"),
        whole("threads", "1", "threads of one engine", 1, 1024),
        whole("hash", "16", "its table's size in MB", 1, 1 << 20),
        *OPTIONS,
    ),
    form="write engine:NAME",
    outside="binaries",
)
