"""What is stuck, and its last words: `rookery why`."""

from __future__ import annotations

import time

from rookery.bus import Bus
from rookery.control.home import Home
from rookery.control.models import Diagnosis
from rookery.control.queries import STALE_S, newest_training, status_now
from rookery.control.run_state import RunState, WorkerState
from rookery.messages import (
    DIVERGED,
    JOINED_FROM,
    METRICS_ACTORS,
    ActorMetrics,
    TrainingMetrics,
    decode_json,
)


def why(home: Home, state: RunState) -> Diagnosis:
    """Name what is stuck."""
    status = status_now(state, home.is_owned(state.id))
    bus = home.read_run_bus(state)
    metrics = newest_training(bus, state.id)
    actors = newest_actors(bus, state)
    if bus is not None:
        bus.close()
    component, summary, detail = _diagnose(state, status, metrics, actors, time.time())
    return Diagnosis(
        run=state.id, status=status, component=component, summary=summary, detail=detail
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


def _diagnose(
    state: RunState,
    status: str,
    metrics: TrainingMetrics | None,
    actors: dict[str, ActorMetrics],
    now: float,
) -> tuple[str | None, str, str]:
    """(component, one line, its last words)."""
    run = state.id
    troubled = [w for w in state.workers.values() if w.last_error]
    worst = max(troubled, key=lambda w: (w.failed_for_good, w.deaths), default=None)
    words = worst.last_detail if worst else ""
    if status == "failed":
        name = f"{worst.kind}-{worst.index}" if worst else "learner"  # who alone says so itself
        return name, f"{run} failed: {state.reason}", words
    if status == "interrupted":
        return (
            "owner",
            f"{run} has no owner: its process died. Go on with: rookery resume {run}",
            "",
        )
    if status != "running":
        return (
            None,
            f"{run} does not run: {status}" + (f", {state.reason}" if state.reason else ""),
            "",
        )
    workers = {name: w for name, w in state.workers.items() if _is_wanted(state, w)}
    for name, worker in workers.items():
        if not worker.running:
            error = worker.last_error or "no error was reported"
            return name, f"{name} is down and will be started again; last error: {error}", words
    if state.learners == 0:
        again = f"rookery scale {run} --learner 1"
        return "learner", f"nobody learns: {run} was scaled to 0 learners. Go on with: {again}", ""
    if state.actors_wanted == 0 and all(w.kind != "actor" for w in workers.values()):
        again = f"rookery scale {run} --actors 1"
        return "actors", f"nobody plays: {run} was scaled to 0 actors. Go on with: {again}", ""
    if metrics is None or now - metrics.time_s > STALE_S:
        silent = [n for n, w in workers.items() if w.kind == "actor" and n not in actors]
        silent += [n for n, a in actors.items() if n in workers and now - a.time_s > STALE_S]
        if silent:
            return silent[0], f"{silent[0]} is silent: its environment is slow or hangs", words
        waited = f"for {now - metrics.time_s:.0f} s" if metrics else "yet"
        return "learner-0", f"learner-0 has not reported {waited}: it may be compiling", words
    if metrics.recent_steps_per_s == 0:
        return "actors", "the learner waits for experience: no fragment is complete", words
    rate = f"{metrics.recent_steps_per_s:,.0f} steps/s"
    last = f"; last error, recovered: {worst.last_error}" if worst else ""
    damaged = metrics.ledger.damaged
    skipped = f"; {damaged_text(damaged)}" if damaged else ""
    diverged = metrics.ledger.dropped.get(DIVERGED, 0)
    skipped += f"; {diverged_text(diverged)}" if diverged else ""
    return None, f"nothing is stuck: {run} trains at {rate}{last}{skipped}", ""


def _is_wanted(state: RunState, worker: WorkerState) -> bool:
    """Whether it is to run: neither scaled away, nor one that joined on its own and left."""
    if worker.kind == "learner":
        return state.learners > 0
    if worker.kind == "actor":
        joined = worker.index >= JOINED_FROM
        return worker.running if joined else worker.index < state.actors_wanted
    return True


def diverged_text(steps: int) -> str:
    return (
        f"updates that were not finite were skipped, and {steps:,} steps with them: check the "
        "environment's rewards, or lower algorithm.learning_rate"
    )


def damaged_text(count: int) -> str:
    return f"{count:,} messages in experiences could not be read: the learner's log names them"
