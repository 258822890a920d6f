"""What a command does to a run as it is now, in one plain line: shown beside every answer, and by a
dry run instead of one. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rookery.config.live import effective_now, live_values
from rookery.config.models import LearnerConfig, RunConfig, is_far
from rookery.control.bounds import bounds_text, named
from rookery.control.run_state import PAUSED, RUNNING, STOPPED, RunState
from rookery.control.seats import seats_now, sitter
from rookery.messages import (
    Command,
    CreateRun,
    DeleteRun,
    Evaluate,
    LabelRun,
    PauseRun,
    PlayMatch,
    ResumeRun,
    SaveCheckpoint,
    ScaleActors,
    ScaleLearner,
    SetHyperparameters,
    SetSeatMap,
    StartRun,
    StopRun,
)


def effect(
    state: RunState,
    config: RunConfig,
    command: Command,
    files: tuple[int, int] | None = None,
    is_owned: bool = True,
) -> str:
    """What a command does to a run as it is now; `files`: how many it has, and their bytes;
    `is_owned`: whether the process that runs it is there."""
    match command:
        case StartRun() | ResumeRun():
            return _starts(state, bounds_text(named(command)), is_owned)
        case PauseRun():
            return _pauses(state)
        case StopRun() if state.desired == STOPPED:
            return "it does not run: nothing changes"
        case StopRun():
            return f"stops after a checkpoint; {_count(_living(state), 'worker')} end"
        case ScaleActors(count=count):
            return _scales(state, config, count)
        case ScaleLearner(count=count):
            return _scales_learner(state, count)
        case SetHyperparameters(values=values):
            return _sets(state, config, values)
        case SetSeatMap(seats=seats):
            return _seats(state, config, seats)
        case SaveCheckpoint():
            return "the learner saves a checkpoint after the update it is at"
        case Evaluate(episodes=episodes, player=player):
            return f"{_count(episodes, 'fresh episode')} of {player}, in a process of their own"
        case PlayMatch(a=a, b=b, games=games):
            where = config.environment.id
            return f"{_count(games, 'game')} of {a} against {b} in {where}, half each way round"
        case DeleteRun():
            return _deletes(files) + _deletes_far(config.checkpoint.uri)
        case LabelRun():
            return _labels(command)
        case CreateRun():
            return creates(config, start=False)


def creates(config: RunConfig, start: bool, forked: str = "") -> str:
    """Of a run that does not exist yet; `forked`: what it begins with."""
    what = f"a run of {config.environment.id} with {config.algorithm.kind}"
    what += f", forked from {forked}," if forked else ""
    if not start:
        return f"creates {what}; it waits to be started"
    workers = f"{_count(config.learner.count, 'learner')}, {_count(config.actors.count, 'actor')}"
    return f"creates {what} and starts it: {workers}"


def _starts(state: RunState, bounds: str, is_owned: bool) -> str:
    return f"{_begins(state, is_owned)}{', ' if bounds else ''}{bounds}".replace(
        ": nothing changes,", ":"
    )


def _begins(state: RunState, is_owned: bool) -> str:
    if state.desired == RUNNING and (is_owned or state.status == "queued"):
        what = "waits in the queue" if state.status == "queued" else "runs"
        return f"it {what} already: nothing changes"
    if state.desired == PAUSED:
        return "goes on where it was held, with the same workers"
    workers = f"{_count(state.learners, 'learner')}, {_count(state.actors_wanted, 'actor')}"
    if state.checkpoint is None:
        return f"starts {workers}"
    return f"goes on from checkpoint {state.checkpoint} at {state.env_steps:,} steps with {workers}"


def _labels(label: LabelRun) -> str:
    given = {
        "name": None if label.name is None else repr(label.name),
        "tags": None if label.tags is None else ", ".join(label.tags) or "none",
        "notes": None if label.notes is None else _count(len(label.notes), "letter"),
        "group": None if label.group is None else label.group or "none",
    }
    said = [f"{key}: {text}" for key, text in given.items() if text is not None]
    return "; ".join(said) or "nothing is named: nothing changes"


def _pauses(state: RunState) -> str:
    if state.desired == PAUSED:
        return "it is paused already: nothing changes"
    return f"holds playing and training; {_count(_living(state), 'worker')} stay in memory"


def _scales(state: RunState, config: RunConfig, count: int) -> str:
    return _scaled(state, count) + _useful(config.learner, count)


def _useful(learner: LearnerConfig, count: int) -> str:
    """That more actors would only wait, where the size of batches does not follow their number."""
    most = learner.fragments_per_batch * (learner.max_policy_lag_versions + 1)
    if learner.follows_actors or count <= most:
        return ""
    return (
        f"; at most {most} of them play at a time: learner.fragments_per_batch="
        f"{learner.fragments_per_batch}, learner.max_policy_lag_versions="
        f"{learner.max_policy_lag_versions}"
    )


def _scaled(state: RunState, count: int) -> str:
    now = state.actors_wanted
    if count == now:
        return f"actors stay at {now}: nothing changes"
    if state.desired == STOPPED:
        return f"actors {now} -> {count} when it is started"
    change = f"actors {now} -> {count}: {_count(abs(count - now), 'process')}"
    return f"{change} {_verb(abs(count - now), 'start' if count > now else 'end')}"


def _scales_learner(state: RunState, count: int) -> str:
    if count == state.learners:
        return f"learners stay at {count}: nothing changes"
    if state.desired == STOPPED:
        return f"learners {state.learners} -> {count} when it is started"
    if not count:
        one = state.learners == 1
        gone, back = ("the learner ends", "it") if one else ("the learners end", "them")
        return f"{gone} after a checkpoint; the actors wait for {back} to come back"
    if not state.learners:
        what = "a learner starts and goes" if count == 1 else f"{count} learners start and go"
        return f"{what} on from the newest checkpoint"
    change = f"learners {state.learners} -> {count}: all of them end after a checkpoint"
    return f"{change}, and {_count(count, 'learner')} {_verb(count, 'go')} on from it"


def _sets(state: RunState, config: RunConfig, values: Mapping[str, float]) -> str:
    now = live_values(effective_now(config, state.env_steps, state.hyperparameters))
    shown = [f"{key} {now.get(key, float('nan')):g} -> {value:g}" for key, value in values.items()]
    when = "when it is started" if state.desired == STOPPED else "from the next update on"
    return f"{', '.join(shown)} {when}"


def _seats(state: RunState, config: RunConfig, seats: Mapping[str, Any]) -> str:
    now = seats_now(state, config)
    changes = {seat: who for seat, who in seats.items() if now.get(seat) != who}
    if not changes:
        return "everybody sits there already: nothing changes"
    shown = [f"{seat}: {_sits(now, seat)} -> {sitter(who)}" for seat, who in changes.items()]
    when = "when it is started" if state.desired == STOPPED else "from each slot's next episode on"
    return f"{', '.join(shown)} {when}"


def _sits(now: Mapping[str, Any], seat: str) -> str:
    return sitter(now[seat]) if seat in now else "as the map had it"


def _deletes(files: tuple[int, int] | None) -> str:
    if files is None:
        return "the run's files are removed for good"
    count, size = files
    if not count:
        return "the run is forgotten; it has no files"
    return f"{_count(count, 'file')}, {_size(size)}, {_verb(count, 'is', 'are')} removed for good"


def _deletes_far(uri: str) -> str:
    return f"; so is what it wrote to {uri}" if is_far(uri) else ""


def _living(state: RunState) -> int:
    return sum(worker.running for worker in state.workers.values())


def _count(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def _verb(number: int, verb: str, several: str = "") -> str:
    """`starts` of one, `start` of several."""
    if several:
        return verb if number == 1 else several
    return f"{verb}s" if number == 1 else verb


def _size(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{amount:.0f} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("unreachable")
