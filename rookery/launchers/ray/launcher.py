"""The launcher of runs on Ray, at their owner's: it hands specs to the driver and hears of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rookery.bus.sqlite import RUN_FILE
from rookery.launchers import Launch, Observed, WorkerSpec
from rookery.launchers.local import GRACE_S
from rookery.launchers.log_file import forget_old
from rookery.launchers.ray.link import Link, LinkDown
from rookery.launchers.ray.words import Close, HostOrder, Kill, Look, Match, Order, Seen
from rookery.messages import EXPERIENCES
from rookery.worker.progress import Progress, forget, read_progress

LOST = -9


@dataclass(frozen=True)
class RayLife:
    """A worker in the cluster, and the file in which the driver shows how far it is."""

    link: Link
    run: str
    name: str
    file: Path

    def progress(self) -> Progress | None:
        return read_progress(self.file)

    def is_stopped(self) -> bool:
        """Of a process on another machine only its silence tells."""
        return False

    def kill(self) -> None:
        try:
            self.link.ask(Kill(self.run, self.name))
        except LinkDown:
            return  # all that it placed is gone with it


class RayLauncher:
    def __init__(self, launch: Launch, link: Link) -> None:
        self._link, self._run, self._config = link, launch.run, launch.config
        self._logs, self._progress = launch.logs, launch.progress or launch.logs / "progress"
        self._orders: dict[str, Order] = {}  # by name; each is told to the driver while it lasts
        self._wanted: set[str] = set()
        self._known: dict[str, Seen] = {}
        self._life = 0  # of the link: which driver the workers belong to
        limits = {EXPERIENCES: launch.experience_bytes}
        directory = launch.logs.parent
        self._host = HostOrder(str(directory / RUN_FILE), limits, str(directory))

    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        self._wanted = set(specs)
        for name, spec in specs.items():
            if name not in self._orders:
                self._orders[name] = self._order(spec)
        if not self._link.is_up:
            self._link.open()
            return
        if self._life == 0:
            self._life = self._link.lives
        if self._life == self._link.lives:
            self._tell()

    def observe(self) -> dict[str, Observed]:
        if self._life and (not self._link.is_up or self._life != self._link.lives):
            return self._all_lost()
        if not self._life:
            waits = f"{self._link.trouble}" if not self._link.is_up else "its turn"
            return {n: Observed(0, None, reason=waits, waits=True) for n in self._wanted}
        try:
            seen = msgspec.convert(self._link.ask(Look(self._run)), list[Seen])
        except LinkDown:
            return self._all_lost()
        self._known = {each.name: each for each in seen}
        found = {each.name: self._observed(each) for each in seen}
        for each in seen:
            if each.code is not None:
                self._orders.pop(each.name, None)
        return found

    def work(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        try:
            if self._life == self._link.lives and self._link.is_up:
                self._link.ask(Close(self._run))
        except LinkDown:
            return

    def _tell(self) -> None:
        orders = [self._orders[name] for name in self._wanted]
        host = self._host if self._config.bus.kind == "ray" and (orders or self._known) else None
        try:
            self._link.ask(Match(self._run, orders, host))
        except LinkDown:
            return  # told by the next look

    def _all_lost(self) -> dict[str, Observed]:
        """With their driver, whoever it had placed is gone; the next ones get a new driver."""
        why = f"lost with its driver: {self._link.trouble}"
        found = {
            name: Observed(each.pid, LOST, None, each.host, why)
            for name, each in self._known.items()
            if each.code is None and each.pid
        }
        for name in [*self._known, *found]:
            forget(self._progress / name)
            self._orders.pop(name, None)
        self._known, self._life = {}, 0
        return found

    def _observed(self, seen: Seen) -> Observed:
        life = RayLife(self._link, self._run, seen.name, self._progress / seen.name)
        if seen.code is None and not seen.pid:
            waits = seen.reason or "a node"
            return Observed(0, None, reason=waits, waits=bool(seen.reason))
        return Observed(seen.pid, seen.code, life, seen.host, seen.reason, final=seen.final)

    def _order(self, spec: WorkerSpec) -> Order:
        worker, name = spec.worker, spec.name
        place = getattr(self._config.placement, worker.kind)
        self._logs.mkdir(parents=True, exist_ok=True)
        log = self._logs / f"{name}.log"
        log.touch()
        forget_old(self._logs, name.rpartition(".")[0])
        return Order(
            name,
            worker.kind,
            worker.index,
            worker.incarnation,
            spec.briefing(),
            place.cpus,
            place.gpus,
            place.resources,
            place.labels,
            str(log),
            str(self._progress / name),
            GRACE_S.get(worker.kind, 5.0),
        )


def make_launcher(launch: Launch) -> RayLauncher:
    assert launch.links is not None, "an owner of runs on Ray has a link to it"
    return RayLauncher(launch, launch.links.to(launch.ray))
