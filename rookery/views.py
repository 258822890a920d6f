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
from rookery.control.run_state import RUNNING, RunState, WorkerState
from rookery.errors import DamagedCheckpoint
from rookery.learner.checkpoint import newest_checkpoint, pending_fragments
from rookery.learner.store import open_store
from rookery.messages import (
    JOINED_FROM,
    METRICS_ACTORS,
    METRICS_TRAINING,
    ActorMetrics,
    LedgerSummary,
    TrainingMetrics,
    decode_json,
    decode_or_none,
)

STALE_S = 5.0  # a learner that trains reports every second


def status_of(home: Home, state: RunState) -> str:
    """The status as it is now: a run whose owner died is `interrupted`."""
    return status_now(state, home.is_owned(state.id))


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
    rows = []
    for state in home.states().values():
        config = state.config["config"]
        bus = home.read_run_bus(state)
        metrics = newest_training(bus, state.id)
        if bus is not None:
            bus.close()
        rows.append(
            {
                "run": state.id,
                "environment": config["environment"]["id"],
                "algorithm": config["algorithm"]["kind"],
                "status": status_of(home, state),
                "env_steps": metrics.env_steps if metrics else state.env_steps,
                "mean_return_100": metrics.mean_return_100 if metrics else None,
                "created": time.strftime("%Y-%m-%d %H:%M", time.localtime(state.created_s)),
            }
        )
    return rows


def show(home: Home, run: str) -> dict[str, Any]:
    """The JSON object of `rookery runs show`."""
    state = home.state(run)
    config = home.config(state)
    bus = home.read_run_bus(state)
    ledger, version, metrics = last_ledger(home, state, bus)
    found = balance(bus, ledger)
    store = open_store(home.checkpoint_uri(run, config))
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
    metrics = newest_training(bus, state.id)
    learner = next((w for w in state.workers.values() if w.kind != "actor"), None)
    alive = learner is not None and learner.running and home.is_owned(state.id)
    if metrics is not None and (alive or learner is None):
        return metrics.ledger, f"{metrics.generation}.{metrics.updates}", metrics
    try:
        store = open_store(home.checkpoint_uri(state.id, home.config(state)))
        checkpoint = newest_checkpoint(store)
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


def show_text(found: dict[str, Any]) -> str:
    balance_ = found["balance"]
    dropped = sum(balance_["dropped"].values())
    reasons = ", ".join(f"{why} {n:,}" for why, n in balance_["dropped"].items())
    lines = [
        f"{found['run']}  {found['environment']}  {found['algorithm']}  {found['status']}"
        + (f" ({found['reason']})" if found["reason"] else ""),
        f"  steps      {found['env_steps']:,}"
        + (f"   return {found['mean_return_100']:.1f}" if found["mean_return_100"] else ""),
        f"  balance    produced {balance_['produced']:,} = trained {balance_['trained']:,}"
        f" + dropped {dropped:,}{f' ({reasons})' if reasons else ''}"
        f" + in flight {balance_['in_flight']:,}"
        + ("" if balance_["exact"] else "   DOES NOT ADD UP"),
        f"  weights    {found['weights_version'] or '-'}",
    ]
    if found["damaged"]:
        lines.append(f"  damaged    {_damaged_text(found['damaged'])}")
    for name, policy in found["policies"].items():
        mean = policy["mean_return_100"]
        shown = "-" if mean is None else f"{mean:.2f}"
        lines.append(f"  policy     {name}: trained {policy['trained']:,} steps, return {shown}")
    for seat, mean in found["seat_returns"].items():
        lines.append(f"  seat       {seat}: return {mean:.2f}")
    league = found["league"]
    if league is not None:
        lines.append(
            f"  league     {league['snapshots']} snapshots, {league['rated_games']:,} rated games; "
            f"{league['newest']} at {league['rating']:.1f} ± {1.96 * league['uncertainty']:.1f}"
        )
    for worker in found["workers"]:
        state = f"pid {worker['pid']}" if worker["alive"] else "not running"
        error = f"   last error: {worker['last_error']}" if worker["last_error"] else ""
        lines.append(
            f"  {worker['kind']} {worker['index']}    {state}, {worker['restarts']} restarts{error}"
        )
    lines.append(f"  checkpoints {', '.join(found['checkpoints']) or 'none yet'}")
    lines.append(f"  directory  {found['directory']}")
    return "\n".join(lines)


def why(home: Home, run: str) -> dict[str, Any]:
    """Name what is stuck: the JSON object of `rookery why`."""
    state = home.state(run)
    status = status_of(home, state)
    bus = home.read_run_bus(state)
    metrics = newest_training(bus, run)
    actors = _newest_actors(bus, state)
    if bus is not None:
        bus.close()
    component, summary, detail = _diagnose(state, status, metrics, actors, time.time())
    return {
        "run": run,
        "status": status,
        "component": component,
        "summary": summary,
        "detail": detail,
    }


def _newest_actors(bus: Bus | None, state: RunState) -> dict[str, ActorMetrics]:
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
        name = f"{worst.kind}-{worst.index}" if worst else None
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
    skipped = f"; {_damaged_text(damaged)}" if damaged else ""
    return None, f"nothing is stuck: {run} trains at {rate}{last}{skipped}", ""


def _is_wanted(state: RunState, worker: WorkerState) -> bool:
    """Whether it is to run: neither scaled away, nor one that joined on its own and left."""
    if worker.kind == "learner":
        return state.learners > 0
    if worker.kind == "actor":
        joined = worker.index >= JOINED_FROM
        return worker.running if joined else worker.index < state.actors_wanted
    return True


def _damaged_text(count: int) -> str:
    return f"{count:,} messages in experiences could not be read: the learner's log names them"
