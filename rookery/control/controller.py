"""The controller: owns a run and makes the launcher match the desired state of its log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any

from rookery.bus import Bus, Outgoing
from rookery.config.models import RunConfig
from rookery.control.balance import count
from rookery.control.briefing import brief
from rookery.control.home import Home
from rookery.control.jobs import Jobs
from rookery.control.relay import Relay
from rookery.control.run_log import RunLog
from rookery.control.run_state import ACTIVE, PAUSED, RUNNING, STOPPED, RunState, exit_text
from rookery.control.scaler import Scaler
from rookery.control.signing import SIGNATURE
from rookery.control.supervision import Supervisor
from rookery.control.watcher import Watcher
from rookery.launchers import Launcher, Observed, WorkerSpec
from rookery.messages import (
    EXPERIENCES,
    JOINED_FROM,
    MODEL_UPDATES,
    ORDERS_KEY,
    SEATS_KEY,
    ActorId,
    ActorLeft,
    LearnerOrders,
    RunEnded,
    RunOwned,
    SeatsChanged,
    WorkerExited,
    WorkerFailed,
    WorkerStarted,
    WorkerStarting,
    WorkerWaiting,
    encode_json,
)
from rookery.worker import FENCED, LEFT_ALONE, ONE_BLAS_THREAD, WorkerId

TICK_S = 0.02  # in the first seconds, where a person waits for something to happen
CALM_TICK_S = 0.1


logger = logging.getLogger(__name__)


class Controller:
    """Runs in the process that owns the run, under its lease.

    controller.begin()
    while not controller.step(): launcher.work(TICK_S)
    controller.settle()

    Until it has begun it answers commands and starts nothing: the run is queued.
    """

    def __init__(
        self,
        home: Home,
        run: str,
        config: RunConfig,
        launcher: Launcher,
        log: RunLog | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """`log` is one that this thread follows anyway, if it does."""
        self.home, self.run, self.config = home, run, config
        self.launcher = launcher
        self.jobs = Jobs(home, run)
        self._warn = warn
        self._log = log or RunLog(home, run, logger.warning)
        self._log.read()
        self._supervisor = Supervisor(config.restarts)
        self._watcher = Watcher(config, [home.control_path, home.bus_path(run)])
        self._scaler = Scaler(home)
        self._specs: dict[str, WorkerSpec] = {}  # what should live, by worker ("actor-0")
        self._asked_to_stop: set[str] = set()
        self._started: set[str] = set()
        self._begun = self._leaving = False
        self._by = ""
        self._told_seats = 0  # revision of the seats
        self._told_orders = 0  # revision of the learner's orders
        self._elsewhere: set[str] = set()  # workers whose work another machine took over
        self._waiting: dict[str, str] = {}  # workers without a place -> what for

    @property
    def state(self) -> RunState:
        return self._log.states[self.run]

    @cached_property
    def bus(self) -> Bus | None:
        """The run's; None where it lives in another's memory."""
        if self.config.bus.one_process:
            return None
        return self.home.open_run_bus(self.run, self.config, self._warn)

    @property
    def trouble(self) -> str | None:
        """What keeps the run waiting: its bus, a worker that makes no progress, or a place."""
        bus = self.bus.trouble if self.bus is not None else None
        return bus or self._watcher.trouble or self._placeless

    @property
    def _placeless(self) -> str | None:
        for name, why in self._waiting.items():
            return f"{name.rpartition('.')[0]} waits for {why}"
        return None

    @property
    def begun(self) -> bool:
        return self._begun

    def begin(self, by: str = "terminal") -> None:
        """Carry the run from now on."""
        self._log.read()
        self._log.answer(self.run)
        self._begun, self._by = True, by
        self._watcher.start()
        self.home.record(RunOwned(run=self.run, pid=os.getpid(), by=by))
        self._log.read()
        self._bury_the_dead()

    def leave(self) -> None:
        """Stop the workers, after a checkpoint, and leave the run for its next owner."""
        self._leaving = True

    def step(self) -> bool:
        """Read the log and make the workers match it; True when there is nothing left to do."""
        self._log.read()
        self._log.answer(self.run)
        if self._begun:
            self._own_again()
            self._hand_on()
            self._observe()
            self._reconcile()
            self._tell()
            self._scaler.step(self.state, self.bus)
        self.jobs.step({} if self._leaving else self.state.jobs)
        at_work = self._specs or self._started or self.jobs.busy
        wanted = self.state.desired in (RUNNING, PAUSED) and self._begun and not self._leaving
        return not at_work and not wanted

    def _own_again(self) -> None:
        """Whoever asked to start what is carried got what they wanted; it is no wish for later."""
        if self.state.start_asked:
            self.home.record(RunOwned(run=self.run, pid=os.getpid(), by=self._by, again=True))
            self._log.read()

    def _hand_on(self) -> None:
        """What workers elsewhere have to say for the log comes by the run's own bus."""
        if self._relay is not None and self._relay.hand_on():
            self._log.read()

    @cached_property
    def _relay(self) -> Relay | None:
        if self.config.bus.kind != "ray" or self.bus is None:
            return None
        return Relay(self.home, self.run, self.config, self.bus)

    def settle(self) -> RunState:
        """A run that was stopped before its learner could say so still gets its last word."""
        self._log.read()
        if self.state.desired == STOPPED and self.state.status in ACTIVE:
            self.home.record(RunEnded(run=self.run, status="stopped", reason="asked to stop"))
            self._log.read()
        return self.state

    def close(self) -> None:
        """End whatever still lives, at once."""
        self._watcher.close()
        self.launcher.close()
        self.jobs.close()
        if "bus" in self.__dict__ and self.bus is not None:
            self.bus.close()

    def run_until_ended(self, tick: Callable[[RunState], None] = lambda state: None) -> RunState:
        """Carry the run to its end; `tick` is called many times a second."""
        began = time.monotonic()
        try:
            self.begin()
            while not self.step():
                tick(self.state)
                self.launcher.work(TICK_S if time.monotonic() - began < 10 else CALM_TICK_S)
            return self.settle()
        finally:
            self.close()

    def _tell(self) -> None:
        """Hand what was changed on to the actors and to the learner."""
        state = self.state
        if self.bus is None:
            return
        if state.seats is not None and state.seats_revision > self._told_seats:
            self._told_seats = state.seats_revision
            changed = SeatsChanged(
                revision=state.seats_revision, seats=state.seats, origin=state.seats_origin
            )
            self._publish(MODEL_UPDATES, SEATS_KEY, "seats", changed)
        if state.orders_revision > self._told_orders:
            self._told_orders = state.orders_revision
            self._publish(EXPERIENCES, ORDERS_KEY, "orders", state.orders)

    def _publish(
        self, topic: str, key: str, kind: str, message: SeatsChanged | LearnerOrders
    ) -> None:
        assert self.bus is not None
        payload = encode_json(message)
        signature = self.home.run_key(self.run, self.config).sign(topic, self.run, payload)
        headers = {"kind": kind, "run": self.run, "steps": "0", SIGNATURE: signature}
        self.bus.publish([Outgoing(topic, payload, key, headers)])

    def _reconcile(self) -> None:
        now, wanted = time.monotonic(), self._wanted()
        self._disband(wanted)
        for worker in [w for w in self._specs if w not in {f"{k}-{i}" for k, i in wanted}]:
            self._asked_to_stop.add(self._specs.pop(worker).name)
        self._muster([(kind, index) for kind, index in wanted if kind == "learner"], now)
        for kind, index in wanted:
            worker = f"{kind}-{index}"
            if worker in self._specs or self._lives(worker) or kind == "learner":
                continue
            if self._supervisor.may_start(worker, now):
                self._start(kind, index, now)
        self.launcher.apply({spec.name: spec for spec in self._specs.values()})

    def _start(self, kind: str, index: int, now: float) -> None:
        worker = f"{kind}-{index}"
        self._specs[worker] = self._new_incarnation(kind, index)
        self._supervisor.started(worker, now)

    def _disband(self, wanted: list[tuple[str, int]]) -> None:
        """Learners end together: when one of them is gone, and when more or fewer are wanted."""
        at_work = [spec.worker for spec in self._specs.values() if spec.worker.kind == "learner"]
        found = sorted(worker.index for worker in at_work)
        if found == sorted(index for kind, index in wanted if kind == "learner"):
            return
        for worker in at_work:
            self._asked_to_stop.add(self._specs.pop(f"learner-{worker.index}").name)

    def _muster(self, learners: list[tuple[str, int]], now: float) -> None:
        """And begin together, when all of those before have ended."""
        names = [f"{kind}-{index}" for kind, index in learners]
        if any(worker in self._specs for worker in names):
            return
        if any(name.startswith("learner-") for name in self._started):
            return
        if all(self._supervisor.may_start(worker, now) for worker in names):
            for kind, index in learners:
                self._start(kind, index, now)

    def _lives(self, worker: str) -> bool:
        """Whether an incarnation of it, told to stop, is still at it: there is never a second."""
        return any(name.rpartition(".")[0] == worker for name in self._started)

    def _wanted(self) -> list[tuple[str, int]]:
        """The workers that should live; those of a paused run stay, and wait."""
        state = self.state
        if self._leaving or state.desired not in (RUNNING, PAUSED):
            return []
        if self.config.launcher == "inline":
            return [("inline", 0)]
        led = "learner-0" not in self._elsewhere  # followers have nobody to follow otherwise
        learners = [("learner", i) for i in range(state.learners) if led]
        actors = [("actor", i) for i in range(state.actors_wanted)]
        return [(k, i) for k, i in learners + actors if f"{k}-{i}" not in self._elsewhere]

    def _new_incarnation(self, kind: str, index: int) -> WorkerSpec:
        known = self.state.workers.get(f"{kind}-{index}")
        incarnation = known.incarnation + 1 if known else 1
        starting = WorkerStarting(run=self.run, kind=kind, index=index, incarnation=incarnation)
        self.home.record(starting)
        self._log.read()
        argv = (kind, self.run, "--index", str(index), "--incarnation", str(incarnation))
        environment = {**self.home.environment, **ONE_BLAS_THREAD}
        worker, state = WorkerId(kind, index, incarnation), self.state
        return WorkerSpec(worker, argv, environment, lambda: brief(self.home, state))

    def _observe(self) -> None:
        observed = self.launcher.observe()
        living = {n: seen.life for n, seen in observed.items() if seen.code is None}
        self._watcher.lives = {n: life for n, life in living.items() if life is not None}
        for name, seen in observed.items():
            kind, _, rest = name.partition("-")
            index, incarnation = (int(part) for part in rest.split("."))
            identity: dict[str, Any] = {
                "run": self.run,
                "kind": kind,
                "index": index,
                "incarnation": incarnation,
            }
            if seen.waits and self._waiting.get(name) != seen.reason:
                self.home.record(WorkerWaiting(**identity, why=seen.reason))
            if name not in self._started and seen.pid:
                self._started.add(name)
                self.home.record(WorkerStarted(**identity, pid=seen.pid, host=seen.host))
            if seen.code is not None:
                self._exited(name, kind, index, incarnation, seen)
        self._waiting = {name: seen.reason for name, seen in observed.items() if seen.waits}

    def _exited(self, name: str, kind: str, index: int, incarnation: int, seen: Observed) -> None:
        assert seen.code is not None
        self._started.discard(name)
        self._hand_on()
        self._log.read()  # its own last words come before its exit
        worker = f"{kind}-{index}"
        if seen.code == FENCED:
            self._elsewhere.add(worker)
        if seen.code in (FENCED, LEFT_ALONE):  # the latter only follows one that has died
            self._specs.pop(worker, None)
        stopped = name in self._asked_to_stop or self.state.desired not in (RUNNING, PAUSED)
        expected = stopped or worker in self._elsewhere or seen.code == LEFT_ALONE
        self._explain(name, kind, index, incarnation)
        self.home.record(
            WorkerExited(
                run=self.run,
                kind=kind,
                index=index,
                incarnation=incarnation,
                code=seen.code,
                expected=expected,
                reason=seen.reason,
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
        if state.failed_for_good or seen.final or not goes_on:
            self._give_up(worker, seen.code)

    def _explain(self, name: str, kind: str, index: int, incarnation: int) -> None:
        """Of one that the watcher ended, which could not say so itself."""
        silence = self._watcher.ended.pop(name, None)
        if silence is None:
            return
        text = f"{kind}-{index} was {silence} and was replaced"
        self.home.record(
            WorkerFailed(run=self.run, kind=kind, index=index, incarnation=incarnation, error=text)
        )
        if self._warn is not None:
            self._warn(text)

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
        if self.bus is None:
            return self.state.env_steps
        newest = self.bus.newest_headers(EXPERIENCES).values()
        return sum(count(headers, "steps_total") for headers in newest)

    def _bury_the_dead(self) -> None:
        """No actor of an earlier owner lives: say so, so that no credit waits for one."""
        if self.bus is None or self.config.launcher == "inline":
            return
        for key, headers in self.bus.newest_headers(EXPERIENCES).items():
            actor = ActorId.parse(key)
            supervised = actor is not None and actor.ordinal < JOINED_FROM
            if supervised and headers.get("kind") != "left":
                self._announce_left(key)

    def _announce_left(self, actor: str) -> None:
        if self.bus is None:
            return
        newest = self.bus.newest_headers(EXPERIENCES).get(actor, {})
        headers = {"kind": "left", "steps": "0", "steps_total": newest.get("steps_total", "0")}
        payload = encode_json(ActorLeft(actor=actor))
        self.bus.publish([Outgoing(EXPERIENCES, payload, actor, headers)])
