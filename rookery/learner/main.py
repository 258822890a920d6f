"""What a learner's process does: train, keep checkpoints, say when the run is done."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack

from rookery.learner.build import Learner, build_learner
from rookery.learner.follower import follow
from rookery.learner.leader import mustered
from rookery.learner.loop import Updated
from rookery.messages import RunEnded
from rookery.messages.frame import Arrays
from rookery.worker import WorkerId
from rookery.worker.context import RunContext
from rookery.worker.process import WAIT_S
from rookery.worker.xla import prepare_xla


def train(context: RunContext, worker: WorkerId, stop: Callable[[], bool]) -> int:
    """Train until the run's target or limit is reached, or it is told to stop."""
    crew = context.orders.learners
    together = crew > 1 or worker.index > 0  # on processors, wherever they are
    device = "cpu" if together else context.config.learner.device
    prepare_xla(context.config.learner.threads, device)
    if worker.index > 0:
        return follow(context, worker, stop)
    with context.pulse(worker) as pulse, ExitStack() as stack:
        muster = stack.enter_context(mustered(context, crew, stop)) if crew > 1 else None
        learner = build_learner(context, worker.incarnation, WAIT_S, stop, muster)
        ended: RunEnded | None = None
        for updated in learner.loop:
            pulse.busy("training")
            take_note(context, learner, updated)
            if updated is not None:
                ended = learner.bookkeeper.ended()
                if ended is not None:
                    break
            if learner.bookkeeper.checkpoint_is_due():
                pulse.busy("saving")
                record_checkpoint(context, learner)
        learner.bookkeeper.publish_metrics()
        pulse.busy("saving")
        record_checkpoint(context, learner)
        context.record(learner.bookkeeper.last_word(ended))
    return 0


def take_note(context: RunContext, learner: Learner, updated: Updated | None) -> None:
    """Of what the loop did, and of what was ordered meanwhile."""
    events = [*learner.bookkeeper.note(updated), *learner.bookkeeper.apply_orders()]
    if events:
        context.record(*events)


def record_checkpoint(
    context: RunContext,
    learner: Learner,
    actor: Arrays | None = None,
    snapshots: Collection[str] = (),
) -> None:
    """With an actor that is part of it, and the snapshots that sit at its tables."""
    saved = learner.bookkeeper.save(actor, snapshots)
    if saved is not None:
        context.record(saved)
