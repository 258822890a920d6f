"""Live progress in a terminal; one line now and then where output is piped."""

from __future__ import annotations

import time
from typing import Any, TextIO

from rookery.cli.live_line import LiveLine
from rookery.cli.summary import return_kind, settings, summary
from rookery.cli.text import last_episodes, say
from rookery.config.models import RunConfig, StopConfig
from rookery.control.queries import rate
from rookery.control.run_state import ENDED, RunState
from rookery.foreign import clean
from rookery.messages import TrainingMetrics

OLD_S = 2.0  # after which figures are told with their age
MOST_LINES = 12  # of a traceback


class Progress:
    """Called many times a second with the run's state and its newest metrics."""

    def __init__(
        self, run: str, out: TextIO, config: RunConfig, before: RunState | None = None
    ) -> None:
        """`before`: the run as it was, whose errors are old news."""
        self._run, self._out, self._config = run, out, config
        self._kind = return_kind(config)
        workers = before.workers.items() if before is not None else ()
        self._told = {name: (worker.error_of, "", 0) for name, worker in workers}
        # of each worker: the newest life whose death was told, of what it died, how often
        self._line = LiveLine(out, self._now)
        self._began = self._changed = time.monotonic()
        self._state: RunState | None = None
        self._metrics: TrainingMetrics | None = None
        self._trouble: str | None = None
        self._figures = self._device = ""

    def __enter__(self) -> Progress:
        self._say(
            f"{self._run}: {self._config.environment.id} with {self._config.algorithm.kind}, "
            f"{self._config.actors.number} x {self._config.actors.envs_per_actor} environments, "
            f"{self._config.launcher} launcher, {self._config.bus.kind} bus"
        )
        self._say(settings(self._config))
        self._line.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.__exit__(*error)

    def __call__(
        self, state: RunState, metrics: TrainingMetrics | None, trouble: str | None = None
    ) -> None:
        self._tell_device(metrics)
        self._tell_deaths(state)
        if state.status in ENDED:
            return  # the summary tells the rest
        now = time.monotonic()
        if self._is_starting(self._metrics) and not self._is_starting(metrics):
            self._line.soon()  # the first figures are told at once
        self._state, self._metrics, self._trouble = state, metrics, trouble
        if self._is_starting(metrics) and trouble is None and now - self._began < OLD_S:
            return
        self._line.tell()

    def _tell_device(self, metrics: TrainingMetrics | None) -> None:
        """Once: what JAX chose, which only the learner knows."""
        if metrics is None or metrics.device in ("", self._device):
            return
        self._device = metrics.device
        self._line.note(f"the learner computes on {metrics.device}")

    def _tell_deaths(self, state: RunState) -> None:
        """At once, with the line of the user's code; of an error that comes again, only that."""
        for name, worker in state.workers.items():
            life, known, times = self._told.get(name, (0, "", 0))
            error = worker.last_error or ""
            if worker.error_of <= life:
                continue
            times = times + 1 if error == known else 1
            self._told[name] = worker.error_of, error, times
            if worker.failed_for_good or error.startswith(name):  # how the run ends, or was told
                continue
            if times > 1:
                self._line.note(f"{name} died {times} times of the same")
                continue
            words = "".join(f"\n  {line}" for line in _excerpt(worker.last_detail))
            most = self._config.restarts.max_restarts
            again = f", and is started again up to {most} times" if most else ""
            self._line.note(f"{name} died{again}: {error}{words}")

    def _now(self) -> str:
        """The newest line; one that is old says so, so that it is seen to move."""
        if self._trouble:
            return str(clean(f"waiting: {self._trouble}"))
        if self._state is None:
            return self._starting(0)
        line, now = self.line(self._state, self._metrics), time.monotonic()
        if line != self._figures:
            self._figures, self._changed = line, now
        old_s = now - self._changed
        return str(clean(f"{line}  ({old_s:.0f} s ago)" if old_s >= OLD_S else line))

    @staticmethod
    def _is_starting(metrics: TrainingMetrics | None) -> bool:
        return metrics is None or not metrics.updates

    def _starting(self, alive: int) -> str:
        waited = time.monotonic() - self._began
        actors = "1 actor" if alive == 1 else f"{alive} actors"
        return f"{waited:5.1f} s  starting: {actors} alive, waiting for the first update"

    def line(self, state: RunState, metrics: TrainingMetrics | None) -> str:
        alive = sum(w.running for w in state.workers.values() if w.kind != "learner")
        if metrics is None or self._is_starting(metrics):
            return self._starting(alive)
        length = "-" if metrics.mean_length_100 is None else f"{metrics.mean_length_100:.0f}"
        return (
            f"{metrics.train_s:7.1f} s  {metrics.env_steps:>11,} steps  "
            f"{rate(metrics.env_steps, metrics.train_s):>9,.0f} steps/s "
            f"(now {metrics.recent_steps_per_s:,.0f})  {self._score(metrics)}  length {length:>5}  "
            f"lag {metrics.lag_mean:.1f}  actors {alive}/{state.actors_wanted}  "
            f"{self._eta(state, metrics)}"
        )

    def _eta(self, state: RunState, metrics: TrainingMetrics) -> str:
        stop = self._config.stop if state.stop is None else StopConfig.model_validate(state.stop)
        left = []
        if stop.steps and metrics.recent_steps_per_s > 0:
            left.append((stop.steps - metrics.env_steps) / metrics.recent_steps_per_s)
        if stop.minutes:
            left.append(60 * stop.minutes - metrics.train_s)
        if not left:
            return f"until return {stop.until_return:g}" if stop.until_return is not None else ""
        seconds = max(0, round(min(left)))
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        return f"ETA {hours}:{minutes:02}:{seconds:02}" if hours else f"ETA {minutes}:{seconds:02}"

    def _score(self, metrics: TrainingMetrics) -> str:
        """How well it plays: by its return, or, where it meets others, by its rating."""
        league = metrics.league
        if league is not None and league.rated_games:
            return f"rating {league.rating:.1f} ± {1.96 * league.uncertainty:.1f} ({league.newest})"
        if metrics.policies:
            each = [
                f"{name} {_shown(p.mean_return_100)} ({last_episodes(p.episodes)})"
                for name, p in metrics.policies.items()
            ]
            return f"return of {', '.join(each)}"
        episodes = f"({last_episodes(metrics.episodes)} episodes)"
        return f"{self._kind} {_shown(metrics.mean_return_100):>7} {episodes}"

    def summary(self, result: dict[str, Any], at: str = "") -> None:
        """What happened, and what to try next; `at`: the option that names a run's server."""
        self._say(summary(result, self._config, at))

    def _say(self, text: str) -> None:
        say(text, self._out)


def _excerpt(traceback: str) -> list[str]:
    """Its first frame, which is the user's, and its end."""
    lines = traceback.rstrip().splitlines()
    return lines if len(lines) <= MOST_LINES else [*lines[:3], "  ...", *lines[-5:]]


def _shown(number: float | None) -> str:
    return "-" if number is None else f"{number:.1f}"
