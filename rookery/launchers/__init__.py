"""Launchers: where workers live.

    launcher.apply({"learner-0.1": spec, "actor-0.1": spec})    # start the missing, stop the rest
    launcher.work(0.02)                                         # let time pass
    for name, seen in launcher.observe().items(): ...           # pid, and the exit code if it ended

A name is one incarnation of one worker and is never used twice. When to restart, and when to give
up, is decided above, in `control`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rookery.worker import WorkerId


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker needs to run; the same for a process, a Ray actor or a pod."""

    worker: WorkerId
    argv: tuple[str, ...]  # of the `rookery` command
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.worker.name


class Observed(NamedTuple):
    pid: int
    code: int | None  # None while it lives; negative: the signal that ended it


class Launcher(Protocol):
    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        """Start what is missing; ask what is no longer named to stop, and end it after a grace."""
        ...

    def observe(self) -> dict[str, Observed]:
        """Every worker that lives or has ended and not been observed as ended before."""
        ...

    def work(self, seconds: float) -> None:
        """Let time pass; an inline launcher does the work itself meanwhile."""
        ...

    def close(self) -> None:
        """End whatever still lives, at once."""
        ...
