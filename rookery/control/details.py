"""One run at a glance: its row, and what only its bus and its checkpoints can tell. Slow."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rookery.bus import Bus
from rookery.checkpoints.checkpoint import load_checkpoint, newest_manifest
from rookery.checkpoints.store import CheckpointStore, open_store
from rookery.config.live import effective_now, live_values
from rookery.config.models import RunConfig
from rookery.control.balance import balance
from rookery.control.evidence import newest_actors
from rookery.control.home import Home
from rookery.control.models import RunDetail, RunRow, StepBalance, Worker
from rookery.control.queries import make_row, newest_training, owner_of
from rookery.control.queue import waits_for
from rookery.control.run_state import RunState, WorkerState
from rookery.errors import DamagedCheckpoint
from rookery.learner.manifest import LearnerManifest, pending_fragments
from rookery.learner.report import Report
from rookery.messages import (
    EXPERIENCES,
    JOINED_FROM,
    ActorMetrics,
    LedgerSummary,
    TrainingMetrics,
)


def show(home: Home, run: str) -> dict[str, Any]:
    """The JSON object of `rookery runs show`."""
    found = read_detail(home, home.state(run)).model_dump()
    return {**found, "directory": str(home.run_dir(run))}


def read_detail(home: Home, state: RunState) -> RunDetail:
    """By whoever has nothing of the run in memory."""
    bus = home.read_run_bus(state)
    with contextlib.closing(bus) if bus is not None else contextlib.nullcontext():
        actors = {said.actor: said for said in newest_actors(bus, state).values()}
        training, owner = newest_training(bus, state.id), owner_of(home, state)
        frozen = bool(owner) and home.owner_frozen(state.id)
        row = make_row(state, owner, training, time.time(), frozen)
    return make_detail(home, state, row, actors, ())


def make_detail(
    home: Home,
    state: RunState,
    row: RunRow,
    actors: Mapping[str, ActorMetrics],
    queue: Sequence[str],
) -> RunDetail:
    config = home.config(state)
    bus = home.read_run_bus(state)
    with contextlib.closing(bus) if bus is not None else contextlib.nullcontext():
        ledger, version, metrics = last_ledger(home, state, bus)
        found = balance(bus, ledger)
        unread = _unread(bus, ledger)
    league = metrics.league if metrics is not None else None
    return RunDetail(
        **{**row.model_dump(), "env_steps": ledger.trained, **_judged(metrics)},
        notes=state.notes,
        workers=[_worker(worker, bool(row.owner), actors) for worker in state.workers.values()],
        balance=StepBalance(
            produced=found.produced,
            trained=found.trained,
            dropped=found.dropped,
            in_flight=found.in_flight,
            exact=found.exact,
        ),
        weights_version=version,
        device=metrics.device if metrics else "",
        lag_max=metrics.lag_max if metrics else None,
        bus_lag=unread,
        checkpoints=list(open_store(home.files_of(state).checkpoints).names()),
        hyperparameters=live_values(effective_now(config, state.env_steps, state.hyperparameters)),
        seats=state.seats or state.config["config"].get("seats", {}),
        seat_names=list(home.spec(state).seats),
        max_actors=state.max_actors,
        queue_position=queue.index(state.id) + 1 if state.id in queue else None,
        waits_for=waits_for(home, state),
        duplicates=ledger.duplicates,
        damaged=ledger.damaged,
        gaps=ledger.gaps,
        damaged_checkpoints=state.damaged,
        train_s=metrics.train_s if metrics else None,
        episodes=metrics.episodes if metrics else None,
        policy=_whose(config, metrics),
        policies=msgspec.to_builtins(metrics.policies) if metrics else {},
        seat_returns=metrics.seats if metrics else {},
        league=msgspec.to_builtins(league) if league is not None else None,
    )


def config_now(state: RunState, config: RunConfig) -> dict[str, Any]:
    """The run's config with everything that was changed since."""
    found = effective_now(config, state.env_steps, state.hyperparameters).model_dump(mode="json")
    if state.seats is not None:
        found |= {"seats": dict(state.seats), "seat_map": ""}
    if state.actors:  # no config has 0: a run that was scaled to that shows what it began with
        found["actors"] |= {"count": state.actors}
    if state.learners:
        found["learner"] |= {"count": state.learners}
    return found


def _whose(config: RunConfig, metrics: TrainingMetrics | None) -> str:
    """Whose return it is: the episodes of a replay were played by another run's policy."""
    if config.replay.run:
        return f"{config.replay.run}, as recorded"
    return metrics.policy if metrics else ""


def _judged(metrics: TrainingMetrics | None) -> dict[str, Any]:
    """What a row has from metrics, from the same ones as all else; None: nothing is trained."""
    if metrics is None:
        return {"updates": 0, "mean_return_100": None}
    return {"updates": metrics.updates, "mean_return_100": metrics.mean_return_100}


def last_ledger(
    home: Home, state: RunState, bus: Bus | None
) -> tuple[LedgerSummary, str | None, TrainingMetrics | None]:
    """The learner's last word: its newest metrics, or what its newest checkpoint says.

    A life that ended without a checkpoint takes its metrics with it: what counts then is what the
    next learner will go on from.
    """
    metrics = newest_training(bus, state.id)
    learner = next((w for w in state.workers.values() if w.kind != "actor"), None)
    alive = learner is not None and learner.running and home.is_owned(state.id)
    if metrics is not None and (alive or learner is None):
        return metrics.ledger, f"{metrics.generation}.{metrics.updates}", metrics
    store = open_store(home.files_of(state).checkpoints)
    manifest = newest_manifest(store, LearnerManifest, state.damaged)
    if manifest is None:
        empty = LedgerSummary(trained=0, dropped={}, pending=0, position=(), seen={})
        return empty, None, None
    summary = manifest.ledger.summary(_pending(store, manifest), manifest.position)
    if metrics is None or (metrics.generation, metrics.updates) != tuple(manifest.version):
        metrics = _told_then(state, manifest, summary, metrics)
    return summary, str(manifest.version), metrics


def _told_then(
    state: RunState,
    manifest: LearnerManifest,
    ledger: LedgerSummary,
    since: TrainingMetrics | None,
) -> TrainingMetrics:
    """What the learner would have reported at its checkpoint; `since`: what it said later, which is
    lost but for what does not count steps."""
    seats = len(state.config["spec"]["seats"])
    report = Report(state.id, manifest.windows, seats, manifest.train_s)
    then = report.metrics(manifest.version, 0.0, ledger, since.lag_max if since else 0)
    if since is None:
        return then
    return msgspec.structs.replace(then, device=since.device, league=since.league)


def _pending(store: CheckpointStore, manifest: LearnerManifest) -> int:
    """The steps of half-built batches; of an older Rookery's checkpoint only the arrays tell."""
    if manifest.pending_steps is not None or not manifest.pending:
        return manifest.pending_steps or 0
    try:
        checkpoint = load_checkpoint(store, manifest.name, LearnerManifest)
    except DamagedCheckpoint:
        return 0
    return sum(fragment.header.steps for _, fragment in pending_fragments(checkpoint))


def _unread(bus: Bus | None, ledger: LedgerSummary) -> int | None:
    if bus is None:
        return None
    return max(0, sum(bus.end(EXPERIENCES)) - sum(ledger.position))


def _worker(worker: WorkerState, owned: bool, actors: Mapping[str, ActorMetrics]) -> Worker:
    alive = worker.running and owned and _lives(worker)
    said = actors.get(f"{worker.index}.{worker.incarnation}") if worker.kind == "actor" else None
    return Worker(
        kind=worker.kind,
        index=worker.index,
        incarnation=worker.incarnation,
        pid=worker.pid,
        host=worker.host,
        waits_for=worker.waits_for if owned else "",
        alive=alive,
        restarts=worker.restarts,
        last_error=worker.last_error,
        steps_per_s=said.steps_per_s if said and alive else None,
        doing=said.doing if said and alive else None,
    )


def _lives(worker: WorkerState) -> bool:
    """Whether its process is still there, a moment before its owner says so. Who joined on its own
    may be on another machine, and so may whoever has a node."""
    if worker.pid is None or worker.index >= JOINED_FROM or worker.host:
        return True
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
