"""How the learners of one run find each other, and how they end when one of them is gone.

    lines, coordinator = call(bus, run, generation, size, host, lost, stopped)     # the leader
    line, welcome = answer(bus, index, lost, stopped)                              # a follower

The leader, learner-0, listens on its own machine and says on the run's bus where, with a word that
is good for its generation alone; followers come and say it. From then on each pair has a line, and
whoever loses it ends: an update that waits for somebody who is gone would wait for ever.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable

from rookery.bus import Bus, Outgoing
from rookery.errors import CrewLost, MessageError
from rookery.learner.generations import newest_generation
from rookery.learner.line import Line, receive, send
from rookery.messages import (
    CREW_KEY,
    MODEL_UPDATES,
    CrewCalled,
    decode_or_none,
    encode_json,
)
from rookery.messages.crew import MOST_HELLO_BYTES, Hello, Welcome, decode_crew, encode_crew
from rookery.worker import LEFT_ALONE
from rookery.worker.process import exit_code

FORM_S = 120.0  # for all followers to come
CALL_S = 1800.0  # for the leader to call, as long as a worker may start
LOOK_S = 0.1  # between looks for a leader, or for whoever asks to stop
HELLO_S = 5.0  # for a stranger to say who they are
GRACE_S = 1.0  # for a learner to end by itself, once it knows


class Bond:
    """What ties a learner to its crew: when another is gone, it ends too.

    Whoever waits in a collective cannot be told, so the process itself is ended.
    """

    def __init__(self, end: Callable[[int], object] = os._exit) -> None:
        self._end = end
        self._known = threading.Event()
        self._over = threading.Event()
        self._why = ""

    def lose(self, why: str) -> None:
        """Called by the thread of a line."""
        if self._over.is_set() or self._known.is_set():
            return
        self._why = why
        self._known.set()
        if not self._over.wait(GRACE_S):
            print(f"rookery: {why}", file=sys.stderr, flush=True)
            self._end(LEFT_ALONE)

    def check(self) -> bool:
        """Never true; raises once somebody is gone. Looked at between two updates."""
        if self._known.is_set():
            raise CrewLost(self._why)
        return False

    def explain(self, error: Exception) -> Exception:
        """An error of a collective or a line, by what led to it, if that is somebody's end."""
        return CrewLost(self._why) if self._known.wait(GRACE_S / 2) else error

    def loosen(self) -> None:
        """Nobody is waited for any more."""
        self._over.set()


def end_without_farewell(error: BaseException) -> None:
    """JAX takes leave of all others when a process ends, and would wait for those that are gone."""
    atexit.register(os._exit, exit_code(error))


def call(
    bus: Bus,
    run: str,
    generation: int,
    size: int,
    host: str,
    bond: Bond,
    stopped: Callable[[], bool],
) -> tuple[list[Line], str]:
    """The leader's lines, in the followers' order, and where their collectives will meet."""
    token = secrets.token_hex(16)
    with socket.create_server((host, 0), backlog=size) as listener:
        called = CrewCalled(
            generation=generation, size=size, host=host, port=_port(listener), token=token
        )
        headers = {"kind": "crew", "run": run}
        bus.publish([Outgoing(MODEL_UPDATES, encode_json(called), CREW_KEY, headers)])
        came = _gather(listener, size, token, stopped)
    lines = [Line(came[index], f"learner-{index}", bond.lose) for index in sorted(came)]
    coordinator = f"{host}:{_free_port(host)}"
    for line in lines:
        line.send(encode_crew(Welcome(size, generation, coordinator)))
    return lines, coordinator


def _gather(
    listener: socket.socket, size: int, token: str, stopped: Callable[[], bool]
) -> dict[int, socket.socket]:
    listener.settimeout(LOOK_S)
    came: dict[int, socket.socket] = {}
    until = time.monotonic() + FORM_S
    while len(came) < size - 1:
        if stopped():
            raise CrewLost("asked to stop before all learners were there")
        if time.monotonic() > until:
            missing = ", ".join(f"learner-{i}" for i in range(1, size) if i not in came)
            raise TimeoutError(f"{missing} did not come within {FORM_S:.0f} s")
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        index = _introduced(connection, token)
        if index in range(1, size):
            came[index] = connection
        else:
            connection.close()
    return came


def _introduced(connection: socket.socket, token: str) -> int:
    """Who it is; -1 for a stranger."""
    connection.settimeout(HELLO_S)
    try:
        word = decode_crew(receive(connection, MOST_HELLO_BYTES)).word
    except (OSError, MessageError):
        return -1
    if isinstance(word, Hello) and secrets.compare_digest(word.token, token):
        return word.index
    return -1


def answer(
    bus: Bus, index: int, bond: Bond, stopped: Callable[[], bool]
) -> tuple[Line, Welcome, str] | None:
    """A follower's line, what it was welcomed with, and its own address; None: asked to stop.

    Only the leader of the newest generation is gone to. The word of one that is gone stays on the
    bus: nobody listens there, and a new one will call.
    """
    until = time.monotonic() + CALL_S
    while not stopped():
        if time.monotonic() > until:
            raise TimeoutError(f"learner-0 did not call within {CALL_S:.0f} s")
        record = bus.newest(MODEL_UPDATES, CREW_KEY)
        called = decode_or_none(record.payload, CrewCalled) if record is not None else None
        if called is not None and called.generation == newest_generation(bus):
            line = _go_to(called, index, bond)
            if line is not None:
                return line
        time.sleep(LOOK_S)
    return None


def _go_to(called: CrewCalled, index: int, bond: Bond) -> tuple[Line, Welcome, str] | None:
    try:
        connection = socket.create_connection((called.host, called.port), HELLO_S)
    except OSError:
        return None
    here = str(connection.getsockname()[0])
    try:
        send(connection, encode_crew(Hello(called.token, index)))
    except OSError:
        connection.close()
        return None
    line = Line(connection, "learner-0", bond.lose)
    welcome = line.receive(FORM_S)
    bond.check()
    if welcome is None or not isinstance(welcome.word, Welcome):
        raise CrewLost("learner-0 gave no welcome")
    return line, welcome.word, here


def _free_port(host: str) -> int:
    """One that nobody listens on now. Whoever takes it first is found out: the group cannot meet,
    ends, and begins anew."""
    with socket.create_server((host, 0)) as found:
        return _port(found)


def _port(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port
