"""What a person or a script is told about runs: read from the log, the bus and the checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from rookery.bus import EARLIEST, Bus
from rookery.control.balance import balance
from rookery.control.home import Home
from rookery.control.run_state import ACTIVE, ENDED, RUNNING, RunState, WorkerState
from rookery.errors import DamagedCheckpoint
from rookery.messages import (
    METRICS_TRAINING,
    LedgerSummary,
    TrainingMetrics,
    decode_or_none,
)

STALE_S = 5.0  # a learner that trains reports every second


def status_of(home: Home, state: RunState) -> str:
    """The status as it is now: a run whose owner died is `interrupted`."""
    return status_now(state, state.desired != RUNNING or home.is_owned(state.id))


def status_now(state: RunState, owned: bool) -> str:
    if state.desired == RUNNING and not owned and not state.start_asked:
        return "interrupted"
    return state.status


def training_history(home: Home, run: str) -> Iterator[TrainingMetrics]:
    """All training metrics that are kept, without stretches that a later life did over."""
    bus = home.read_run_bus(home.state(run))
    if bus is None:
        return
    kept: list[TrainingMetrics] = []
    subscription = bus.subscribe(METRICS_TRAINING, EARLIEST)
    while records := subscription.poll(0.0, limit=4096):
        for record in records:
            metrics = decode_or_none(record.payload, TrainingMetrics)
            if metrics is None:
                continue
            while kept and kept[-1].updates > metrics.updates:
                kept.pop()
            kept.append(metrics)
    bus.close()
    yield from kept


def newest_training(bus: Bus | None, run: str) -> TrainingMetrics | None:
    record = bus.newest(METRICS_TRAINING, run) if bus is not None else None
    return decode_or_none(record.payload, TrainingMetrics) if record else None


def train_result(home: Home, state: RunState, began: float) -> dict[str, Any]:
    """The JSON object of `rookery train`."""
    bus = home.read_run_bus(state)
    metrics = newest_training(bus, state.id)
    if bus is not None:
        bus.close()
    return {
        "run": state.id,
        "status": state.status,
        "reason": state.reason,
        "env_steps": state.env_steps,
        "wall_s": round(time.time() - began, 3),
        "seats": len(state.config["spec"]["seats"]),
        **trained_so_far(metrics),
    }


def trained_so_far(metrics: TrainingMetrics | None) -> dict[str, Any]:
    """The part of that object which the learner's newest metrics tell."""
    if metrics is None:
        return {"train_s": None, "steps_per_s": None, "mean_return_100": None}
    found: dict[str, Any] = {
        "env_steps": metrics.env_steps,
        "train_s": round(metrics.train_s, 3),
        "steps_per_s": round(metrics.steps_per_s, 1),
        "mean_return_100": metrics.mean_return_100,
        "mean_length_100": metrics.mean_length_100,
        "episodes": metrics.episodes,
        "updates": metrics.updates,
        "lag_max": metrics.lag_max,
    }
    if metrics.policies:
        policies = {n: p.mean_return_100 for n, p in metrics.policies.items()}
        found |= {"policies": policies, "seat_returns": metrics.seats}
    if metrics.league is not None:
        found["league"] = msgspec.to_builtins(metrics.league)
    return found


def list_rows(home: Home) -> list[dict[str, Any]]:
    """Opens the bus of runs that go on, and once of each that ended and whose log does not say how
    far it came."""
    rows, found_out = [], []
    for known in home.states().values():
        has_ended, state = known.status in ENDED, known
        if known.status in ACTIVE or (has_ended and known.updates is None):
            state = _as_reported(home, known)
            found_out += [state] if has_ended else []
        config = state.config["config"]
        rows.append(
            {
                "run": state.id,
                "environment": config["environment"]["id"],
                "algorithm": config["algorithm"]["kind"],
                "status": status_of(home, state),
                "env_steps": state.env_steps,
                "mean_return_100": state.mean_return_100,
                "created": time.strftime("%Y-%m-%d %H:%M", time.localtime(state.created_s)),
            }
        )
    if found_out:
        home.remember(found_out)
    return rows


def _as_reported(home: Home, state: RunState) -> RunState:
    """With what the run's learner last reported, if it ever did."""
    bus = home.read_run_bus(state)
    metrics = newest_training(bus, state.id)
    if bus is not None:
        bus.close()
    if metrics is None:
        return msgspec.structs.replace(state, updates=state.updates or 0)
    steps, updates, mean = metrics.env_steps, metrics.updates, metrics.mean_return_100
    return msgspec.structs.replace(state, env_steps=steps, updates=updates, mean_return_100=mean)


def show(home: Home, run: str) -> dict[str, Any]:
    """The JSON object of `rookery runs show`."""
    from rookery.checkpoints.store import open_store

    state = home.state(run)
    config = home.config(state)
    bus = home.read_run_bus(state)
    ledger, version, metrics = last_ledger(home, state, bus)
    found = balance(bus, ledger)
    store = open_store(home.files_of(state).checkpoints)
    result = {
        "run": run,
        "environment": config.environment.id,
        "algorithm": config.algorithm.kind,
        "status": status_of(home, state),
        "reason": state.reason,
        "env_steps": ledger.trained,
        "mean_return_100": metrics.mean_return_100 if metrics else None,
        "steps_per_s": metrics.steps_per_s if metrics else None,
        "workers": [_worker_row(worker) for worker in state.workers.values()],
        "balance": {
            "produced": found.produced,
            "trained": found.trained,
            "dropped": found.dropped,
            "in_flight": found.in_flight,
            "exact": found.exact,
        },
        "duplicates": ledger.duplicates,
        "damaged": ledger.damaged,
        "gaps": ledger.gaps,
        "lag_max": metrics.lag_max if metrics else None,
        "weights_version": version,
        "checkpoints": store.names(),
        "damaged_checkpoints": state.damaged,
        "directory": str(home.run_dir(run)),
        "seats": seats_of(state),
        "policies": msgspec.to_builtins(metrics.policies) if metrics else {},
        "seat_returns": metrics.seats if metrics else {},
        "league": msgspec.to_builtins(metrics.league) if metrics and metrics.league else None,
    }
    if bus is not None:
        bus.close()
    return result


def seats_of(state: RunState) -> dict[str, Any]:
    """Who sits where, as it was written or last changed; empty: the policy everywhere."""
    found: dict[str, Any] = state.seats or state.config["config"].get("seats", {})
    return found


def last_ledger(
    home: Home, state: RunState, bus: Bus | None
) -> tuple[LedgerSummary, str | None, TrainingMetrics | None]:
    """The learner's last word on its ledger: its newest metrics, or its newest checkpoint.

    A life that ended without a checkpoint takes its metrics with it: what counts then is what the
    next learner will go on from.
    """
    from rookery.checkpoints.checkpoint import newest_checkpoint  # numpy: a list needs none
    from rookery.checkpoints.store import open_store
    from rookery.learner.manifest import LearnerManifest, pending_fragments

    metrics = newest_training(bus, state.id)
    learner = next((w for w in state.workers.values() if w.kind != "actor"), None)
    alive = learner is not None and learner.running and home.is_owned(state.id)
    if metrics is not None and (alive or learner is None):
        return metrics.ledger, f"{metrics.generation}.{metrics.updates}", metrics
    try:
        store = open_store(home.files_of(state).checkpoints)
        checkpoint = newest_checkpoint(store, LearnerManifest)
    except DamagedCheckpoint:
        checkpoint = None
    if checkpoint is None:
        empty = LedgerSummary(trained=0, dropped={}, pending=0, position=(), seen={})
        return empty, None, metrics
    manifest = checkpoint.manifest
    pending = sum(fragment.header.steps for _, fragment in pending_fragments(checkpoint))
    summary = manifest.ledger.summary(pending, manifest.position)
    return summary, str(manifest.version), metrics


def _worker_row(worker: WorkerState) -> dict[str, Any]:
    return {
        "kind": worker.kind,
        "index": worker.index,
        "incarnation": worker.incarnation,
        "pid": worker.pid,
        "alive": worker.running and worker.pid is not None and _alive(worker.pid),
        "restarts": worker.restarts,
        "last_error": worker.last_error,
    }


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
