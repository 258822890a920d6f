"""What `why` goes by: how everyone is at one moment, and then what the bus has of them.

Workers and the owner of a run say how far they are in files of their machine; of those on another
one, what they last told the bus counts.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rookery.bus import Bus
from rookery.config.models import RunConfig
from rookery.control.home import Home
from rookery.control.queries import newest_training, status_now
from rookery.control.queue import waits_for
from rookery.control.run_state import RunState
from rookery.control.supervision import Silence, Vigil, allowance
from rookery.errors import BusError
from rookery.messages import (
    JOINED_FROM,
    METRICS_ACTORS,
    ActorMetrics,
    TrainingMetrics,
    decode_or_none,
)
from rookery.processes import Seen, look_at
from rookery.worker.progress import Progress, read_progress

FULL_BYTES = 8 << 20  # free: a run that ended for want of room gave back less than this


class Evidence(NamedTuple):
    """All that an answer rests on."""

    state: RunState
    status: str
    metrics: TrainingMetrics | None
    actors: Mapping[str, ActorMetrics]  # by the worker's name, like all below
    progress: Mapping[str, Progress]
    silent: Mapping[str, Silence]
    same_s: Mapping[str, float]  # of those that are at one thing for long
    owner: Silence | None
    owner_pid: int
    silent_s: float
    trouble: str | None  # of the bus
    has_server: bool
    is_full: bool  # the disk
    now: float
    waits_for: str = ""  # of a run in a queue


def gather(home: Home, state: RunState) -> Evidence:
    config = home.config(state)
    owner = home.owner(state.id)
    progress = read_all_progress(home, state)
    if owner is not None:  # on this machine, and so are its own workers
        progress |= stopped_early(state, progress)
    # at once: to listen may take long, and whoever is well then would look frozen
    silent = silences(config, progress)
    owner_silent = silence_of(config, owner.progress) if owner is not None else None
    same_s = lasting(config, progress, time.monotonic())
    # whoever is frozen may hold the bus
    heard: Heard = (None, {}, None) if silent or owner_silent else listen(home, state)
    metrics, actors, trouble = heard
    return Evidence(
        state=state,
        status=status_now(state, home.is_owned(state.id)),
        metrics=metrics,
        actors=actors,
        progress=progress,
        silent=silent,
        same_s=same_s,
        owner=owner_silent,
        owner_pid=owner.progress.pid if owner is not None else 0,
        silent_s=config.restarts.silent_s,
        trouble=trouble,
        has_server=home.has_server(),
        is_full=shutil.disk_usage(home.path).free < FULL_BYTES,
        now=time.time(),
        waits_for=waits_for(home, state),
    )


Heard = tuple[TrainingMetrics | None, Mapping[str, ActorMetrics], str | None]


def listen(home: Home, state: RunState) -> Heard:
    """What the learner and the actors said last, and what is wrong with the bus."""
    try:
        bus = home.read_run_bus(state)
        with contextlib.closing(bus) if bus is not None else contextlib.nullcontext():
            heard = newest_training(bus, state.id), newest_actors(bus, state)
            return *heard, bus.trouble if bus is not None else None
    except BusError as error:
        return None, {}, str(error)


def newest_actors(
    bus: Bus | None, state: RunState, living: bool = False
) -> dict[str, ActorMetrics]:
    """What each actor said last, by its worker's name; only of those that live, if asked."""
    found: dict[str, ActorMetrics] = {}
    for name, worker in state.workers.items():
        if bus is not None and worker.kind == "actor" and (worker.running or not living):
            record = bus.newest(METRICS_ACTORS, f"{worker.index}.{worker.incarnation}")
            said = decode_or_none(record.payload, ActorMetrics) if record is not None else None
            found |= {name: said} if said is not None else {}
    return found


def read_all_progress(home: Home, state: RunState) -> dict[str, Progress]:
    """How far each worker of this machine is, by its name."""
    files = {
        name: home.progress_dir(state.id) / f"{name}.{worker.incarnation}"
        for name, worker in state.workers.items()
        if worker.running
    }
    read = {name: read_progress(file) for name, file in files.items()}
    return {name: progress for name, progress in read.items() if progress is not None}


def stopped_early(state: RunState, known: Collection[str]) -> dict[str, Progress]:
    """Workers whose process was stopped before it could say anything of itself."""
    found: dict[str, Progress] = {}
    for name, worker in state.workers.items():
        is_here = worker.running and not worker.host and worker.index < JOINED_FROM
        if name in known or not is_here or worker.pid is None:
            continue
        seen = look_at(worker.pid)
        if seen is not None and seen.stopped:
            began = time.monotonic() - max(0.0, time.time() - worker.started_s)
            found[name] = Progress(0, "starting", began, began, worker.pid, seen.started)
    return found


def silences(config: RunConfig, progress: Mapping[str, Progress]) -> dict[str, Silence]:
    found = {name: silence_of(config, each) for name, each in progress.items()}
    return {name: silence for name, silence in found.items() if silence is not None}


def silence_of(config: RunConfig, progress: Progress) -> Silence | None:
    """Judged at one look. A process that is gone is for its owner to note."""
    seen = living(progress)
    if seen is None:
        return None
    vigil = Vigil(config.restarts.silent_s, config.environment.deadline_s)
    return vigil.judge(progress, seen.stopped, time.monotonic())


def living(progress: Progress) -> Seen | None:
    """Its process, if that is still there."""
    seen = look_at(progress.pid)
    return seen if seen is not None and seen.started == progress.started else None


def lasting(config: RunConfig, progress: Mapping[str, Progress], now: float) -> dict[str, float]:
    """Who has been at one thing for so long that a silence would count, and how long.

    To name it does no harm. To end it would: it is given its time then (`supervision.allowance`).
    """
    silent_s, deadline_s = config.restarts.silent_s, config.environment.deadline_s
    return {
        name: now - each.since
        for name, each in progress.items()
        if now - each.since >= silent_s
        and living(each) is not None
        # not of those who wait for others
        and allowance(each.doing, silent_s, deadline_s).same_s < math.inf
    }
