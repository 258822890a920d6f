"""`rookery replay`: a new run that trains on what another one has recorded."""

from __future__ import annotations

import re
from typing import Any

from rookery.actor.rollouts.recorded import recorded_steps
from rookery.bus import Position
from rookery.config.algorithm import find
from rookery.config.kinds import ALGORITHMS
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.control.create import send_new
from rookery.control.home import Home
from rookery.errors import InputError


def replay_run(
    home: Home, run: str, into: str, start: Position, passes: int, seed: int | None
) -> str:
    """Create the new run; its actor reads the other's log instead of playing."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", into):
        raise InputError(f"run name {into!r}: use lower-case letters, digits and dashes")
    if into in home.states():
        raise InputError(f"run {into} exists already: choose another name for --into")
    state = home.state(run)
    old = home.config(state)
    bus = home.read_run_bus(state)
    if bus is None:
        raise InputError(f"run {run} has recorded nothing: its bus is gone")
    steps = recorded_steps(bus, start)
    bus.close()
    if not steps:
        raise InputError(
            f"the log holds no experience of run {run} any more: the embedded bus keeps only what "
            "a resume needs; record on Kafka, whose retention you set"
        )

    async def known(order: object) -> dict[str, Any]:
        spec: dict[str, Any] = state.config["spec"]
        return spec

    config = _config(old, run, start, steps * passes, seed)
    return send_new(home, config, known, start=False, wait_s=0.0, run=into).run


def _config(old: RunConfig, run: str, start: Position, steps: int, seed: int | None) -> RunConfig:
    kept = old.model_dump(mode="json", include={"environment", "network", "bus", "seats", "train"})
    actors = {
        "count": 1,
        "envs_per_actor": old.actors.envs_per_actor,
        "rollout_steps": old.actors.rollout_steps,
    }
    if old.policies:
        raise InputError(f"run {run} has several policies: only runs of one can be replayed yet")
    return build(
        kept,
        {
            "algorithm": {"kind": next(k for k in ALGORITHMS if find(k).corrects_staleness)},
            "actors": actors,
            "seed": old.seed if seed is None else seed,
        },
        {"stop": {"steps": steps}, "replay": {"run": run, "start": list(start)}},
    )
