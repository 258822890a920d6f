"""The trials of a sweep as the log has them: a fold of its runs' states and their results.

    trials = read_trials(spec, states, results)

Nothing else is kept. A trial's run is found by the id of the command that created it, which follows
from the sweep, the trial's number and the seed; so do the ids of what the sweep asks of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from rookery.control.run_state import ACTIVE, DELETED, RunState
from rookery.messages import JobDone, ResumeRun, StartRun
from rookery.tuning.space import Values
from rookery.tuning.spec import SweepSpec

What = Literal["create", "evaluate", "prune", "go on"]
AttemptStatus = Literal[
    "to do", "going", "trained", "judged", "done", "pruned", "failed", "stopped"
]
TrialStatus = Literal["to do", "going", "done", "pruned", "failed", "stopped"]
BUSY = ("going", "trained", "judged")


@cache
def command_id(sweep: str, trial: int, seed: int, what: What = "create") -> str:
    """Of a command that the sweep sends, once and for all."""
    return hashlib.sha256(f"{sweep} {trial} {seed} {what}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Attempt:
    """One run of a trial, with a seed of its own."""

    trial: int
    seed: int  # its place among the trial's seeds
    status: AttemptStatus = "to do"
    run: str = ""
    config: Mapping[str, Any] | None = None
    value: float | None = None  # mean return of greedy fresh episodes
    std: float | None = None  # of those episodes
    why: str = ""
    env_steps: int = 0
    train_s: float = 0.0

    @property
    def is_busy(self) -> bool:
        return self.status in BUSY


@dataclass(frozen=True)
class Stage:
    """A generation of a population, as one member went through it."""

    member: int
    generation: int
    run: str
    parent: str  # RUN@VERSION where this generation began with a fork, else empty
    values: Values
    value: float | None
    why: str = ""


@dataclass(frozen=True)
class Trial:
    """A point of the space, and its runs; of a population: a member, and how it came to be."""

    number: int
    values: Values
    attempts: tuple[Attempt, ...]
    stages: tuple[Stage, ...] = ()

    @property
    def status(self) -> TrialStatus:
        found = {attempt.status for attempt in self.attempts}
        if self.is_busy:
            return "going"
        for status in ("failed", "pruned", "stopped"):
            if status in found:
                return status
        if found == {"done"}:
            return "done"
        return "to do" if found == {"to do"} else "going"

    @property
    def is_busy(self) -> bool:
        return any(attempt.is_busy for attempt in self.attempts)

    @property
    def is_over(self) -> bool:
        return self.status in ("done", "pruned", "failed")

    @property
    def is_at_rest(self) -> bool:
        """Over, or stopped until the sweep is resumed."""
        return self.is_over or self.status == "stopped"

    @property
    def next_seed(self) -> int | None:
        """That has no run yet, where one is of use."""
        if any(attempt.status in ("failed", "pruned", "stopped") for attempt in self.attempts):
            return None
        return next((a.seed for a in self.attempts if a.status == "to do"), None)

    @property
    def value(self) -> float | None:
        """The mean over its seeds; None: not all of them are judged."""
        found = [a.value for a in self.attempts if a.status == "done" and a.value is not None]
        return sum(found) / len(found) if len(found) == len(self.attempts) else None

    @property
    def why(self) -> str:
        return next((a.why for a in self.attempts if a.why), "")

    @property
    def env_steps(self) -> int:
        return sum(attempt.env_steps for attempt in self.attempts)


@dataclass(frozen=True)
class Result:
    """What came of an evaluation."""

    mean: float | None = None
    std: float | None = None
    error: str = ""


def result_of(done: JobDone, seats: Iterable[str]) -> Result:
    """By greedy play; where there are several seats, in those of the policy that learns."""
    if done.error:
        return Result(error=done.error)
    greedy = done.result.get("greedy")
    if not isinstance(greedy, dict):
        return Result(error="it has no greedy episodes")
    by_seat = greedy.get("seats", {})
    rows = [by_seat[seat] for seat in seats if seat in by_seat] or [greedy]
    return Result(
        sum(row["mean"] for row in rows) / len(rows), sum(row["std"] for row in rows) / len(rows)
    )


def read_trials(
    spec: SweepSpec,
    states: Mapping[str, RunState],
    results: Mapping[str, Result],
    values_of: Callable[[Mapping[str, Any]], Values],
) -> list[Trial]:
    """Those that have a run, by number; `results` are by the command that asked for them."""
    made = {state.created_by: state for state in states.values()}
    trials = []
    for number in range(spec.trials):
        attempts = tuple(
            _attempt(spec.id, number, seed, made.get(command_id(spec.id, number, seed)), results)
            for seed in range(spec.seeds)
        )
        config = next((a.config for a in attempts if a.config is not None), None)
        if config is not None:
            trials.append(Trial(number, values_of(config), attempts))
    return trials


def _attempt(
    sweep: str,
    trial: int,
    seed: int,
    state: RunState | None,
    results: Mapping[str, Result],
) -> Attempt:
    if state is None:
        return Attempt(trial, seed)
    judged, pruned = (command_id(sweep, trial, seed, what) for what in ("evaluate", "prune"))
    status, result = status_of_run(state, judged, pruned, results)
    return Attempt(
        trial,
        seed,
        status,
        run=state.id,
        config=state.config["config"],
        value=result.mean,
        std=result.std,
        why=result.error,
        env_steps=state.env_steps,
        train_s=state.train_s or 0.0,
    )


def status_of_run(
    state: RunState, judged: str, pruned: str, results: Mapping[str, Result]
) -> tuple[AttemptStatus, Result]:
    """Where a run is, by the ids of what would judge and prune it."""
    if judged in results:
        return ("failed" if results[judged].error else "done"), results[judged]
    if state.desired == DELETED:
        return "failed", Result(error="its run was deleted")
    starts = any(isinstance(c, StartRun | ResumeRun) for c in state.commands.values())
    if state.status in (*ACTIVE, "created") or starts:
        return "going", Result()
    if state.status == "failed":
        return "failed", Result(error=state.reason)
    if state.status == "stopped":
        return ("pruned" if pruned in state.answered else "stopped"), Result()
    is_asked = judged in state.commands or judged in state.jobs or judged in state.answered
    return ("judged" if is_asked else "trained"), Result()
