"""One line that changes in place in a terminal, and is told now and then where output is piped.

with LiveLine(sys.stdout, now) as line:      # now() -> the newest text
    while ...: line.tell()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TextIO

from rookery.cli.text import say
from rookery.foreign import clean
from rookery.output import own_place

PIPED_INTERVAL_S = 5.0


class LiveLine:
    def __init__(self, out: TextIO, now: Callable[[], str]) -> None:
        self._out, self._now = out, now
        self._live: Any = None
        self._place = out
        self._due, self._interval, self._last = 0.0, 1.0, ""

    def __enter__(self) -> LiveLine:
        if self._out.isatty():
            from rich.console import Console
            from rich.live import Live

            # Foreign text is no markup. It is drawn at its own place, which no one else prints to,
            # also while whoever calls us is busy: its clock goes on.
            self._place = own_place(self._out)
            console = Console(file=self._place, markup=False, highlight=False, emoji=False)
            self._live = Live(
                console=console, refresh_per_second=8, transient=True, get_renderable=self._now
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            if self._place is not self._out:
                self._place.close()

    @property
    def is_due(self) -> bool:
        """Whether a piped line is to be told; a terminal's is drawn by its own clock."""
        return self._live is None and time.monotonic() >= self._due

    def soon(self) -> None:
        """What comes next is told at once."""
        self._due, self._interval = 0.0, 1.0

    def tell(self) -> None:
        """Piped output gets the line when it is due and says something new, ever more rarely."""
        if not self.is_due:
            return
        line = self._now()
        if line != self._last:
            self._due = time.monotonic() + self._interval
            self._interval = min(PIPED_INTERVAL_S, self._interval * 1.5)
            self._last = line
            say(line, self._out)

    def note(self, text: str) -> None:
        """A line above the one that is drawn."""
        say(text, self._out) if self._live is None else self._live.console.print(clean(text))
