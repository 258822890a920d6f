"""The fleet in a thread of its own, beside the event loop that answers people."""

from __future__ import annotations

import logging
import os
import threading
import traceback
from collections.abc import Callable

from rookery.config.models import RunConfig
from rookery.control.fleet import Fleet
from rookery.control.home import Home
from rookery.control.launch import launch_of
from rookery.errors import RookeryError
from rookery.launchers import Launcher, make_launcher
from rookery.launchers.ray.link import Links

logger = logging.getLogger(__name__)

DIED = 70  # exit code of a server whose fleet died of a bug
TROUBLED_PAUSE_S = 1.0
NICENESS = 5  # of workers: an answer takes a millisecond and should not wait for a time slice


class FleetThread:
    """Steps the fleet until it is closed.

    Workers end when the thread that started them does (it holds the other end of their lives), so
    one thread starts them all.
    """

    def __init__(self, home: Home, cpus: Callable[[], int], links: Links) -> None:
        self._home, self._cpus, self._links = home, cpus, links
        self._fleet: Fleet | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fleet")

    @property
    def queue(self) -> list[str]:
        return self._fleet.queue if self._fleet is not None else []

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Let the workers checkpoint and end; their runs go on with the next server."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._fleet = Fleet(self._home, self._cpus, self._launch)
            while not self._over.is_set():
                self._over.wait(self._step(self._fleet))
            self._fleet.leave()
        except BaseException:  # noqa: BLE001 nothing carries the runs any more: end loudly
            traceback.print_exc()
            os._exit(DIED)

    def _launch(self, run: str, config: RunConfig) -> Launcher:
        return make_launcher(launch_of(self._home, run, config, self._links, niceness=NICENESS))

    def _step(self, fleet: Fleet) -> float:
        try:
            fleet.step()
        except RookeryError as error:  # a bus that is away for a while
            logger.warning("the runs cannot be seen to: %s", error)
            return TROUBLED_PAUSE_S
        return fleet.pause_s
