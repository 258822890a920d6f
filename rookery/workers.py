"""The workers' entry points: what a process of `rookery actor` or `rookery learner` does.

A worker stops after a checkpoint on SIGTERM and writes down what went wrong before it dies of it.
Under the local launcher it lives only as long as its standard input is open: the launcher holds the
other end.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rookery.actor.post import ActorPost
from rookery.bus import Outgoing
from rookery.control.home import Home
from rookery.control.run_log import RunLog
from rookery.control.run_state import PAUSED, RUNNING
from rookery.errors import EnvironmentFailed, LearnerFenced, RookeryError
from rookery.launchers import FENCED, LIFELINE, NICENESS, WorkerSpec
from rookery.messages import (
    JOINED_FROM,
    METRICS_ACTORS,
    ActorId,
    ActorMetrics,
    RunEnded,
    WorkerExited,
    WorkerFailed,
    WorkerStarted,
    WorkerStarting,
    encode_json,
)
from rookery.players.seat_map import SeatFunction
from rookery.wiring import Actor, Learner, Place, prepare_xla, wire_actor, wire_learner

WAIT_S = 0.1  # how long a worker sleeps on the bus before it looks up
PAUSED_NAP_S = 0.02  # of an inline run: nothing else in its process waits
HUNG = 71  # exit code of a worker whose environment hung


class Stop:
    """Set by SIGTERM; a worker looks at it between fragments or updates."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def ask(self, *_: object) -> None:
        self.asked = True


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
    spec = WorkerSpec(kind, index, incarnation, (), {})
    stop = Stop()
    signal.signal(signal.SIGTERM, stop.ask)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.environ.get(LIFELINE) == "stdin":
        end_with_parent()
    step_back(int(os.environ.get(NICENESS) or 0))
    work = {"actor": _act, "learner": _learn, "inline": _both}[kind]
    return guarded(home, run, spec, lambda: work(home, run, spec, stop))


def join(kind: str, name: str) -> int:
    """A worker in the foreground that joins a run from any machine, until the run ends."""
    home = Home.default()
    run = home.find(name)
    known = home.state(run).workers.get("learner-0")
    if kind == "actor":
        spec = WorkerSpec(kind, JOINED_FROM + secrets.randbelow(10**6), 1, (), {})
    else:
        spec = WorkerSpec(kind, 0, known.incarnation + 1 if known else 1, (), {})
    stop = UntilEnded(home, run)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    identity: dict[str, Any] = {
        "run": run,
        "kind": kind,
        "index": spec.index,
        "incarnation": spec.incarnation,
    }
    home.record(WorkerStarting(**identity), WorkerStarted(**identity, pid=os.getpid()))
    print(f"{kind} {spec.index}.{spec.incarnation} joined {run}", flush=True)
    if kind == "actor":
        every_s = home.config(home.state(run)).actors.heartbeat_s
        code = guarded(home, run, spec, lambda: _act(home, run, spec, stop, every_s))
    else:
        code = guarded(home, run, spec, lambda: _learn(home, run, spec, stop))
    home.record(WorkerExited(**identity, code=code, expected=code in (0, FENCED)))
    print(f"{kind} left {run}", flush=True)
    return code


def wait_for_work(threads: int) -> int:
    """A learner on standby: import what it needs, then do what standard input says."""
    prepare_xla(threads)
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


def guarded(home: Home, run: str, spec: WorkerSpec, work: Callable[[], int]) -> int:
    """Do the work; whatever ends it is written to the log of events first."""
    try:
        return work()
    except LearnerFenced as error:
        print(f"rookery: {error}", file=sys.stderr, flush=True)
        return FENCED
    except Exception as error:  # noqa: BLE001 the worker's outermost frame: report, then die
        traceback.print_exc()
        home.record(failure(run, spec, error))
        return 1


def failure(run: str, spec: WorkerSpec, error: BaseException) -> WorkerFailed:
    """What a person should read: one line, and the traceback of their own code if it is theirs."""
    detail = "".join(traceback.format_exception(error))
    text = str(error)
    if isinstance(error, EnvironmentFailed):
        detail = error.user_traceback
    elif not isinstance(error, RookeryError):
        text = f"{type(error).__name__}: {error}"
    final = isinstance(error, RookeryError) and not isinstance(error, EnvironmentFailed)
    return WorkerFailed(
        run=run,
        kind=spec.kind,
        index=spec.index,
        incarnation=spec.incarnation,
        error=" ".join(text.split()),
        detail=detail,
        final=final,
    )


# --- actor ---------------------------------------------------------------------------------------


def _act(home: Home, run: str, spec: WorkerSpec, stop: Stop, heartbeat_s: float = 0.0) -> int:
    place = Place.open(home, run)
    prepare_xla(place.config.learner.threads)
    actor_id = ActorId(spec.index, spec.incarnation)
    with DeadlineWatch(home, run, spec, place.config.environment.deadline_s) as watch:
        actor = wire_actor(place, actor_id, WAIT_S, watch.busy, stop, heartbeat_s)
        meter = ActorMeter(place, actor)
        with Heartbeat(actor.post, heartbeat_s):
            for fragment in actor.loop:
                meter.note(fragment is not None)
    if heartbeat_s:
        actor.post.leave()
    return 0


class Heartbeat:
    """Says every few seconds that an actor lives, whatever its environment is doing."""

    def __init__(self, post: ActorPost, every_s: float) -> None:
        self._post, self._every_s = post, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> None:
        if self._every_s:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._every_s:
            self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(self._every_s):
            self._post.alive()


class ActorMeter:
    """Publishes an actor's metrics once a second."""

    def __init__(self, place: Place, actor: Actor) -> None:
        self._place, self._actor = place, actor
        self._since = self._turn = time.monotonic()
        self._steps, self._waited = 0, 0.0

    def note(self, played: bool) -> None:
        now = time.monotonic()
        if not played:
            self._waited += now - self._turn
        self._turn = now
        elapsed = now - self._since
        if elapsed < 1.0:
            return
        post = self._actor.post
        metrics = ActorMetrics(
            run=self._place.run,
            actor=str(post.actor),
            fragments=post.sequence,
            agent_steps=post.agent_steps,
            steps_per_s=(post.agent_steps - self._steps) / elapsed,
            waiting_share=min(1.0, self._waited / elapsed),
            doing="playing" if played else "waiting",
            host=socket.gethostname(),
        )
        message = Outgoing(METRICS_ACTORS, encode_json(metrics), key=metrics.actor)
        self._place.bus.publish([message])
        self._since, self._steps, self._waited = now, post.agent_steps, 0.0


class DeadlineWatch:
    """Ends the process when an environment takes longer than its deadline, and says where.

    Used as a context: what happens after it is none of its business.
    """

    def __init__(self, home: Home, run: str, spec: WorkerSpec, deadline_s: float) -> None:
        self._home, self._run, self._spec, self._deadline_s = home, run, spec, deadline_s
        self._doing, self._since, self._calls = "", 0.0, 0
        self._thread_id = threading.get_ident()
        self._over = threading.Event()

    def __enter__(self) -> DeadlineWatch:
        threading.Thread(target=self._look, name="deadline-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def busy(self, doing: str) -> None:
        self._since = time.monotonic()
        self._calls += 1
        self._doing = doing

    def _look(self) -> None:
        while not self._over.wait(min(1.0, self._deadline_s / 4)):
            doing, since = self._doing, self._since
            if doing in ("step", "reset") and time.monotonic() - since > self._deadline_s:
                self._end(doing)

    def _end(self, doing: str) -> None:
        frame = sys._current_frames().get(self._thread_id)
        error = (
            f"the environment hung: {doing} number {self._calls} took longer than "
            f"environment.deadline_s = {self._deadline_s:g} s"
        )
        failed = WorkerFailed(
            run=self._run,
            kind=self._spec.kind,
            index=self._spec.index,
            incarnation=self._spec.incarnation,
            error=error,
            detail="".join(traceback.format_stack(frame)) if frame else "",
        )
        self._home.record(failed)
        if self._spec.kind == "inline":  # nobody is left to give up but this process
            self._home.record(RunEnded(run=self._run, status="failed", reason=error))
            print(f"rookery: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(HUNG)


# --- learner -------------------------------------------------------------------------------------


def _learn(home: Home, run: str, spec: WorkerSpec, stop: Stop) -> int:
    place = Place.open(home, run)
    prepare_xla(place.config.learner.threads)
    learner = wire_learner(place, spec.incarnation, WAIT_S, stop)
    ended: RunEnded | None = None
    for updated in learner.loop:
        learner.keeper.note(updated)
        _heed(home, learner)
        if updated is not None:
            ended = learner.keeper.ended()
            if ended is not None:
                break
        if learner.keeper.checkpoint_is_due():
            _record_checkpoint(home, learner)
    learner.keeper.publish_metrics()
    _record_checkpoint(home, learner)
    home.record(ended or RunEnded(run=run, status="stopped", reason="asked to stop"))
    return 0


def _heed(home: Home, learner: Learner) -> None:
    events = learner.keeper.heed()
    if events:
        home.record(*events)


def _record_checkpoint(home: Home, learner: Learner, actor: dict | None = None) -> None:
    saved = learner.keeper.save(actor)
    if saved is not None:
        home.record(saved)


# --- both, in one process ------------------------------------------------------------------------


def _both(home: Home, run: str, spec: WorkerSpec, stop: Stop) -> int:
    """An inline run in a process of its own."""
    codes = [code for code in inline(home, run, spec, stop) if code is not None]
    return codes[-1]


def inline(
    home: Home,
    run: str,
    spec: WorkerSpec,
    stopped: Callable[[], bool],
    seat_function: SeatFunction | None = None,
) -> Iterator[int | None]:
    """Actor and learner in turns; yields None per turn and the exit code at the end."""
    turns = _take_turns(home, run, spec, stopped, seat_function)
    while True:
        try:
            yield next(turns)
        except StopIteration:
            yield 0
            return
        except Exception as error:  # noqa: BLE001 the worker's outermost frame: report, then die
            home.record(failure(run, spec, error))
            yield 1
            return


def _take_turns(
    home: Home,
    run: str,
    spec: WorkerSpec,
    stopped: Callable[[], bool],
    seat_function: SeatFunction | None,
) -> Iterator[None]:
    place = Place.open(home, run, seat_function)
    config = place.config
    prepare_xla(config.learner.threads)
    with DeadlineWatch(home, run, spec, config.environment.deadline_s) as watch:
        learner, actor = _wire_both(place, spec, watch)
        keeper = learner.keeper
        ended: RunEnded | None = None
        while ended is None:
            if next(actor.loop) is None:
                updated = next(learner.loop)
                keeper.note(updated)
                _heed(home, learner)
                if keeper.inbox.orders.paused:
                    if stopped():
                        ended = RunEnded(run=run, status="stopped", reason="asked to stop")
                    time.sleep(PAUSED_NAP_S)
                if updated is not None:
                    ended = keeper.ended()
                    due = updated.number % config.checkpoint.every_updates == 0
                    if due and ended is None:
                        _save_both(home, learner, actor, config.seed)
                    if stopped() and ended is None and (due or actor.rollout.can_save):
                        ended = RunEnded(run=run, status="stopped", reason="asked to stop")
            yield None
        keeper.publish_metrics()
        _save_both(home, learner, actor, config.seed)
        home.record(ended)


def _wire_both(place: Place, spec: WorkerSpec, watch: DeadlineWatch) -> tuple[Learner, Actor]:
    """Learner and actor as the checkpoint left them; what the bus holds beyond it is abandoned."""
    learner = wire_learner(place, spec.incarnation, 0.0)
    keeper = learner.keeper
    for gone in list(keeper.inbox.book.tickets):
        keeper.inbox.book.leave(gone)
    keeper.inbox.abandon_all()
    actor = wire_actor(place, ActorId(0, spec.incarnation), 0.0, watch.busy)
    if keeper.resumed is not None:
        _restore_actor(actor, keeper.resumed.arrays, place.config.seed, keeper.post.number)
    next(actor.loop)  # joins: its credits stand before anything is trained, as when it never left
    if keeper.inbox.receive(keeper.post.number):
        keeper.post.grant()
    return learner, actor


def _save_both(home: Home, learner: Learner, actor: Actor, seed: int) -> None:
    learner.keeper.inbox.receive(learner.keeper.post.number)
    _record_checkpoint(home, learner, actor.rollout.save())
    if not actor.rollout.can_save:
        actor.rollout.restart(_restart_seed(seed, learner.keeper.post.number))


def _restore_actor(actor: Actor, arrays: dict, seed: int, number: int) -> None:
    from rookery.learner.checkpoint import sub_arrays

    saved = sub_arrays(arrays, "actor/")
    if saved:
        actor.rollout.restore(saved)
        if not actor.rollout.can_save:
            actor.rollout.restart(_restart_seed(seed, number))


def _restart_seed(seed: int, number: int) -> int:
    from rookery import seeds

    return seeds.number(seed, "environment", 0, 0, number)


def step_back(niceness: int) -> None:
    """Let whoever answers people go first; training takes what is left, which is nearly all."""
    if niceness:
        os.nice(niceness)
        with contextlib.suppress(OSError):  # Linux weighs sessions too, and each worker has its own
            Path("/proc/self/autogroup").write_text(str(niceness))


def die_with_parent() -> None:
    """At once, whatever kills it; on Linux only."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def end_with_parent() -> None:
    """Die with the process that holds our standard input, whatever kills it."""
    die_with_parent()

    def wait() -> None:
        while os.read(0, 4096):
            continue
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
