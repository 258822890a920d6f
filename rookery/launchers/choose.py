"""Where a run's workers live: the one context that decides, for a terminal and for a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rookery.config.models import RunConfig
from rookery.launchers import Launcher
from rookery.launchers.local import LocalLauncher
from rookery.launchers.standby import Standby
from rookery.worker.context import RunContext


def choose_launcher(
    config: RunConfig,
    logs: Path,
    *,
    here: Callable[[], RunContext] | None = None,
    standby: Standby | None = None,
    niceness: int = 0,
) -> Launcher:
    """The launcher that a config names.

    `here` opens the run for an inline run in this very process; without it, as in a server, whose
    process no environment's code may enter, an inline run is one process of its own.
    """
    if config.launcher == "inline" and here is not None:
        from rookery.launchers.inline import InlineLauncher, take_turns

        opened = here
        return InlineLauncher(lambda spec, stopped: take_turns(opened(), spec.worker, stopped))
    return LocalLauncher(logs, standby, niceness)
