"""A population as the log has it: members train side by side, and at the end of each generation the
worst go on from where the best are, with other values.

    members = read_members(spec, states, results, values_of)
    plan = next_generation(spec, members, explored, seed)     # what everybody does next, or None

Both are functions of what the log says, so whoever begins in the middle decides as before. A member
is a line of runs: it goes on in its run, or in a fork of another's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from rookery.control.run_state import RunState
from rookery.tuning.proposals import drawn
from rookery.tuning.space import Choice, Range, Search, Values
from rookery.tuning.spec import SweepSpec
from rookery.tuning.trials import (
    Attempt,
    AttemptStatus,
    Result,
    Stage,
    Trial,
    command_id,
    status_of_run,
)

CUT = 4  # one of so many is replaced by one of so many of the best
FACTORS = (0.8, 1.25)  # that a value is multiplied by
DRAW_ANEW = 0.25  # how often it is drawn from the whole range instead


@dataclass(frozen=True)
class Member:
    """One line of runs."""

    number: int
    stages: tuple[Stage, ...]  # of each generation that it has begun
    status: AttemptStatus  # in the newest of them
    attempt: Attempt

    @property
    def generation(self) -> int:
        return len(self.stages) - 1

    @property
    def is_settled(self) -> bool:
        """Nothing more comes of the generation that it is in."""
        return self.status in ("done", "failed")

    @property
    def value(self) -> float:
        """How well it plays; the worst there is where it failed."""
        found = self.stages[-1].value
        return -math.inf if found is None or self.status == "failed" else found


@dataclass(frozen=True)
class Move:
    """What a member does in the next generation."""

    number: int
    generation: int
    donor: Member | None = None  # of whom it is a fork; None: it goes on as it is
    values: Values | None = None


def read_members(
    spec: SweepSpec,
    states: Mapping[str, RunState],
    results: Mapping[str, Result],
    values_of: Callable[[Mapping[str, Any]], Values],
) -> list[Member]:
    """Those that have a run, by number."""
    made = {state.created_by: state for state in states.values()}
    found = (_member(spec, number, made, results, values_of) for number in range(spec.trials))
    return [member for member in found if member is not None]


def _member(
    spec: SweepSpec,
    number: int,
    made: Mapping[str, RunState],
    results: Mapping[str, Result],
    values_of: Callable[[Mapping[str, Any]], Values],
) -> Member | None:
    state: RunState | None = None
    stages: list[Stage] = []
    status: AttemptStatus = "to do"
    for generation in range(spec.generations):
        forked = made.get(command_id(spec.id, number, generation))
        if forked is None and (state is None or not _goes_on(spec, number, generation, state)):
            break
        state = forked or state
        assert state is not None
        judged = command_id(spec.id, number, generation, "evaluate")
        status, result = status_of_run(state, judged, "", results)
        parent = _parent(state) if forked is not None and generation else ""
        values = values_of(state.config["config"])
        stages.append(
            Stage(number, generation, state.id, parent, values, result.mean, result.error)
        )
        if status not in ("done", "failed"):
            break
    if state is None:
        return None
    last = stages[-1]
    attempt = Attempt(
        number,
        last.generation,
        status,
        run=state.id,
        config=state.config["config"],
        value=last.value,
        why=last.why,
        env_steps=state.env_steps,
        train_s=state.train_s or 0.0,
    )
    return Member(number, tuple(stages), status, attempt)


def _goes_on(spec: SweepSpec, number: int, generation: int, state: RunState) -> bool:
    """Whether it was asked to train in its run for another generation."""
    asked = command_id(spec.id, number, generation, "go on")
    return asked in state.commands or asked in state.answered


def _parent(state: RunState) -> str:
    parent = state.config["config"].get("parent") or {}
    return f"{parent['run']}@{parent['version']}" if parent.get("run") else ""


def trials_of(spec: SweepSpec, members: Sequence[Member]) -> list[Trial]:
    """As tables show them: a member is over with its last generation, or when all have failed."""
    last = spec.generations - 1
    lost = len(members) == spec.trials and all(member.status == "failed" for member in members)
    found = []
    for member in members:
        attempt, over = member.attempt, member.generation == last or lost
        if member.is_settled and not over:
            attempt = replace(attempt, status="going", value=None, why="")
        values = member.stages[-1].values
        found.append(Trial(member.number, values, (attempt,), ancestry(members, member)))
    return found


def ancestry(members: Sequence[Member], member: Member) -> tuple[Stage, ...]:
    """The generations of a member, those before a fork being the donor's: how it came to be."""
    by_run = {stage.run: each for each in members for stage in each.stages}
    found: list[Stage] = []
    generation, whose = member.generation, member
    while generation >= 0:
        stage = whose.stages[generation]
        found.append(stage)
        if stage.parent:
            whose = by_run[stage.parent.rpartition("@")[0]]
        generation -= 1
    return tuple(reversed(found))


def next_generation(
    spec: SweepSpec, members: Sequence[Member], explored: Collection[str], seed: int
) -> list[Move]:
    """What everybody does next, forks first: a donor that goes on is no longer where it was judged.

    Empty where some still train, and where there is no next generation.
    """
    now = min((member.generation for member in members), default=0)
    there = [_at(member, now) for member in members]
    if len(members) < spec.trials or not all(member.is_settled for member in there):
        return []
    ranked = sorted(there, key=lambda member: (-member.value, member.number))
    if now + 1 == spec.generations or ranked[0].value == -math.inf:
        return []
    share = max(1, len(ranked) // CUT)
    best, worst = ranked[:share], {member.number for member in ranked[-share:]}
    moves = []
    for member in there:
        rng = np.random.default_rng([seed, now + 1, member.number])
        donor = best[int(rng.integers(len(best)))]
        if (member.number in worst or member.status == "failed") and donor.value > member.value:
            values = perturbed(spec.space, donor.stages[-1].values, explored, rng)
            moves.append(Move(member.number, now + 1, donor, values))
        else:
            moves.append(Move(member.number, now + 1))
    return sorted(moves, key=lambda move: move.donor is None)


def _at(member: Member, generation: int) -> Member:
    """As it was at the end of a generation, where it may be in the next one already."""
    if member.generation == generation:
        return member
    stages = member.stages[: generation + 1]
    status: AttemptStatus = "failed" if stages[-1].value is None else "done"
    return Member(member.number, stages, status, member.attempt)


def perturbed(
    search: Search, values: Values, explored: Collection[str], rng: np.random.Generator
) -> Values:
    """Another point near by: what is explored is multiplied by a factor, or drawn anew."""
    found = dict(values)
    for key in values:
        if key not in explored:
            continue
        domain = search[key].domain
        if rng.random() < DRAW_ANEW:
            found[key] = drawn(domain, rng)
        elif isinstance(domain, Range):
            factor = FACTORS[int(rng.integers(len(FACTORS)))]
            found[key] = _moved(float(values[key]), factor, domain)
    return found


def _moved(value: float, factor: float, domain: Range) -> float:
    moved = min(max(value * factor, domain.low), domain.high)
    return round(moved) if domain.integer else moved


def explored_keys(search: Search, live: Collection[str]) -> list[str]:
    """What may change while a run trains, and is searched: numbers."""
    return [
        dimension.key
        for dimension in search.dimensions
        if dimension.key in live and not _has_words(dimension.domain)
    ]


def _has_words(domain: Choice | Range) -> bool:
    if isinstance(domain, Range):
        return False
    return not all(isinstance(option, int | float) for option in domain.options)


def changes_of(
    spec: SweepSpec, stages: Sequence[Stage], explored: Sequence[str], steps: int
) -> list[dict[str, Any]]:
    """The schedule that a line of runs had, as a config has it: what changed, and when."""
    found = []
    for before, stage in pairwise(stages):
        values = {
            key: float(stage.values[key])
            for key in explored
            if key in stage.values and stage.values[key] != before.values.get(key)
        }
        if values:
            at = spec.bound(steps, before.generation)
            found.append({"steps": at, "set": values})
    return found
