"""What an actor's process does: play, and say how it is doing."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

from rookery.actor.build import Actor, build_actor
from rookery.actor.transport import FULL_BUS, ActorTransport
from rookery.actor.watchdog import DeadlineWatch
from rookery.bus import Outgoing
from rookery.errors import BusError
from rookery.messages import METRICS_ACTORS, ActorId, ActorMetrics, encode_json
from rookery.worker import WorkerId
from rookery.worker.context import RunContext
from rookery.worker.process import WAIT_S
from rookery.worker.xla import prepare_xla

EVERY_S = 1.0  # between two reports

logger = logging.getLogger(__name__)


def act(
    context: RunContext, worker: WorkerId, stop: Callable[[], bool], heartbeat_s: float = 0.0
) -> int:
    """Play until it is told to stop; with a heartbeat, nobody watches over this actor."""
    prepare_xla(context.config.learner.threads)
    deadline_s = context.config.environment.deadline_s
    actor_id = ActorId(worker.index, worker.incarnation)
    with (
        context.pulse(worker) as pulse,
        DeadlineWatch(context.record, context.run, worker, deadline_s, pulse),
    ):

        def busy(doing: str) -> None:
            pulse.busy(doing)
            if doing == FULL_BUS:  # inside a turn of the loop: nobody else would say so
                meter.report(doing)

        actor = build_actor(context, actor_id, WAIT_S, busy, stop, heartbeat_s)
        meter = ActorMeter(context, actor)
        with closing(actor), HeartbeatThread(actor.transport, heartbeat_s):
            for fragment in actor.loop:
                meter.note(fragment is not None)
        if heartbeat_s:
            actor.transport.leave()
    return 0


class HeartbeatThread:
    """Says every few seconds that an actor lives, whatever its environment is doing."""

    def __init__(self, transport: ActorTransport, every_s: float) -> None:
        self._transport, self._every_s = transport, every_s
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
            try:
                self._transport.alive()
            except BusError as error:  # the next beat tries again: one that stops is taken for dead
                logger.warning("a heartbeat was not sent: %s", error)


class ActorMeter:
    """Publishes an actor's metrics after its first turn, and then once a second: whoever is cut off
    soon has been heard of."""

    def __init__(self, context: RunContext, actor: Actor) -> None:
        self._context, self._actor = context, actor
        self._since = self._turn = self._due = time.monotonic()
        self._steps, self._waited = 0, 0.0

    def note(self, played: bool) -> None:
        now = time.monotonic()
        if not played:
            self._waited += now - self._turn
        self._turn = now
        if now >= self._due:
            self.report("playing" if played else "waiting")

    def report(self, doing: str) -> None:
        now, transport = time.monotonic(), self._actor.transport
        elapsed = now - self._since
        metrics = ActorMetrics(
            run=self._context.run,
            actor=str(transport.actor),
            fragments=transport.sequence,
            agent_steps=transport.agent_steps,
            steps_per_s=(transport.agent_steps - self._steps) / elapsed,
            waiting_share=min(1.0, self._waited / elapsed),
            doing=doing,
            host=socket.gethostname(),
        )
        message = Outgoing(METRICS_ACTORS, encode_json(metrics), key=metrics.actor)
        self._context.bus.publish([message])
        self._since, self._steps, self._waited = now, transport.agent_steps, 0.0
        self._due = now + EVERY_S
