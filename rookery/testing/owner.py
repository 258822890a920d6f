"""An owner without workers: answers the commands of every run of a home, and does nothing else.

    with control_plane_of(path, settings) as plane: ...

For tests of what stands before the controller: what is asked, judged and said, at no cost.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from rookery.control.home import Home
from rookery.control.run_log import RunLog
from rookery.control.settings import Settings
from rookery.server.control_plane import ControlPlane
from rookery.server.feed.follower import Follower
from rookery.server.nodes import AskNodes
from rookery.server.sandbox import Sandbox

TICK_S = 0.005
CLOSE_S = 10.0
READY_S = 20.0


class StandInOwner:
    """Judges commands in a thread of its own, as a controller does."""

    def __init__(self, home: Home) -> None:
        self.queue: list[str] = []  # nobody waits here
        self._home = home
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stand-in-owner")

    def __enter__(self) -> StandInOwner:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(CLOSE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        log = RunLog(self._home)
        while not self._over.wait(TICK_S):
            log.read()
            for run, state in list(log.states.items()):
                if state.commands:
                    log.answer(run)


@contextlib.contextmanager
def control_plane_of(
    path: Path,
    settings: Settings | None = None,
    look: Callable[[Home], Sandbox] | None = None,
    owned: bool = True,
    ask_nodes: AskNodes | None = None,
) -> Iterator[ControlPlane]:
    """The plane of a home that follows its log; `owned`: somebody answers; `ask_nodes`: of the
    cluster that it is on, else there is this machine."""
    home = Home(path)
    follower = Follower(home, interval_s=TICK_S)
    follower.start()
    try:
        assert follower.ready.wait(READY_S)
        with StandInOwner(home) if owned else contextlib.nullcontext() as owner:
            sandbox = look(home) if look is not None else None
            yield ControlPlane(
                home,
                follower,
                settings or Settings(),
                fleet=owner,
                sandbox=sandbox,
                ask_nodes=ask_nodes,
            )
    finally:
        follower.close()
        home.close()
