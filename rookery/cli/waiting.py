"""A clock in a terminal while something takes its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rookery.foreign import clean


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Shows what goes on, and how long it does; nothing where stderr is piped."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.live import Live

    began = time.monotonic()
    with Live(
        console=Console(stderr=True),
        refresh_per_second=4,
        transient=True,
        get_renderable=lambda: f"{time.monotonic() - began:5.0f} s  {clean(what)}",
    ):
        yield
