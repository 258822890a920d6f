"""Creating a run: look at it first, which finds most mistakes, then CreateRun."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from rookery.config.models import RunConfig
from rookery.control.home import Home

if TYPE_CHECKING:
    from rookery.players.seat_map import SeatFunction


def author() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def create_run(home: Home, config: RunConfig, seat_function: SeatFunction | None = None) -> str:
    """Look at the environment and seat the players (which finds most mistakes), then CreateRun."""
    from rookery.control.check import look  # imports numpy and players: few verbs need them
    from rookery.worker.xla import prepare_xla

    if config.launcher == "inline":
        prepare_xla(config.learner.threads)  # looking at a JAX-native environment imports JAX
    return home.create(config, look(home, config, seat_function), author())
