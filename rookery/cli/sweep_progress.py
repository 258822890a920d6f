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
        self._before: int | None = None  # trials or generations that were over when we began
        self._told: set[int] = set()
        self._generation = 0  # of a population: the newest that was told

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
            self._before, _ = self._passed()
            self._told = {trial.number for trial in over}
            self._generation = generation_of(trials)
        if generation_of(trials) > self._generation:
            self._generation = generation_of(trials)
            self._tell_generation()
        for trial in over:
            if trial.number not in self._told:
                self._told.add(trial.number)
                self._tell(trial)

    def _tell_generation(self) -> None:
        """Everybody has begun one."""
        stages = [trial.stages[self._generation] for trial in self._trials]
        forks = [f"{s.member} from {s.parent}" for s in stages if s.parent]
        self._print(f"generation {self._generation}: {', '.join(forks) or 'no forks'}")

    def _tell(self, trial: Trial) -> None:
        """One that has just ended."""
        if trial.value is not None:
            text = f"a return of {trial.value:.1f}"
        else:
            text = trial.status + (f": {trial.why}" if trial.why else "")
        self._print(f"{self._noun} {trial.number}: {text} with {shown(trial.values)}")

    @property
    def _noun(self) -> str:
        return "member" if self._spec is not None and self._spec.scheduler == "pbt" else "trial"

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(clean(line))
        else:
            say(f"{line}  |  {self._now()}", self._out)

    def _now(self) -> str:
        """Never longer than a line needs: how far, the best so far, how long."""
        passed = time.monotonic() - self._began
        if self._spec is None:
            return f"{passed:5.0f} s  starting"
        busy = sum(attempt.is_busy for trial in self._trials for attempt in trial.attempts)
        judged = [(v, trial) for trial in self._trials if (v := _value(trial)) is not None]
        best = max(judged, key=lambda found: found[0], default=None)
        told = f"best {best[0]:.1f} ({self._noun} {best[1].number})" if best else "best -"
        runs = "1 run" if busy == 1 else f"{busy} runs"
        line = f"{passed:5.0f} s  {self._how_far()}  {runs} at work  {told}"
        return str(clean(f"{line}  {self._eta(passed)}".rstrip()))

    def _how_far(self) -> str:
        assert self._spec is not None
        if self._spec.scheduler == "pbt":
            return f"generation {generation_of(self._trials)}/{self._spec.generations - 1}"
        return f"{sum(t.is_over for t in self._trials)}/{self._spec.trials} trials"

    def _passed(self) -> tuple[int, int]:
        """What is over, and all there is: trials, or their generations."""
        assert self._spec is not None
        if self._spec.scheduler == "pbt":
            over = sum(len(t.stages) - (_value(t, -1) is None) for t in self._trials)
            return over, self._spec.trials * self._spec.generations
        return sum(trial.is_over for trial in self._trials), self._spec.trials

    def _eta(self, passed: float) -> str:
        if self._spec is None:
            return ""
        over, whole = self._passed()
        ended = over - (self._before or 0)
        if not ended:
            return ""
        minutes, seconds = divmod(round(passed / ended * (whole - over)), 60)
        hours, minutes = divmod(minutes, 60)
        return f"ETA {hours}:{minutes:02}:{seconds:02}" if hours else f"ETA {minutes}:{seconds:02}"


def generation_of(trials: list[Trial]) -> int:
    """That everybody of a population has begun."""
    return max(0, min((len(trial.stages) - 1 for trial in trials), default=0))


def _value(trial: Trial, newest: int = -2) -> float | None:
    """How well it plays; of a population: when it was last judged."""
    if not trial.stages:
        return trial.value
    values = [stage.value for stage in trial.stages[newest:]]
    return next((v for v in reversed(values) if v is not None), None)
