"""One run at a glance: its row, and what only its bus and its checkpoints can tell. Slow."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from rookery.bus import Bus
from rookery.checkpoints.store import open_store
from rookery.config.live import effective, live_values
from rookery.config.models import RunConfig
from rookery.control.balance import balance
from rookery.control.home import Home
from rookery.control.models import RunDetail, RunRow, StepBalance, Worker
from rookery.control.queries import last_ledger, seats_of
from rookery.control.run_state import RunState, WorkerState
from rookery.messages import EXPERIENCES, ActorMetrics, LedgerSummary


def make_detail(
    home: Home,
    state: RunState,
    row: RunRow,
    actors: Mapping[str, ActorMetrics],
    queue: list[str],
) -> RunDetail:
    config = home.config(state)
    bus = home.read_run_bus(state)
    with contextlib.closing(bus) if bus is not None else contextlib.nullcontext():
        ledger, version, metrics = last_ledger(home, state, bus)
        found = balance(bus, ledger)
        unread = _unread(bus, ledger)
    return RunDetail(
        **row.model_dump(),
        workers=[_worker(worker, bool(row.owner), actors) for worker in state.workers.values()],
        balance=StepBalance(
            produced=found.produced,
            trained=found.trained,
            dropped=found.dropped,
            in_flight=found.in_flight,
            exact=found.exact,
        ),
        weights_version=version,
        lag_max=metrics.lag_max if metrics else None,
        bus_lag=unread,
        checkpoints=list(open_store(home.files_of(state).checkpoints).names()),
        hyperparameters=live_values(effective(config, state.hyperparameters)),
        seats=seats_of(state),
        max_actors=state.max_actors,
        queue_position=queue.index(state.id) + 1 if state.id in queue else None,
    )


def config_now(state: RunState, config: RunConfig) -> dict[str, Any]:
    """The run's config with everything that was changed since."""
    found = effective(config, state.hyperparameters).model_dump(mode="json")
    if state.seats is not None:
        found |= {"seats": dict(state.seats), "seat_map": ""}
    if state.actors:  # no config has 0: a run that was scaled to that shows what it began with
        found["actors"] |= {"count": state.actors}
    return found


def _unread(bus: Bus | None, ledger: LedgerSummary) -> int | None:
    if bus is None:
        return None
    return max(0, sum(bus.end(EXPERIENCES)) - sum(ledger.position))


def _worker(worker: WorkerState, owned: bool, actors: Mapping[str, ActorMetrics]) -> Worker:
    alive = worker.running and owned
    said = actors.get(f"{worker.index}.{worker.incarnation}") if worker.kind == "actor" else None
    return Worker(
        kind=worker.kind,
        index=worker.index,
        incarnation=worker.incarnation,
        pid=worker.pid,
        alive=alive,
        restarts=worker.restarts,
        last_error=worker.last_error,
        steps_per_s=said.steps_per_s if said and alive else None,
        doing=said.doing if said and alive else None,
    )
