"""Where a run lives, as its workers know it: a small value, whoever made it.

A worker does not know the home or the cluster that its run belongs to: it is handed a `RunContext`
(`control.context` makes one), and so runs the same in a process, in turns, or elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rookery.bus import Bus, Record
from rookery.checkpoints.policies import FindRun, RunFiles
from rookery.config.models import RunConfig
from rookery.messages import Event, LearnerOrders, SeatsChanged
from rookery.players.seat_map import Seating
from rookery.spaces import EnvironmentSpec
from rookery.worker import WorkerId
from rookery.worker.progress import Pulse


class RecordEvents(Protocol):
    """Appends to the log of events."""

    def __call__(self, *events: Event) -> None: ...


@dataclass(frozen=True)
class RunContext:
    """Where a worker finds its run, and whom it tells."""

    files: RunFiles
    seating: Seating
    bus: Bus
    orders: LearnerOrders  # the newest at the start
    record: RecordEvents
    trusted: Callable[[Record], bool]  # whether a controller of this run wrote it
    seats_from: Callable[[Record], SeatsChanged]  # a change of seats, if it is allowed
    find: FindRun  # another run, by id, prefix or `last`
    open_recorded: Callable[[str], Bus]  # another run's bus, to train on what it holds
    progress: Path | None = None  # where workers say how far they are; None: nobody looks
    host: str = "127.0.0.1"  # this machine's address, for the other learners of a crew

    def pulse(self, worker: WorkerId) -> Pulse:
        """What the worker says its progress with; a bus that is away is not its own slowness."""
        path = self.progress / worker.name if self.progress is not None else None
        return Pulse(path, excused=lambda: self.bus.trouble is not None)

    @property
    def run(self) -> str:
        return self.files.run

    @property
    def config(self) -> RunConfig:
        return self.files.config

    @property
    def spec(self) -> EnvironmentSpec:
        return self.files.spec
