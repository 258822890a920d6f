"""The fleet: every run that a server or a sweep carries, under one budget of CPUs.

    fleet = Fleet(home, cpus=lambda: 2, make_launcher=...)
    while not stopped: fleet.step()
    fleet.leave()

A run is taken up when its log asks for something that nobody does: commands without an answer, jobs
without a result, workers that should live. Runs that another process owns are left to it, and so is
one whose terminal died, until somebody asks for it to go on. What a server carried when it died it
takes up again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from rookery.config.models import RunConfig
from rookery.control.controller import Controller
from rookery.control.files import purge
from rookery.control.home import Home
from rookery.control.lease import Lease
from rookery.control.queries import newest_training
from rookery.control.queue import cost
from rookery.control.run_log import RunLog
from rookery.control.run_state import ACTIVE, DELETED, RUNNING, STOPPED, RunState
from rookery.control.saved_states import Unsigned
from rookery.errors import RookeryError
from rookery.launchers import Launcher
from rookery.messages import RunEnded, TrainingMetrics

logger = logging.getLogger(__name__)

MakeLauncher = Callable[[str, RunConfig], Launcher]
LEAVE_S = 60.0  # that workers have for a last checkpoint
TICK_S = 0.02
CALM_TICK_S = 0.1
CALM_AFTER_S = 2.0
RETRY_S = 1.0  # until a run that could not be seen to is looked at again


class Carried(NamedTuple):
    """A run under this server's lease."""

    controller: Controller
    lease: Lease


class Fleet:
    """One thread's: everything here is called by the same one."""

    def __init__(
        self,
        home: Home,
        cpus: Callable[[], int],
        make_launcher: MakeLauncher,
        mine: Callable[[RunState], bool] = lambda state: True,
        by: Literal["server", "terminal"] = "server",
    ) -> None:
        """`cpus`: how many there are now; nodes of a cluster come and go. `mine`: the runs that
        are seen to, where that is not every run of the home. `by`: who carries them: what a
        terminal's death interrupts stays so, what a server's does goes on with the next."""
        self.home = home
        self._mine = mine
        self._cpus = cpus
        self._make_launcher = make_launcher
        self._by = by
        self._log = RunLog(home, None, logger.warning)
        self._carried: dict[str, Carried] = {}
        self._queue: list[str] = []
        self._retry_at: dict[str, float] = {}  # runs that failed here
        self._busy_at = time.monotonic()

    @property
    def queue(self) -> list[str]:
        """Runs that wait for CPUs, the next one first."""
        return list(self._queue)

    @property
    def pause_s(self) -> float:
        """How long to wait before the next step: a moment after something happened."""
        return TICK_S if time.monotonic() - self._busy_at < CALM_AFTER_S else CALM_TICK_S

    @property
    def states(self) -> Mapping[str, RunState]:
        """As the last step left them."""
        return self._log.states

    @property
    def is_busy(self) -> bool:
        """Whether runs are carried now."""
        return bool(self._carried)

    def training(self, run: str) -> TrainingMetrics | None:
        """The newest metrics of a run that is carried here."""
        carried = self._carried.get(run)
        return None if carried is None else newest_training(carried.controller.bus, run)

    def step(self) -> None:
        """Read the log once, and see to every run that needs it."""
        if self._log.read():
            self._busy_at = time.monotonic()
        self._log.refuse_unsigned(self._nobody_else_answers)
        for run, state in list(self._log.states.items()):
            rests = run in self._carried or time.monotonic() < self._retry_at.get(run, 0.0)
            if not rests and self._needs_us(state):
                self._guard(run, self._take)
        for run in list(self._carried):
            self._guard(run, self._step)
        self._queue = self._waiting()
        for run in self.queue:
            if self._fits(run):
                self._guard(run, lambda r: self._carried[r].controller.begin(self._by))
                self._queue.remove(run)

    def leave(self) -> None:
        """Let all workers checkpoint and end; what should run goes on with the next server."""
        deadline = time.monotonic() + LEAVE_S
        for run, (controller, _) in list(self._carried.items()):
            controller.leave()
            if not controller.begun:
                self._guard(run, self._drop)
        while self._carried and time.monotonic() < deadline:
            for run in list(self._carried):
                self._guard(run, self._step)
            time.sleep(TICK_S)
        self.close()

    def close(self) -> None:
        """End whatever still lives, at once; it is left for whoever comes next."""
        for run in list(self._carried):
            self._guard(run, self._drop)

    # --- taking up and letting go ----------------------------------------------------------------

    def _nobody_else_answers(self, command: Unsigned) -> bool:
        run = command.run
        state = self._log.states.get(run)
        if state is not None and not self._mine(state):
            return False
        return run in self._carried or state is None or not self.home.is_owned(run)

    def _needs_us(self, state: RunState) -> bool:
        if not self._mine(state):
            return False
        if state.commands or state.jobs:
            return True
        if state.desired == RUNNING:
            return _is_ours(state)
        left_behind = state.desired == STOPPED and state.status in ACTIVE
        return left_behind and (self.home.cluster is None or _is_ours(state))

    def _take(self, run: str) -> None:
        lease = self.home.take_lease(run)
        if lease is None:
            return
        try:
            config = self.home.config(self._log.states[run])
            launcher = self._make_launcher(run, config)
            controller = Controller(self.home, run, config, launcher, self._log, logger.warning)
        except BaseException:
            lease.close()
            self._log.answer(run)  # a config that cannot be read is a reason to reject
            raise
        self._carried[run] = Carried(controller, lease)

    def _step(self, run: str) -> None:
        controller = self._carried[run].controller
        done = controller.step()
        state = controller.state
        if done and (controller.begun or not self._should_run(state)):
            self._drop(run)

    def _drop(self, run: str) -> None:
        carried = self._carried.pop(run)
        carried.controller.settle()
        carried.controller.close()
        state = self._log.states[run]
        if state.desired == DELETED:
            purge(self.home, state, aside=True)  # this thread carries the other runs
        carried.lease.close()

    def _guard(self, run: str, work: Callable[[str], None]) -> None:
        """One run's trouble is not another's, whatever it is: a bug in ours too."""
        try:
            work(run)
        except RookeryError as error:
            logger.warning("run %s: %s", run, error)
            self._fail(run, str(error))
        except Exception as error:
            logger.exception("run %s", run)
            self._fail(run, f"{type(error).__name__}: {error}")

    def _fail(self, run: str, why: str) -> None:
        self._retry_at[run] = time.monotonic() + RETRY_S
        state = self._log.states.get(run)
        if state is not None and state.status in ACTIVE:
            self.home.record(RunEnded(run=run, status="failed", reason=f"controller: {why}"))
            self._log.read()
        carried = self._carried.pop(run, None)
        if carried is not None:
            carried.controller.close()
            carried.lease.close()

    # --- the queue -------------------------------------------------------------------------------

    def _should_run(self, state: RunState) -> bool:
        return state.desired == RUNNING and _is_ours(state)

    def _waiting(self) -> list[str]:
        """First asked, first served: those that wait already keep their place."""
        waiting = {
            run
            for run, (controller, _) in self._carried.items()
            if not controller.begun and self._should_run(controller.state)
        }
        kept = [run for run in self._queue if run in waiting]
        fresh = sorted(waiting - set(kept), key=lambda run: self._log.states[run].queued_s)
        return kept + fresh

    def _fits(self, run: str) -> bool:
        """Whether there are CPUs for it; a run larger than the budget gets it all."""
        controllers = [carried.controller for carried in self._carried.values()]
        used = sum(cost(c.state) for c in controllers if c.begun)
        return used == 0 or used + cost(self._carried[run].controller.state) <= self._cpus()


def _is_ours(state: RunState) -> bool:
    """Not a run whose terminal died, unless somebody asked for it since."""
    return state.owned_by != "terminal" or state.start_asked
