"""What a person or a script is told about runs in a line each, and how a training ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from rookery.bus import Bus
from rookery.control.home import Home
from rookery.control.known_run import KnownRun
from rookery.control.models import RunRow
from rookery.control.run_state import ACTIVE, ENDED, RUNNING, STOPPED, RunState
from rookery.messages import METRICS_TRAINING, TrainingMetrics, decode_or_none

STALE_S = 5.0  # a learner that trains reports every second


def owner_of(home: Home, state: RunState) -> str:
    """Who carries the run now: server, terminal, or empty. Of one at rest nobody needs to know."""
    return (state.owned_by or "terminal") if is_busy(state) and home.is_owned(state.id) else ""


def is_busy(state: RunState) -> bool:
    """Whether somebody may be at it; looking who is costs a file."""
    return state.status in ACTIVE or bool(state.commands or state.jobs)


def status_now(state: RunState, owned: bool) -> str:
    """The status as it is now: a run whose owner died is `interrupted`, and one that was asked to
    stop before that has stopped."""
    if owned or state.status not in ACTIVE:
        return state.status
    if state.desired == RUNNING and not state.start_asked:
        return "interrupted"
    return "stopped" if state.desired == STOPPED else state.status


def read_training(home: Home, state: RunState) -> TrainingMetrics | None:
    """The run's newest metrics, from its bus."""
    bus = home.read_run_bus(state)
    if bus is None:
        return None
    with contextlib.closing(bus):
        return newest_training(bus, state.id)


def newest_training(bus: Bus | None, run: str) -> TrainingMetrics | None:
    record = bus.newest(METRICS_TRAINING, run) if bus is not None else None
    return decode_or_none(record.payload, TrainingMetrics) if record else None


def train_result(
    row: RunRow, seats: int | None, metrics: TrainingMetrics | None, began: float
) -> dict[str, Any]:
    """The JSON object of `rookery train`; `seats`: how many the environment has; `began`: by the
    clock that nobody can set."""
    return {
        "run": row.run,
        "status": row.status,
        "reason": row.reason,
        "env_steps": row.env_steps,
        "wall_s": round(time.monotonic() - began, 3),
        "seats": seats,
        **_trained_so_far(metrics),
    }


def result_here(home: Home, state: RunState, began: float) -> dict[str, Any]:
    """That object of a run that this process has carried."""
    metrics = read_training(home, state)
    row = make_row(state, "terminal", metrics, time.time())
    return train_result(row, len(state.config["spec"]["seats"]), metrics, began)


def _trained_so_far(metrics: TrainingMetrics | None) -> dict[str, Any]:
    """The part of that object which the learner's newest metrics tell."""
    if metrics is None:
        return {"train_s": None, "steps_per_s": None, "mean_return_100": None}
    found: dict[str, Any] = {
        "env_steps": metrics.env_steps,
        "train_s": round(metrics.train_s, 3),
        "steps_per_s": rate(metrics.env_steps, metrics.train_s),
        "steady_steps_per_s": round(metrics.steps_per_s, 1),
        "policy": metrics.policy,
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


def rate(env_steps: int, train_s: float) -> float:
    """Steps a second of training, by one clock; 0 where it has not begun."""
    return round(env_steps / train_s, 1) if train_s > 0 else 0.0


def read_runs(home: Home) -> list[KnownRun]:
    """Every run, oldest first. Opens the bus of runs that go on, and once of each that ended and
    whose log does not say how far it came."""
    rows, found_out, now_s = dict[str, RunRow](), list[RunState](), time.time()
    states = list(home.states().values())
    for state in states:
        has_ended, metrics = state.status in ENDED, None
        if state.status in ACTIVE or (has_ended and _is_untold(state)):
            metrics = read_training(home, state)
            found_out += [_as_reported(state, metrics)] if has_ended else []
        owner = owner_of(home, state)
        frozen = bool(owner) and home.owner_frozen(state.id)
        rows[state.id] = make_row(state, owner, metrics, now_s, frozen)
    if found_out:
        home.remember(found_out)
    return [KnownRun(state, lambda known: rows[known.id]) for state in states]


def _as_reported(state: RunState, metrics: TrainingMetrics | None) -> RunState:
    """With what the run's learner last reported, if it ever did."""
    if metrics is None:
        return msgspec.structs.replace(state, updates=state.updates or 0)
    steps, updates, mean = metrics.env_steps, metrics.updates, metrics.mean_return_100
    return msgspec.structs.replace(state, env_steps=steps, updates=updates, mean_return_100=mean)


def make_row(
    state: RunState,
    owner: str,
    training: TrainingMetrics | None,
    now_s: float,
    owner_frozen: bool = False,
) -> RunRow:
    """Built without validation: every part was checked when it was read."""
    config = _part(state.config, "config")
    status = status_now(state, bool(owner))
    age_s = abs(now_s - training.time_s) if training is not None else 0.0  # clocks may go back
    fresh = training is not None and status == "running" and age_s < STALE_S
    at_work = bool(owner) and state.status in ACTIVE  # else what was trained since is lost
    training = training if at_work or _is_untold(state) else None
    return RunRow.model_construct(
        run=state.id,
        environment=str(_part(config, "environment").get("id", "")),
        algorithm=str(_part(config, "algorithm").get("kind", "")),
        status=status,
        reason=state.reason,
        desired=state.desired,
        created_s=state.created_s,
        env_steps=training.env_steps if training else state.env_steps,
        updates=training.updates if training else state.updates or 0,
        mean_return_100=training.mean_return_100 if training else state.mean_return_100,
        steps_per_s=training.recent_steps_per_s if training and fresh else None,
        lag_mean=training.lag_mean if training else None,
        actors=living_actors(state) if owner else 0,
        actors_wanted=state.actors_wanted,
        owner=owner,
        owner_frozen=owner_frozen,
        name=state.name,
        tags=state.tags,
        group=state.group,
        parent=parent_of(config),
    )


def parent_of(config: Mapping[str, Any]) -> str:
    """What a run was forked from, RUN@VERSION; empty: from nobody."""
    parent = _part(config, "parent")
    return f"{parent.get('run')}@{parent.get('version')}" if parent.get("run") else ""


def _is_untold(state: RunState) -> bool:
    """Whether the log does not say how far the run came: an older Rookery's, or one that knows
    nothing of its learner."""
    learned = any(worker.kind != "actor" for worker in state.workers.values())
    return state.updates is None and (state.checkpoint is not None or not learned)


def living_actors(state: RunState) -> int:
    return sum(w.running and w.kind in ("actor", "inline") for w in state.workers.values())


def _part(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A part of a config that nobody has checked yet."""
    found = mapping.get(key)
    return found if isinstance(found, Mapping) else {}
