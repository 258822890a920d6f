"""What is stuck, and its last words: `rookery why`.

Workers and the owner of a run say how far they are in files of their machine; of those on another
one, what they last told the bus counts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import NamedTuple

from rookery.bus import Bus
from rookery.config.models import RunConfig
from rookery.control.home import Home
from rookery.control.models import Diagnosis
from rookery.control.queries import STALE_S, newest_training, status_now
from rookery.control.run_state import RunState, WorkerState
from rookery.control.supervision import Silence, Vigil
from rookery.messages import (
    DIVERGED,
    JOINED_FROM,
    METRICS_ACTORS,
    ActorMetrics,
    TrainingMetrics,
    decode_json,
)
from rookery.processes import look_at
from rookery.worker.progress import Progress, read_progress


class Evidence(NamedTuple):
    """All that an answer rests on, gathered at one moment."""

    state: RunState
    status: str
    metrics: TrainingMetrics | None
    actors: Mapping[str, ActorMetrics]  # by the worker's name, like all below
    progress: Mapping[str, Progress]
    silent: Mapping[str, Silence]
    owner: Silence | None
    owner_pid: int
    silent_s: float
    trouble: str | None  # of the bus
    has_server: bool
    now: float


class Finding(NamedTuple):
    component: str | None  # None: nothing is stuck
    summary: str  # one line
    detail: str = ""  # its last words


def why(home: Home, state: RunState) -> Diagnosis:
    """Name what is stuck."""
    found = diagnose(gather(home, state))
    status = status_now(state, home.is_owned(state.id))
    return Diagnosis(
        run=state.id,
        status=status,
        component=found.component,
        summary=found.summary,
        detail=found.detail,
    )


def gather(home: Home, state: RunState) -> Evidence:
    config = home.config(state)
    owner = home.owner(state.id)
    progress = read_all_progress(home, state)
    bus = home.read_run_bus(state)
    with contextlib.closing(bus) if bus is not None else contextlib.nullcontext():
        return Evidence(
            state=state,
            status=status_now(state, home.is_owned(state.id)),
            metrics=newest_training(bus, state.id),
            actors=newest_actors(bus, state),
            progress=progress,
            silent=silences(config, progress),
            owner=silence_of(config, owner.progress) if owner is not None else None,
            owner_pid=owner.progress.pid if owner is not None else 0,
            silent_s=config.restarts.silent_s,
            trouble=bus.trouble if bus is not None else None,
            has_server=home.has_server(),
            now=time.time(),
        )


def newest_actors(bus: Bus | None, state: RunState) -> dict[str, ActorMetrics]:
    """What each actor said last, by its worker's name."""
    found: dict[str, ActorMetrics] = {}
    for name, worker in state.workers.items():
        if bus is not None and worker.kind == "actor":
            record = bus.newest(METRICS_ACTORS, f"{worker.index}.{worker.incarnation}")
            if record is not None:
                found[name] = decode_json(record.payload, ActorMetrics)
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


def silences(config: RunConfig, progress: Mapping[str, Progress]) -> dict[str, Silence]:
    found = {name: silence_of(config, each) for name, each in progress.items()}
    return {name: silence for name, silence in found.items() if silence is not None}


def silence_of(config: RunConfig, progress: Progress) -> Silence | None:
    """Judged at one look. A process that is gone is for its owner to note."""
    seen = look_at(progress.pid)
    if seen is None or seen.started != progress.started:
        return None
    vigil = Vigil(config.restarts.silent_s, config.environment.deadline_s)
    return vigil.judge(progress, seen.stopped, time.monotonic())


def diagnose(found: Evidence) -> Finding:
    """The first cause that explains the rest."""
    state, run = found.state, found.state.id
    worst = _worst(state)
    words = worst.last_detail if worst else ""
    if found.status == "failed":
        name = f"{worst.kind}-{worst.index}" if worst else "learner"  # who alone says so itself
        return Finding(name, f"{run} failed: {state.reason}", words)
    if found.status == "interrupted":
        again = f"Go on with: rookery resume {run}"
        return Finding("owner", f"{run} has no owner: its process died. {again}")
    if found.status == "queued" and found.has_server:
        return Finding("cpus", f"{run} waits for CPUs that other runs have: stop one, or add cpus")
    if found.status != "running":
        reason = f", {state.reason}" if state.reason else ""
        return Finding(None, f"{run} does not run: {found.status}{reason}")
    return _frozen(found) or _unstaffed(found) or _waiting(found, words) or _well(found, worst)


def _worst(state: RunState) -> WorkerState | None:
    troubled = [w for w in state.workers.values() if w.last_error]
    return max(troubled, key=lambda w: (w.failed_for_good, w.error_s), default=None)


def _frozen(found: Evidence) -> Finding | None:
    """Whoever makes no progress; the owner first, as nobody replaces workers without it."""
    if found.owner is not None:
        run, pid = found.state.id, found.owner_pid
        takes = "rookery serve" if found.state.owned_by == "server" else f"rookery resume {run}"
        return Finding(
            "owner",
            f"the process that carries {run} is {found.owner} (pid {pid}): workers go on, and are "
            f"not replaced. Let it go on with kill -CONT {pid}, or take over with {takes}",
        )
    for name, silence in found.silent.items():
        replaced = f"it is replaced after {found.silent_s:g} s"
        if not _is_ours(found.state.workers[name]):
            replaced = "it joined on its own: nobody replaces it"
        pid = found.progress[name].pid
        return Finding(name, f"{name} is {silence} (pid {pid}): {replaced}")
    return None


def _unstaffed(found: Evidence) -> Finding | None:
    """Somebody who should work and does not."""
    state, run = found.state, found.state.id
    for name, worker in _wanted(state).items():
        if not worker.running:
            error = worker.last_error or "no error was reported"
            summary = f"{name} is down and will be started again; last error: {error}"
            return Finding(name, summary, worker.last_detail)
    if state.learners == 0:
        again = f"rookery scale {run} --learner 1"
        return Finding(
            "learner", f"nobody learns: {run} was scaled to 0 learners. Go on with: {again}"
        )
    if state.actors_wanted == 0 and all(w.kind != "actor" for w in _wanted(state).values()):
        again = f"rookery scale {run} --actors 1"
        return Finding("actors", f"nobody plays: {run} was scaled to 0 actors. Go on with: {again}")
    return None


def _waiting(found: Evidence, words: str) -> Finding | None:
    """What everyone waits for."""
    metrics, now = found.metrics, found.now
    if found.trouble is not None:
        return Finding("bus", f"waiting for the bus: {found.trouble}")
    if metrics is None or now - metrics.time_s > STALE_S:
        return _unheard(found, words)
    if metrics.recent_steps_per_s > 0:
        return None
    full = [name for name, said in found.actors.items() if said.doing == "full bus"]
    if full:
        return Finding(full[0], f"{full[0]} waits for room: the bus is full of unread experience")
    return Finding("actors", "the learner waits for experience: no fragment is complete", words)


def _unheard(found: Evidence, words: str) -> Finding:
    """The learner has not reported: because of an actor, or of itself."""
    metrics, now = found.metrics, found.now
    workers = _wanted(found.state)
    inside = [n for n, p in found.progress.items() if p.doing in ("step", "reset")]
    actors = [n for n, w in workers.items() if w.kind == "actor" and n not in found.actors]
    actors += [n for n, a in found.actors.items() if n in workers and now - a.time_s > STALE_S]
    silent = [n for n in inside if n in actors] or actors
    if silent:
        name = silent[0]
        doing = found.progress[name].doing if name in found.progress else ""
        what = f"it is {_doing_text(doing)}" if doing else "its environment is slow or hangs"
        return Finding(name, f"{name} is silent: {what}", words)
    waited = f"for {now - metrics.time_s:.0f} s" if metrics else "yet"
    doing = found.progress["learner-0"].doing if "learner-0" in found.progress else ""
    what = f"it is {doing}" if doing in ("training", "saving") else "it may be compiling"
    return Finding("learner-0", f"learner-0 has not reported {waited}: {what}", words)


def _doing_text(doing: str) -> str:
    if doing in ("step", "reset"):
        return f"inside {doing} of its environment, which is slow or hangs"
    return {"waiting": "waiting for a credit"}.get(doing, doing)


def _well(found: Evidence, worst: WorkerState | None) -> Finding:
    metrics = found.metrics
    assert metrics is not None
    rate = f"{metrics.recent_steps_per_s:,.0f} steps/s"
    late = [f"actor-{actor.partition('.')[0]}" for actor in metrics.late]
    if late:
        slow = f"{', '.join(late)} delivered too late: nobody waits for it any more"
        return Finding(late[0], f"{slow}, and {found.state.id} trains on at {rate}")
    last = f"; last error, recovered: {_last_error(worst)}" if worst else ""
    damaged = metrics.ledger.damaged
    skipped = f"; {damaged_text(damaged)}" if damaged else ""
    diverged = metrics.ledger.dropped.get(DIVERGED, 0)
    skipped += f"; {diverged_text(diverged)}" if diverged else ""
    return Finding(None, f"nothing is stuck: {found.state.id} trains at {rate}{last}{skipped}")


def _last_error(worker: WorkerState) -> str:
    """With its name, which some errors begin with."""
    name, error = f"{worker.kind}-{worker.index}", worker.last_error or ""
    return error if error.startswith(name) else f"{name}: {error}"


def _wanted(state: RunState) -> dict[str, WorkerState]:
    """Who is to run: neither scaled away, nor one that joined on its own and left."""

    def is_wanted(worker: WorkerState) -> bool:
        if worker.kind == "learner":
            return state.learners > 0
        if worker.kind == "actor":
            return worker.index < state.actors_wanted if _is_ours(worker) else worker.running
        return True

    return {name: worker for name, worker in state.workers.items() if is_wanted(worker)}


def _is_ours(worker: WorkerState) -> bool:
    return worker.index < JOINED_FROM


def diverged_text(steps: int) -> str:
    return (
        f"updates that were not finite were skipped, and {steps:,} steps with them: check the "
        "environment's rewards, or lower algorithm.learning_rate"
    )


def damaged_text(count: int) -> str:
    return f"{count:,} messages in experiences could not be read: the learner's log names them"
