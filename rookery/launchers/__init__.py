"""Launchers: where workers live.

    launcher.apply({"learner-0.1": spec, "actor-0.1": spec})    # start the missing, stop the rest
    launcher.work(0.02)                                         # let time pass
    for name, seen in launcher.observe().items(): ...           # pid, and the exit code if it ended
    seen.life.progress()                                        # how far it is, where that is known
    seen.host, seen.waits, seen.reason                          # where; for a place; why it ended

A name is one incarnation of one worker and is never used twice. When to restart, when to end one
that makes no progress, and when to give up, is decided above, in `control`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rookery.config.kinds import LAUNCHERS, load_kind
from rookery.config.models import RunConfig
from rookery.launchers.ray.settings import RaySettings

if TYPE_CHECKING:  # what settings are read with must be light to import
    from rookery.launchers.ray.link import Links
    from rookery.launchers.standby import Standby
    from rookery.worker import WorkerId
    from rookery.worker.context import RunContext
    from rookery.worker.progress import Progress


@dataclass(frozen=True)
class Launch:
    """What a launcher may be made from: the run, and what its owner has at hand."""

    config: RunConfig
    logs: Path
    here: Callable[[], RunContext] | None = None
    """Opens the run in this very process; None in a server, whose process no environment's code may
    enter."""
    own_process: bool = False
    """Whether nobody else prints here: then what environments print goes to their worker's log."""
    standby: Standby | None = None
    niceness: int = 0  # how far workers step back behind whoever answers people
    progress: Path | None = None  # where workers of this machine say how far they are
    run: str = ""
    experience_bytes: int = 0  # that the run's bus keeps, where the launcher has to place it
    links: Links | None = None  # to clusters, which an owner's launchers share
    ray: RaySettings = field(default_factory=RaySettings)


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker needs to run; the same for a process, a Ray actor or a pod."""

    worker: WorkerId
    argv: tuple[str, ...]  # of the `rookery` command
    environment: Mapping[str, str]  # of a process on this machine
    briefing: Callable[[], bytes] = bytes
    """What a worker has to be told that finds neither the home nor its settings where it lives."""

    @property
    def name(self) -> str:
        return self.worker.name


class Life(Protocol):
    """A worker that lives, for whoever watches over it: each of these at any time, by any thread,
    without a lock or a bus, which a worker that is frozen may hold."""

    def progress(self) -> Progress | None:
        """How far it is; None: it has not said so yet."""
        ...

    def is_stopped(self) -> bool:
        """Whether the system says that it does nothing, like a process after SIGSTOP."""
        ...

    def kill(self) -> None:
        """End it at once: it may not be able to end itself."""
        ...


class Observed(NamedTuple):
    pid: int  # on its own machine; 0: it has not begun
    code: int | None  # None while it lives; negative: the signal that ended it
    life: Life | None = None  # None: nobody can watch over it
    host: str = ""  # the node that it lives on; empty: this machine
    reason: str = ""  # why it ended, or what it waits for, where the launcher knows
    waits: bool = False  # for a place: it has not begun
    final: bool = False  # another try can't help


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


def make_launcher(launch: Launch) -> Launcher:
    """The one that the config names: the only place that decides, for a terminal and a server."""
    make: Callable[[Launch], Launcher] = load_kind(LAUNCHERS, launch.config.launcher)
    return make(launch)
