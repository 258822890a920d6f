"""The workers' entry points: what `rookery actor`, `rookery learner` and `standby` do."""

from __future__ import annotations

import faulthandler
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from rookery.actor.main import act
from rookery.control.briefing import Briefing, Reach, make_home, open_briefed, recorder
from rookery.control.check import check_environment
from rookery.control.context import allowed_files, open_context
from rookery.control.home import Home
from rookery.control.run_log import RunLog
from rookery.control.run_state import PAUSED, RUNNING
from rookery.errors import InputError
from rookery.launchers.inline import take_turns
from rookery.learner.main import train
from rookery.messages import JOINED_FROM, WorkerExited, WorkerStarted, WorkerStarting
from rookery.output import print_json
from rookery.worker import FENCED, LIFELINE, NICENESS, WorkerId
from rookery.worker.context import RunContext
from rookery.worker.process import (
    SAY_WHERE,
    Stop,
    end_with_parent,
    guarded,
    reached,
    step_back,
)
from rookery.worker.xla import prepare_xla


class UntilEnded(Stop):
    """Set by a signal, or when the log says that the run ended; looks about once a second."""

    def __init__(self, home: Home, run: str) -> None:
        super().__init__()
        self._log, self._run = RunLog(home, run), run
        self._due = 0.0

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self.asked and now >= self._due:
            self._due = now + 1.0
            self._log.read()
            self.asked = self._log.states[self._run].desired not in (RUNNING, PAUSED)
        return self.asked


def main(kind: str, run: str, index: int, incarnation: int) -> int:
    """Run one worker in this process until it is done; returns the exit code."""
    home = Home.default()
    worker = WorkerId(kind, index, incarnation)
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.register(SAY_WHERE)
    if os.environ.get(LIFELINE) == "stdin":
        end_with_parent()
    step_back(int(os.environ.get(NICENESS) or 0))
    work = {"actor": act, "learner": train, "inline": _in_turns}[kind]
    return guarded(home.record, run, worker, lambda: work(_opened(home, run, stop), worker, stop))


def _opened(home: Home, run: str, stop: Callable[[], bool]) -> RunContext:
    """For a worker that a run's owner has started."""
    return reached(lambda: open_context(home, run), stop)


def elsewhere(
    worker: WorkerId,
    content: bytes,
    namespace: str,
    host: str,
    near: bool,
    files: Path,
    stop: Stop,
    address: str,
) -> int:
    """The same in a process that others placed, on any node: it is told what it has to know.

    `address`: of its node, as others see it.
    """
    briefing = Briefing.of(content)
    run, reach = briefing.run, Reach(namespace, host, near, files)
    work = {"actor": act, "learner": train}[worker.kind]
    if briefing.home is not None:
        home = make_home(briefing.home)
        return guarded(
            home.record,
            run,
            worker,
            lambda: work(
                replace(_opened(home, run, stop), progress=files, host=address), worker, stop
            ),
        )
    record = recorder(briefing, reach)
    return guarded(
        record,
        run,
        worker,
        lambda: work(replace(open_briefed(briefing, reach), host=address), worker, stop),
    )


def join(kind: str, name: str, as_json: bool = False) -> int:
    """A worker in the foreground that joins a run from any machine, until the run ends."""
    aside = sys.stderr if as_json else sys.stdout
    home = Home.default()
    run = home.find(name)
    state = home.state(run)
    if state.desired not in (RUNNING, PAUSED):
        raise InputError(f"{run} is {state.status}, so nobody trains it: rookery resume {run}")
    workers = state.workers
    known = workers.get("learner-0")
    if kind == "actor":
        check_environment(allowed_files(home, state))
        worker = WorkerId(kind, _unused({w.index for w in workers.values()}), 1)
    else:
        worker = WorkerId(kind, 0, known.incarnation + 1 if known else 1)
    stop = UntilEnded(home, run)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    identity: dict[str, Any] = {
        "run": run,
        "kind": kind,
        "index": worker.index,
        "incarnation": worker.incarnation,
    }
    home.record(WorkerStarting(**identity), WorkerStarted(**identity, pid=os.getpid()))
    print(f"{kind} {worker.index}.{worker.incarnation} joined {run}", file=aside, flush=True)
    if kind == "actor":
        every_s = home.config(state).actors.heartbeat_s
        code = guarded(
            home.record, run, worker, lambda: act(open_context(home, run), worker, stop, every_s)
        )
    else:
        code = guarded(home.record, run, worker, lambda: train(_alone(home, run), worker, stop))
    home.record(WorkerExited(**identity, code=code, expected=code in (0, FENCED)))
    print(f"{kind} left {run}", file=aside, flush=True)
    if as_json:
        print_json({**identity, "code": code})
    return code


def _alone(home: Home, run: str) -> RunContext:
    """A learner that joins from anywhere trains by itself, however many its run had."""
    context = open_context(home, run)
    return replace(context, orders=structs.replace(context.orders, learners=1))


def _unused(taken: Collection[int]) -> int:
    """An ordinal that no actor of the run ever had: what it sends is counted by its name."""
    while (drawn := JOINED_FROM + secrets.randbelow(10**6)) in taken:
        continue
    return drawn


def wait_for_work(threads: int) -> int:
    """A learner on standby: import what it needs, then do what standard input says."""
    prepare_xla(threads, "auto")  # its run may say otherwise, before anything is computed
    import rookery.learner.trainer  # noqa: F401 imports JAX

    line = b""
    while not line.endswith(b"\n"):
        received = os.read(0, 65536)
        if not received:
            return 0  # nobody needed it
        line += received
    order = json.loads(line)
    os.environ.update(order["environment"])
    with open(order["log"], "ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    return main(order["kind"], order["run"], order["index"], order["incarnation"])


def _in_turns(context: RunContext, worker: WorkerId, stop: Callable[[], bool]) -> int:
    """An inline run in a process of its own."""
    codes = [code for code in take_turns(context, worker, stop) if code is not None]
    return codes[-1]
