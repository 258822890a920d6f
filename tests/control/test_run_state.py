"""A run's state is a fold of its log: any log, any order, the same answer each time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.control.run_state import (
    DELETED,
    RUNNING,
    STOPPED,
    RunState,
    apply,
    exit_text,
    why_not,
)
from rookery.messages import (
    CheckpointDamaged,
    CheckpointSaved,
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    Event,
    RunEnded,
    RunOwned,
    StartRun,
    StopRun,
    WorkerExited,
    WorkerFailed,
    WorkerStarted,
    WorkerStarting,
    decode_json,
    encode_json,
)

RUN = "r"
ids = st.sampled_from(["a", "b", "c", "d"])
kinds = st.sampled_from(["actor", "learner"])
small = st.integers(0, 3)
commands = st.one_of(
    st.builds(CreateRun, run=st.just(RUN), id=ids, config=st.just({"seed": 1})),
    st.builds(StartRun, run=st.just(RUN), id=ids),
    st.builds(StopRun, run=st.just(RUN), id=ids),
    st.builds(DeleteRun, run=st.just(RUN), id=ids),
)
worker = {"run": st.just(RUN), "kind": kinds, "index": small, "incarnation": small}
events = st.one_of(
    st.builds(CommandAccepted, run=st.just(RUN), command=ids),
    st.builds(CommandRejected, run=st.just(RUN), command=ids, why=st.just("no")),
    st.builds(RunOwned, run=st.just(RUN), pid=small),
    st.builds(WorkerStarting, **worker),
    st.builds(WorkerStarted, **worker, pid=small),
    st.builds(WorkerFailed, **worker, error=st.just("boom"), final=st.booleans()),
    st.builds(WorkerExited, **worker, code=st.integers(-70, 5), expected=st.booleans()),
    st.builds(CheckpointSaved, run=st.just(RUN), name=ids, env_steps=small),
    st.builds(CheckpointDamaged, run=st.just(RUN), name=ids, why=st.just("flip")),
    st.builds(
        RunEnded,
        run=st.just(RUN),
        status=st.sampled_from(["solved", "finished", "limited", "stopped", "failed"]),
        reason=st.just("why"),
    ),
)
logs = st.lists(commands | events, max_size=30)


def fold(log: list[Command | Event], state: RunState | None = None) -> RunState | None:
    for message in log:
        state = apply(state, message)
    return state


def created(*log: Command | Event) -> RunState:
    state = fold([CreateRun(run=RUN, id="create", config={"seed": 1}), *log])
    assert state is not None
    return state


def carried_out(*commands: Command) -> RunState:
    """After a controller that answers each command at once."""
    log: list[Command | Event] = []
    for command in commands:
        log.append(command)
        why = why_not(created(*log), command)
        log.append(
            CommandAccepted(run=RUN, command=command.id)
            if why is None
            else CommandRejected(run=RUN, command=command.id, why=why)
        )
    return created(*log)


# --- any log -------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(logs)
def test_no_log_can_break_the_fold(log: list[Any]) -> None:
    state: RunState | None = None
    for message in log:
        before = None if state is None else msgspec.json.encode(state)
        after = apply(state, message)
        if state is not None:
            assert msgspec.json.encode(state) == before, "a state is never changed in place"
            assert after is not None and after.desired in (RUNNING, STOPPED, DELETED)
        state = after
    for command in (StartRun(run=RUN), StopRun(run=RUN), DeleteRun(run=RUN)):
        why = why_not(state, command)
        assert why is None or RUN in why


@settings(max_examples=200, deadline=None)
@given(logs)
def test_replaying_the_log_as_it_was_written_gives_the_same_state(log: list[Any]) -> None:
    written = [encode_json(message) for message in log]
    again = [decode_json(payload, Command | Event) for payload in written]
    assert fold(again) == fold(log)


@settings(max_examples=300, deadline=None)
@given(logs, st.lists(commands | events, max_size=20))
def test_deleted_is_final(before: list[Any], after: list[Any]) -> None:
    state = fold([*before])
    if state is None or state.desired != DELETED:
        state = carried_out(DeleteRun(run=RUN))
    later = fold(after, state)
    assert later is not None and (later.desired, later.status) == (DELETED, "deleted")
    assert why_not(later, StartRun(run=RUN)) == "run r was deleted"


@settings(max_examples=300, deadline=None)
@given(logs, commands)
def test_a_command_that_comes_twice_acts_once(log: list[Any], command: Any) -> None:
    once = [*log, command, CommandAccepted(run=RUN, command=command.id)]
    state = fold(once)
    assert fold([command, CommandAccepted(run=RUN, command=command.id)], state) == state


@settings(max_examples=300, deadline=None)
@given(logs, commands)
def test_a_rejected_command_changes_nothing_but_the_list_of_answers(
    log: list[Any], command: Any
) -> None:
    state = fold(log)
    if state is None or isinstance(command, CreateRun):
        return
    after = fold([command, CommandRejected(run=RUN, command=command.id, why="no")], state)
    assert after is not None
    waiting = {i: c for i, c in state.commands.items() if i != command.id}
    answered = state.answered | {command.id}
    assert after == msgspec.structs.replace(state, commands=waiting, answered=answered)


@settings(max_examples=200, deadline=None)
@given(logs)
def test_a_command_does_nothing_before_it_is_answered(log: list[Any]) -> None:
    state = fold(log)
    if state is None:
        return
    for command in (StartRun(run=RUN), StopRun(run=RUN), DeleteRun(run=RUN)):
        after = apply(state, command)
        assert after is not None
        assert (after.desired, after.status) == (state.desired, state.status)
        assert after.commands[command.id] == command


# --- one thing at a time -------------------------------------------------------------------------


def test_messages_before_the_creation_are_ignored() -> None:
    assert fold([StartRun(run=RUN), RunOwned(run=RUN, pid=3)]) is None
    assert why_not(None, StartRun(run=RUN)) == "there is no run r"


def test_a_run_is_created_once() -> None:
    state = created(CreateRun(run=RUN, config={"seed": 2}))
    assert state.config == {"seed": 1}
    assert why_not(state, CreateRun(run=RUN, config={})) == "run r exists already"


def test_start_stop_start_delete() -> None:
    start, stop, again = StartRun(run=RUN), StopRun(run=RUN), StartRun(run=RUN)
    assert (carried_out(start).desired, carried_out(start).status) == (RUNNING, "running")
    assert carried_out(start, stop).desired == STOPPED
    assert carried_out(start, stop, again).desired == RUNNING
    assert carried_out(start, stop, DeleteRun(run=RUN)).desired == DELETED


def test_a_running_run_cannot_be_deleted() -> None:
    state = carried_out(StartRun(run=RUN), DeleteRun(run=RUN))
    assert state.desired == RUNNING
    assert why_not(state, DeleteRun(run=RUN)) == "run r is running: stop it first"


def test_how_a_run_ended_stays_until_it_is_started_again() -> None:
    start = StartRun(run=RUN)
    ended = RunEnded(run=RUN, status="solved", reason="475")
    accepted = CommandAccepted(run=RUN, command=start.id)
    state = created(start, accepted, ended, RunEnded(run=RUN, status="stopped", reason="late"))
    assert (state.status, state.reason, state.desired) == ("solved", "475", STOPPED)
    again = StartRun(run=RUN)
    state = fold([again, CommandAccepted(run=RUN, command=again.id)], state)  # type: ignore[assignment]
    assert (state.status, state.reason, state.desired) == ("running", "", RUNNING)


def test_a_workers_life_is_told() -> None:
    def of(kind: type, **values: Any) -> Any:
        return kind(run=RUN, kind="actor", index=0, **values)

    log = [
        of(WorkerStarting, incarnation=1),
        of(WorkerStarted, incarnation=1, pid=10),
        of(WorkerExited, incarnation=1, code=-9),
        of(WorkerStarting, incarnation=2),
    ]
    found = created(*log).workers["actor-0"]
    assert (found.running, found.pid, found.deaths, found.restarts) == (False, None, 1, 1)
    assert found.last_error == "ended by SIGKILL"

    log += [
        of(WorkerStarted, incarnation=2, pid=11),
        of(WorkerFailed, incarnation=2, error="boom", detail="trace", final=True),
        of(WorkerExited, incarnation=2, code=1),
    ]
    found = created(*log).workers["actor-0"]
    assert (found.deaths, found.last_error, found.last_detail) == (2, "boom", "trace")
    assert found.failed_for_good
    log += [of(WorkerStarting, incarnation=3), of(WorkerStarted, incarnation=3, pid=12)]
    found = created(*log).workers["actor-0"]
    assert found.running and not found.failed_for_good
    log += [of(WorkerExited, incarnation=3, code=0, expected=True)]
    assert created(*log).workers["actor-0"].deaths == 2


def test_a_new_owner_knows_that_nobody_of_the_old_one_lives() -> None:
    started = WorkerStarted(run=RUN, kind="actor", index=0, incarnation=1, pid=10)
    state = created(started, RunOwned(run=RUN, pid=7))
    assert not state.workers["actor-0"].running and state.owner_pid == 7


def test_checkpoints_are_told() -> None:
    state = created(
        CheckpointSaved(run=RUN, name="one", env_steps=5),
        CheckpointDamaged(run=RUN, name="zero", why="flip"),
        CheckpointSaved(run=RUN, name="two", env_steps=9),
    )
    assert (state.checkpoint, state.env_steps, state.damaged) == ("two", 9, {"zero": "flip"})


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-11, "ended by SIGSEGV"),
        (-99, "ended by signal 99"),
    ],
)
def test_an_exit_code_in_words(code: int, text: str) -> None:
    assert exit_text(code) == text
