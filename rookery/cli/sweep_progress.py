"""One line for a sweep while it goes on; where output is piped, one for each trial that ends."""

from __future__ import annotations

import time
from typing import Any, TextIO

from rookery.cli.text import say
from rookery.foreign import clean
from rookery.output import own_place
from rookery.tuning.conductor import shown
from rookery.tuning.spec import SweepSpec
from rookery.tuning.trials import Trial


class SweepProgress:
    """Called many times a second with the trials as they are."""

    def __init__(self, sweep: str, out: TextIO) -> None:
        self._sweep, self._out, self._place = sweep, out, out
        self._began = time.monotonic()
        self._live: Any = None
        self._spec: SweepSpec | None = None
        self._trials: list[Trial] = []
        self._before: int | None = None  # trials that were over when we began
        self._told: set[int] = set()

    def __enter__(self) -> SweepProgress:
        say(f"{self._sweep}: its runs are the group {self._sweep}", self._out)
        if self._out.isatty():
            from rich.console import Console
            from rich.live import Live

            self._place = own_place(self._out)
            console = Console(file=self._place, markup=False, highlight=False, emoji=False)
            self._live = Live(
                console=console, refresh_per_second=2, transient=True, get_renderable=self._now
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            if self._place is not self._out:
                self._place.close()

    def __call__(self, spec: SweepSpec, trials: list[Trial]) -> None:
        if trials is self._trials:
            return
        self._spec, self._trials = spec, trials
        over = [trial for trial in trials if trial.is_over]
        if self._before is None:
            self._before = len(over)
            self._told = {trial.number for trial in over}
        for trial in over:
            if trial.number not in self._told:
                self._told.add(trial.number)
                self._tell(trial)

    def _tell(self, trial: Trial) -> None:
        """One that has just ended."""
        if trial.value is not None:
            text = f"a return of {trial.value:.1f}"
        else:
            text = trial.status + (f": {trial.why}" if trial.why else "")
        line = f"trial {trial.number}: {text} with {shown(trial.values)}"
        if self._live is not None:
            self._live.console.print(clean(line))
        else:
            say(f"{line}  |  {self._now()}", self._out)

    def _now(self) -> str:
        """Never longer than a line needs: how far, the best so far, how long."""
        passed = time.monotonic() - self._began
        if self._spec is None:
            return f"{passed:5.0f} s  starting"
        over = sum(trial.is_over for trial in self._trials)
        busy = sum(attempt.is_busy for trial in self._trials for attempt in trial.attempts)
        done = [trial for trial in self._trials if trial.value is not None]
        best = max(done, key=lambda trial: trial.value or 0.0, default=None)
        told = f"best {best.value:.1f} (trial {best.number})" if best is not None else "best -"
        runs = "1 run" if busy == 1 else f"{busy} runs"
        line = f"{passed:5.0f} s  {over}/{self._spec.trials} trials  {runs} at work  {told}"
        return str(clean(f"{line}  {self._eta(over, passed)}".rstrip()))

    def _eta(self, over: int, passed: float) -> str:
        ended = over - (self._before or 0)
        if not ended or self._spec is None:
            return ""
        minutes, seconds = divmod(round(passed / ended * (self._spec.trials - over)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"ETA {hours}:{minutes:02}:{seconds:02}" if hours else f"ETA {minutes}:{seconds:02}"
