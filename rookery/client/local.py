"""Asking for a change where the runs live: through the home's own log, without a server.

    answer = ask(home, PauseRun(run=run, author=author()))

The owner of the run answers, be it a terminal or a server. Where nobody owns it and no server lives
in this home the answer is given here, under the run's lease, and what the command asks for happens
when somebody carries the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from rookery.config.live import effective
from rookery.config.models import RunConfig
from rookery.control.actions import effect
from rookery.control.effects import creates
from rookery.control.home import Home, content, new_run_id
from rookery.control.models import Answer, AuditEntry
from rookery.control.run_log import RunLog
from rookery.control.run_state import ACTIVE, DELETED, STOPPED, RunState, why_not
from rookery.control.seats import seats_after
from rookery.errors import InputError
from rookery.messages import (
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    DeleteRun,
    Event,
    RunEnded,
    SetHyperparameters,
    SetSeatMap,
    StartRun,
    decode_json,
)
from rookery.server.answers import Said, make_answer
from rookery.server.feed.recent_log import Message

WAIT_S = 5.0  # for an answer
TICK_S = 0.02
PORTION = 10_000  # messages of the log at a time


def ask(home: Home, command: Command, wait_s: float = WAIT_S) -> Answer:
    """Append a command to the log and wait for its answer; raises what is known to be wrong."""
    state = home.state(command.run)
    command = _judged(home, state, command)
    line = _effect(home, state, command)
    return _sent(home, wait_s, line, command)


def dry_run(home: Home, command: Command) -> Answer:
    """What would become of a command, judged by what is known now."""
    state = home.state(command.run)
    try:
        command = _judged(home, state, command)
        why = why_not(state, command)
    except InputError as error:
        why = str(error)
    if why is not None:
        return make_answer(command, "would_reject", why, "")
    return make_answer(command, "would_accept", "", _effect(home, state, command))


def submit(
    home: Home, config: RunConfig, author: str, reason: str, start: bool, dry: bool
) -> Answer:
    """Create a run and start it, once it is known what its environment looks like."""
    from rookery.control.check import look
    from rookery.worker.xla import prepare_xla

    prepare_xla(1)  # looking at a JAX-native environment imports JAX
    found = content(config, look(home, config))
    line = creates(config, start)
    run = "" if dry else new_run_id(config.environment.id)
    create = CreateRun(run=run, config=found, author=author, reason=reason)
    if dry:
        return make_answer(create, "would_accept", "", line)
    begin = [StartRun(run=run, author=author, reason=reason)] if start else []
    return _sent(home, WAIT_S, line, create, *begin)


def is_carried(home: Home, run: str) -> bool:
    """Whether somebody sees to the run now, or will at once."""
    return home.is_owned(run) or home.has_server()


def audit(home: Home, run: str | None = None) -> list[AuditEntry]:
    """Who changed what, why, and what became of it, oldest first; of one run or of all."""
    from rookery.server.http.log_pages import audited

    answers = {said.command: said for said in reversed(list(_answers(home, run)))}
    found = [(m, decode_json(m.payload, Command)) for m in _messages(home, "commands", run)]
    return [audited(message, command, answers.get(command.id)) for message, command in found]


# --- before it is sent ---------------------------------------------------------------------------


def _judged(home: Home, state: RunState, command: Command) -> Command:
    """The command as it is to be sent; raises what its run could only regret."""
    match command:
        case SetHyperparameters(values=values):
            effective(home.config(state), {**state.hyperparameters, **values})
        case SetSeatMap(seats=asked):
            from rookery.control.check import check_seats

            config = home.config(state)
            whole = seats_after(state, config, asked)
            check_seats(home, config, home.spec(state), whole)
            return msgspec.structs.replace(command, seats=whole)
    return command


def _effect(home: Home, state: RunState, command: Command) -> str:
    files = None
    if isinstance(command, DeleteRun):
        from rookery.server.http.artifacts import measure

        files = measure(home.run_dir(state.id))
    return effect(state, home.config(state), command, files)


# --- and its answer ------------------------------------------------------------------------------


def _sent(home: Home, wait_s: float, line: str, first: Command, *more: Command) -> Answer:
    log = RunLog(home, first.run)  # before the answer can be in what others have folded
    log.read()
    home.send(first, *more)
    said = _wait(home, log, first, wait_s)
    match said:
        case CommandAccepted():
            return make_answer(first, "accepted", "", line)
        case CommandRejected(why=why):
            return make_answer(first, "rejected", why, "")
    return make_answer(first, "waiting", "", line)


def _wait(home: Home, log: RunLog, command: Command, wait_s: float) -> Said | None:
    deadline = time.monotonic() + wait_s
    while True:
        for message in log.read():
            if isinstance(message, Said) and message.command == command.id:
                return message
        if time.monotonic() > deadline:
            return None
        if _is_ours(home, log.states.get(command.run)):
            _answer_here(home, command.run)
        time.sleep(TICK_S)


def _is_ours(home: Home, state: RunState | None) -> bool:
    """Whether nobody else will answer. A cluster's runs may be carried by another machine."""
    if state is None or is_carried(home, state.id):
        return False
    return home.cluster is None or state.status not in ACTIVE


def _answer_here(home: Home, run: str) -> None:
    lease = home.take_lease(run)
    if lease is None:
        return
    with lease:
        log = RunLog(home, run)
        log.read()
        log.answer(run)
        state = log.states[run]
        if state.desired == STOPPED and state.status in ACTIVE:  # its owner died
            home.record(RunEnded(run=run, status="stopped", reason="asked to stop"))
        if state.desired == DELETED:
            from rookery.control.fleet import purge

            purge(home, run)


# --- the log -------------------------------------------------------------------------------------


def _answers(home: Home, run: str | None) -> Iterator[Said]:
    for message in _messages(home, "events", run):
        said = decode_json(message.payload, Event)
        if isinstance(said, Said):
            yield said


def _messages(home: Home, channel: str, run: str | None) -> Iterator[Message]:
    from rookery.server.feed.log_reader import read_bus

    after = -1
    while True:
        messages = read_bus(home, None, channel, run, after, PORTION).messages
        yield from messages
        if len(messages) < PORTION:
            return
        after = messages[-1].seq
