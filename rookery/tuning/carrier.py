"""Who carries the runs of a sweep: the server of the home, or else a fleet in this process."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from rookery.config.models import RunConfig
from rookery.control.fleet import Fleet
from rookery.control.home import Home
from rookery.control.launch import launch_of
from rookery.control.queue import cpus_of
from rookery.control.run_state import RunState
from rookery.launchers import Launcher, make_launcher
from rookery.launchers.ray.link import Links

LOOK_S = 2.0  # until somebody looks again whether the server is still there
FAR_TICK_S = 0.1

logger = logging.getLogger(__name__)


def run_cost(config: RunConfig) -> int:
    """CPUs that a run wants, as `control.queue.cost` counts them; one at least."""
    return max(1, cpus_of(config.model_dump(), config.learner.count, config.actors.count))


def cpus_here(home: Home) -> int:
    """That runs share: the server's, or those of this machine."""
    if home.has_server():
        return home.server_cpus()
    return home.settings.cpus or os.cpu_count() or 1


class Carrier:
    """One thread's. A server that goes away is followed by a fleet of this process."""

    def __init__(
        self, home: Home, mine: Callable[[RunState], bool], cpus: int, links: Links
    ) -> None:
        self._home, self._mine, self._cpus, self._links = home, mine, cpus, links
        self._fleet: Fleet | None = None
        self._look_at = 0.0

    def step(self) -> None:
        now = time.monotonic()
        if self._fleet is None and now >= self._look_at:
            self._look_at = now + LOOK_S
            if not self._home.has_server():
                self._fleet = Fleet(self._home, lambda: self._cpus, self._launch, self._mine)
        if self._fleet is not None:
            self._fleet.step()

    def wait(self) -> None:
        """Until something may have happened."""
        time.sleep(self._fleet.pause_s if self._fleet is not None else FAR_TICK_S)

    def leave(self) -> None:
        """Workers save what they have; whoever carries the runs next goes on from there."""
        if self._fleet is not None:
            self._fleet.leave()

    def close(self) -> None:
        """End what still lives, at once."""
        if self._fleet is not None:
            self._fleet.close()

    def _launch(self, run: str, config: RunConfig) -> Launcher:
        return make_launcher(launch_of(self._home, run, config, self._links))
