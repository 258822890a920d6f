"""Carrying a run in this process: what `rookery train`, `resume` and `rookery.train` share."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rookery.bus import LATEST
from rookery.config.models import RunConfig
from rookery.control.context import open_context
from rookery.control.controller import Controller
from rookery.control.create import author
from rookery.control.fleet import Fleet
from rookery.control.home import Home
from rookery.control.judge import Judge, check_size
from rookery.control.launch import launch_of
from rookery.control.run_state import DELETED, ENDED, STOPPED, RunState
from rookery.control.settings import Allow
from rookery.launchers import make_launcher
from rookery.launchers.ray.link import Links
from rookery.launchers.standby import Standby
from rookery.messages import (
    METRICS_TRAINING,
    Command,
    ResumeRun,
    StartRun,
    StopRun,
    TrainingMetrics,
    decode_or_none,
)
from rookery.players.seat_map import SeatFunction

Progress = Callable[[RunState, TrainingMetrics | None, str | None], None]
"""Takes the run's state, also its last one, its newest metrics, and what it waits for, if so."""


LEASE_PATIENCE_S = 1.0  # a server holds a run's lease for a moment to answer its commands


def carry(
    home: Home,
    run: str,
    progress: Progress | None = None,
    standby: Standby | None = None,
    seat_function: SeatFunction | None = None,
    ask: Command | None = None,
    own_process: bool = False,
    links: Links | None = None,
) -> RunState | None:
    """Own the run and carry it to its end; None if another process owns it.

    `ask`: what starts it, if not a plain StartRun. `own_process`: see `Launch`. `links`: to
    clusters, where the caller has begun to connect already; they stay the caller's.

    Ctrl-C is StopRun; a second one ends the workers at once.
    """
    home.check_writable()
    with contextlib.ExitStack() as stack:
        if links is None:
            links = Links()
            stack.callback(links.close)
        mine = stack.enter_context(home.lease(run, patience_s=LEASE_PATIENCE_S))
        home.send(ask or StartRun(run=run, author=author()))
        if not mine:
            return None
        config = home.config(home.state(run))
        launcher = make_launcher(
            launch_of(
                home,
                run,
                config,
                links,
                here=lambda: open_context(home, run, seat_function),
                own_process=own_process,
                standby=standby,
            )
        )
        controller = Controller(home, run, config, launcher, warn=_warn)
        follow = _following(controller, progress)
        with _stop_on_interrupt(home, [run]) as obey:

            def tick(state: RunState) -> None:
                obey()
                follow(state)

            ended = controller.run_until_ended(tick)
            if ended.status in ENDED:
                follow(ended)  # what ended it may have come after the last tick
            return ended


@contextmanager
def connected(home: Home, config: RunConfig) -> Iterator[Links]:
    """On the cluster before there is a run, if it is for one: what is wrong is said at once."""
    with contextlib.closing(Links()) as links:
        if config.launcher == "ray":
            links.to(home.settings.ray.here()).wait()
        yield links


def carry_all(
    home: Home, runs: Sequence[str], tick: Callable[[Fleet], None], links: Links
) -> list[RunState]:
    """Carry several of one launcher to their ends, as many at a time as there are CPUs for; `tick`
    sees how they are. Ctrl-C stops them all."""
    home.check_writable()
    home.send(*(StartRun(run=run, author=author()) for run in runs))
    launcher, settings = home.config(home.state(runs[0])).launcher, home.settings
    with _stop_on_interrupt(home, runs) as obey:
        fleet = Fleet(
            home,
            lambda: settings.cpus or links.cpus(launcher, settings.ray.here()),
            lambda run, config: make_launcher(launch_of(home, run, config, links)),
            mine=lambda state: state.id in runs,
            by="terminal",
        )
        try:
            while not all(_is_over(fleet.states.get(run)) for run in runs) or fleet.is_busy:
                fleet.step()
                obey()
                tick(fleet)
                time.sleep(fleet.pause_s)
        finally:
            fleet.leave()
        return [fleet.states[run] for run in runs]


def _is_over(state: RunState | None) -> bool:
    """Ended, or refused and so never begun."""
    if state is None or state.commands:
        return False
    return state.status in ENDED or state.desired in (STOPPED, DELETED)


def going_on(home: Home, run: str, bounds: Mapping[str, Any]) -> Command:
    """What resumes a run here, with new bounds if any are named; raises why it cannot."""
    asked = ResumeRun(run=run, author=author(), **bounds)
    check_size(asked)
    return Judge(home, Allow()).judged(home.state(run), asked)


def _warn(text: str) -> None:
    print(f"rookery: {text}", file=sys.stderr, flush=True)


@contextmanager
def _stop_on_interrupt(home: Home, runs: Sequence[str]) -> Iterator[Callable[[], None]]:
    """Yields what sends the command: the handler, inside whatever it interrupts, only notes it."""
    asked = sent = False

    def note(*_: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    def obey() -> None:
        nonlocal sent
        if asked and not sent:
            sent = True
            home.send(*(StopRun(run=run, author=author(), reason="Ctrl-C") for run in runs))

    try:
        before = {s: signal.signal(s, note) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: a notebook's own interrupt stays in force
        yield obey
        return
    try:
        yield obey
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _following(controller: Controller, progress: Progress | None) -> Callable[[RunState], None]:
    """A tick that hands the newest metrics on, a few times a second."""
    if progress is None:
        return lambda state: None
    bus = controller.bus
    subscription = bus.subscribe(METRICS_TRAINING, LATEST) if bus is not None else None
    newest: TrainingMetrics | None = None
    due = 0.0

    def tick(state: RunState) -> None:
        nonlocal newest, due
        now, is_over = time.monotonic(), state.status in ENDED
        if now < due and not is_over:
            return
        due = now + 0.1
        if subscription is not None and not is_over:
            for record in subscription.poll(0.0):
                newest = decode_or_none(record.payload, TrainingMetrics) or newest
        progress(state, newest, None if is_over else controller.trouble)

    return tick
