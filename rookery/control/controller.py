"""The controller: owns a run and makes the launcher match the desired state of its log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

from rookery.bus import Bus, Outgoing
from rookery.config import RunConfig
from rookery.control.home import Home, RunLog
from rookery.control.run_state import RUNNING, RunState, exit_text
from rookery.control.supervision import Supervisor
from rookery.launchers import FENCED, ONE_BLAS_THREAD, Launcher, Observed, WorkerSpec
from rookery.messages import (
    EXPERIENCES,
    JOINED_FROM,
    LEARNER_KEY,
    MODEL_UPDATES,
    SEATS_KEY,
    ActorId,
    ActorLeft,
    RunEnded,
    RunOwned,
    SeatsChanged,
    WorkerExited,
    WorkerStarted,
    WorkerStarting,
    encode_json,
)

TICK_S = 0.02  # in the first seconds, where a person waits for something to happen
CALM_TICK_S = 0.1


logger = logging.getLogger(__name__)


class Controller:
    """Runs in the process that owns the run, under its lease."""

    def __init__(
        self, home: Home, run: str, config: RunConfig, bus: Bus | None, launcher: Launcher
    ) -> None:
        self.home, self.run, self.config = home, run, config
        self._bus, self._launcher = bus, launcher
        self._log = RunLog(home, run, logger.warning)
        self._log.read()
        self._supervisor = Supervisor(config.restarts)
        self._specs: dict[str, WorkerSpec] = {}  # what should live, by worker ("actor-0")
        self._asked_to_stop: set[str] = set()
        self._started: set[str] = set()
        self._told = 0  # revision of the seats
        self._elsewhere: set[str] = set()  # workers whose work another machine took over

    @property
    def state(self) -> RunState:
        return self._log.states[self.run]

    def run_until_ended(self, tick: Callable[[RunState], None] = lambda state: None) -> RunState:
        """Carry the run to its end; `tick` is called many times a second."""
        self.home.record(RunOwned(run=self.run, pid=os.getpid()))
        self._bury_the_dead()
        began = time.monotonic()
        try:
            while True:
                self._log.read()
                self._log.answer(self.run)
                self._tell_seats()
                self._observe()
                self._reconcile()
                tick(self.state)
                if not self._specs and self.state.desired != RUNNING and not self._started:
                    return self._settled()
                self._launcher.work(TICK_S if time.monotonic() - began < 10 else CALM_TICK_S)
        finally:
            self._launcher.close()

    def _tell_seats(self) -> None:
        """Hand a changed seat map on to the actors; they take it up from their next episodes on."""
        if self._bus is None or self.state.seats is None:
            return
        if self.state.seats_revision > self._told:
            self._told = self.state.seats_revision
            changed = SeatsChanged(revision=self._told, seats=self.state.seats)
            headers = {"kind": "seats", "run": self.run}
            message = Outgoing(MODEL_UPDATES, encode_json(changed), SEATS_KEY, headers)
            self._bus.publish([message])

    def _settled(self) -> RunState:
        """A run that was stopped before its learner could say so still gets its last word."""
        self._log.read()
        if self.state.status == "running":
            self.home.record(RunEnded(run=self.run, status="stopped", reason="asked to stop"))
            self._log.read()
        return self.state

    def _reconcile(self) -> None:
        if self.state.desired == RUNNING:
            now = time.monotonic()
            for kind, index in self._wanted():
                worker = f"{kind}-{index}"
                if worker in self._specs or self._lives(worker):
                    continue
                if self._supervisor.may_start(worker, now):
                    self._specs[worker] = self._new_incarnation(kind, index)
                    self._supervisor.started(worker, now)
        else:
            self._asked_to_stop |= {spec.name for spec in self._specs.values()}
            self._specs.clear()
        self._launcher.apply({spec.name: spec for spec in self._specs.values()})

    def _lives(self, worker: str) -> bool:
        """Whether an incarnation of it, told to stop, is still at it: there is never a second."""
        return any(name.rpartition(".")[0] == worker for name in self._started)

    def _wanted(self) -> list[tuple[str, int]]:
        if self.config.launcher == "inline":
            return [("inline", 0)]
        wanted = [("learner", 0), *(("actor", i) for i in range(self.config.actors.count))]
        return [(kind, i) for kind, i in wanted if f"{kind}-{i}" not in self._elsewhere]

    def _new_incarnation(self, kind: str, index: int) -> WorkerSpec:
        known = self.state.workers.get(f"{kind}-{index}")
        incarnation = known.incarnation + 1 if known else 1
        starting = WorkerStarting(run=self.run, kind=kind, index=index, incarnation=incarnation)
        self.home.record(starting)
        self._log.read()
        argv = (kind, self.run, "--index", str(index), "--incarnation", str(incarnation))
        environment = {**self.home.environment, **ONE_BLAS_THREAD}
        return WorkerSpec(kind, index, incarnation, argv, environment)

    def _observe(self) -> None:
        for name, seen in self._launcher.observe().items():
            kind, _, rest = name.partition("-")
            index, incarnation = (int(part) for part in rest.split("."))
            if name not in self._started:
                self._started.add(name)
                self.home.record(
                    WorkerStarted(
                        run=self.run, kind=kind, index=index, incarnation=incarnation, pid=seen.pid
                    )
                )
            if seen.code is not None:
                self._exited(name, kind, index, incarnation, seen)

    def _exited(self, name: str, kind: str, index: int, incarnation: int, seen: Observed) -> None:
        assert seen.code is not None
        self._started.discard(name)
        self._log.read()  # its own last words come before its exit
        worker = f"{kind}-{index}"
        if seen.code == FENCED:
            self._elsewhere.add(worker)
            self._specs.pop(worker, None)
        stopped = name in self._asked_to_stop or self.state.desired != RUNNING
        expected = stopped or worker in self._elsewhere
        self.home.record(
            WorkerExited(
                run=self.run,
                kind=kind,
                index=index,
                incarnation=incarnation,
                code=seen.code,
                expected=expected,
            )
        )
        self._log.read()
        if kind == "actor":
            self._announce_left(f"{index}.{incarnation}")
        if expected or worker not in self._specs:
            return
        del self._specs[worker]
        state = self.state.workers[worker]
        reported = state.last_error is not None and seen.code > 0
        goes_on = self._supervisor.died(worker, time.monotonic(), reported, self._trained_steps())
        if state.failed_for_good or not goes_on:
            self._give_up(worker, seen.code)

    def _give_up(self, worker: str, code: int) -> None:
        state = self.state.workers[worker]
        error = state.last_error or exit_text(code)
        tries = f" (died {state.deaths} times)" if state.deaths > 1 else ""
        self.home.record(
            RunEnded(run=self.run, status="failed", reason=f"{worker}{tries}: {error}")
        )
        self._log.read()

    def _trained_steps(self) -> int:
        """A sign of progress: how much experience was ever published."""
        if self._bus is None:
            return self.state.env_steps
        newest = self._bus.newest_headers(EXPERIENCES).values()
        return sum(int(headers.get("steps_total", 0)) for headers in newest)

    def _bury_the_dead(self) -> None:
        """No actor of an earlier owner lives: say so, so that no credit waits for one."""
        if self._bus is None or self.config.launcher == "inline":
            return
        for actor, headers in self._bus.newest_headers(EXPERIENCES).items():
            if actor.startswith(LEARNER_KEY):
                continue
            supervised = ActorId.parse(actor).ordinal < JOINED_FROM
            if supervised and headers.get("kind") != "left":
                self._announce_left(actor)

    def _announce_left(self, actor: str) -> None:
        if self._bus is None:
            return
        newest = self._bus.newest_headers(EXPERIENCES).get(actor, {})
        headers = {"kind": "left", "steps": "0", "steps_total": newest.get("steps_total", "0")}
        payload = encode_json(ActorLeft(actor=actor))
        self._bus.publish([Outgoing(EXPERIENCES, payload, actor, headers)])
