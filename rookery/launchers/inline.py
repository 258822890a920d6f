"""Inline: actor and learner take turns in this process, so a run is deterministic."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

from rookery import seeds
from rookery.actor.build import Actor, build_actor
from rookery.actor.saved import snapshot_files
from rookery.actor.watchdog import DeadlineWatch
from rookery.checkpoints.checkpoint import sub_arrays
from rookery.launchers import Launch, Launcher, Observed, WorkerSpec
from rookery.launchers.local import LocalLauncher
from rookery.launchers.log_file import bound
from rookery.learner.build import Learner, build_learner
from rookery.learner.main import record_checkpoint, take_note
from rookery.messages import ActorId, RunEnded
from rookery.messages.frame import Arrays
from rookery.output import printing_to
from rookery.worker import WorkerId
from rookery.worker.context import RunContext
from rookery.worker.process import failure
from rookery.worker.progress import Pulse
from rookery.worker.xla import prepare_xla

IDLE_NAP_S = 0.02  # nothing else in the process waits

Work = Callable[[WorkerSpec, Callable[[], bool]], Iterator[int | None]]
"""Makes a worker's stream of turns; the last item is its exit code, all others are None."""


class InlineLauncher:
    def __init__(self, make_work: Work, logs: Path | None = None) -> None:
        """`logs`: where prints go; None: they stay in this process's output."""
        self._make_work, self._logs = make_work, logs
        self._work: dict[str, Iterator[int | None]] = {}
        self._stopping: set[str] = set()
        self._ended: dict[str, int] = {}

    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        self._stopping |= self._work.keys() - specs.keys()
        for name, spec in specs.items():
            if name not in self._work and name not in self._ended:
                self._work[name] = self._make_work(spec, lambda n=name: n in self._stopping)  # type: ignore[misc]

    def observe(self) -> dict[str, Observed]:
        ended, self._ended = self._ended, {}
        seen = {name: Observed(os.getpid(), None) for name in self._work}
        return seen | {name: Observed(os.getpid(), code) for name, code in ended.items()}

    def work(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._printing():
            while self._work and time.monotonic() < until:
                for name, turns in list(self._work.items()):
                    code = next(turns, 0)
                    if code is not None:
                        self._ended[name] = code
                        del self._work[name]
        if not self._work and not self._ended:
            time.sleep(seconds)

    def close(self) -> None:
        with self._printing():
            self._work.clear()

    def _printing(self) -> AbstractContextManager[None]:
        if self._logs is None or not self._work:
            return nullcontext()
        self._logs.mkdir(parents=True, exist_ok=True)
        path = self._logs / f"{next(reversed(self._work))}.log"
        bound(path)
        return printing_to(path)


def make_launcher(launch: Launch) -> Launcher:
    """In this process where its owner allows that, else in one process of its own."""
    if (here := launch.here) is None:
        return LocalLauncher(launch.logs, None, launch.niceness, launch.progress)
    logs = launch.logs if launch.own_process else None
    return InlineLauncher(lambda spec, stopped: take_turns(here(), spec.worker, stopped), logs)


def take_turns(
    context: RunContext, worker: WorkerId, stopped: Callable[[], bool]
) -> Iterator[int | None]:
    """Actor and learner in turns; yields None per turn and the exit code at the end."""
    turns = _turns(context, worker, stopped)
    while True:
        try:
            yield next(turns)
        except StopIteration:
            yield 0
            return
        except Exception as error:  # noqa: BLE001 the worker's outermost frame: report, then die
            context.record(failure(context.run, worker, error))
            yield 1
            return


def _turns(context: RunContext, worker: WorkerId, stopped: Callable[[], bool]) -> Iterator[None]:
    config = context.config
    prepare_xla(config.learner.threads, config.learner.device)
    deadline_s = config.environment.deadline_s
    with ExitStack() as stack:
        pulse = stack.enter_context(context.pulse(worker))
        stack.enter_context(DeadlineWatch(context.record, context.run, worker, deadline_s, pulse))
        learner, actor = _build_both(context, worker, pulse)
        stack.callback(actor.close)
        bookkeeper = learner.bookkeeper
        ended: RunEnded | None = None
        stopping = False
        while ended is None and not stopping:
            if next(actor.loop) is None:
                pulse.busy("training")
                updated = next(learner.loop)
                take_note(context, learner, updated)
                if updated is None:  # paused, or nobody here can go on
                    stopping = stopped()
                    time.sleep(IDLE_NAP_S)
                if updated is not None:
                    ended = bookkeeper.ended()
                    due = updated.number % config.checkpoint.every_updates == 0
                    due |= bookkeeper.has_read_much()
                    if due and ended is None:
                        _save_both(context, learner, actor, config.seed)
                    stopping |= stopped() and ended is None and (due or actor.rollout.can_save)
            yield None
        bookkeeper.publish_metrics()
        _save_both(context, learner, actor, config.seed)
        context.record(bookkeeper.last_word(ended))


def _build_both(context: RunContext, worker: WorkerId, pulse: Pulse) -> tuple[Learner, Actor]:
    """Learner and actor as the checkpoint left them; what the bus holds beyond it is abandoned."""
    learner = build_learner(context, worker.incarnation, 0.0)
    bookkeeper = learner.bookkeeper
    for gone in list(bookkeeper.inbox.book.tickets):
        bookkeeper.inbox.book.leave(gone)
    bookkeeper.inbox.abandon_all()
    actor = build_actor(context, ActorId(0, worker.incarnation), 0.0, pulse.busy)
    if bookkeeper.resumed is not None:
        _restore_actor(
            actor, bookkeeper.resumed.arrays, context.config.seed, bookkeeper.transport.number
        )
    next(actor.loop)  # joins: its credits stand before anything is trained, as when it never left
    if bookkeeper.inbox.receive(bookkeeper.transport.number):
        bookkeeper.transport.grant()
    bookkeeper.report.begin()
    return learner, actor


def _save_both(context: RunContext, learner: Learner, actor: Actor, seed: int) -> None:
    learner.bookkeeper.inbox.receive(learner.bookkeeper.transport.number)
    saved = actor.rollout.save()
    record_checkpoint(context, learner, saved, snapshot_files(saved))
    if not actor.rollout.can_save:
        actor.rollout.restart(_restart_seed(seed, learner.bookkeeper.transport.number))


def _restore_actor(actor: Actor, arrays: Arrays, seed: int, number: int) -> None:
    saved = sub_arrays(arrays, "actor/")
    if saved:
        actor.rollout.restore(saved)
        if not actor.rollout.can_save:
            actor.rollout.restart(_restart_seed(seed, number))


def _restart_seed(seed: int, number: int) -> int:
    return seeds.number(seed, "environment", 0, 0, number)
