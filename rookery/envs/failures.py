"""What an environment's own error becomes: one line for a person, and only the user's frames.

Environments are other people's code and raise anything. Every adapter translates what comes out of
one here, so that a failure reads the same whichever library was being stepped. This module imports
none of them: a library that is not loaded has no frames to hide.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator

from rookery.envs import SOLO_SEAT
from rookery.errors import EnvironmentFailed
from rookery.errors import first_line as first_line

# What lies between our adapters and an environment: library -> its files and folders.
_BETWEEN = {
    "gymnasium": ("core.py", "wrappers", "vector", "envs/registration.py"),
    "pettingzoo": ("utils",),
    "jax": ("",),
    "jaxlib": ("",),
}


def environment_failed(
    error: Exception,
    id: str,
    doing: str,
    slot: int | None = None,
    step: int | None = None,
    seat: str | None = SOLO_SEAT,
) -> EnvironmentFailed:
    """The environment's own error with the seat, the slot and the step, to raise `from` it.

    `seat` is None where several were acting at once.
    """
    where = "" if step is None else f" after {step} steps"
    where += "" if slot is None else f" of slot {slot}"
    return EnvironmentFailed(
        f"environment {id}{'' if seat is None else f' (seat {seat})'} raised "
        f"{type(error).__name__} in {doing}{where}: {first_line(error)}",
        seat=seat,
        slot=slot,
        step=step,
        user_traceback=user_traceback(error),
    )


def user_traceback(error: BaseException) -> str:
    """The error's traceback without the leading frames of our adapters and of the libraries."""
    above = tuple(_folders_above())
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(above):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _folders_above() -> Iterator[str]:
    yield os.path.dirname(__file__) + "/"
    for library, parts in _BETWEEN.items():
        if library in sys.modules:
            home = os.path.dirname(str(sys.modules[library].__file__))
            yield from (f"{home}/{part}" for part in parts)
