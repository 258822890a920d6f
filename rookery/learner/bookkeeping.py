"""The learner's book-keeping: consumes the stream of updates and decides what follows.

Metrics several times a second, checkpoints in time, and the word that the run is done.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rookery.algorithms import algorithm_of
from rookery.bus import Bus, Outgoing, Position
from rookery.checkpoints.checkpoint import Checkpoint, checkpoint_name, save_checkpoint
from rookery.checkpoints.store import CheckpointStore
from rookery.config.algorithm import live_hyperparameters
from rookery.config.live import changed, effective
from rookery.config.models import RunConfig, StopConfig
from rookery.learner.inbox import NO_ORDERS, Inbox
from rookery.learner.league import LearnerLeague
from rookery.learner.loop import Updated
from rookery.learner.manifest import LearnerManifest, pending_name, snapshots_needed
from rookery.learner.report import Report
from rookery.learner.transport import LearnerTransport
from rookery.messages import (
    EXPERIENCES,
    METRICS_ACTORS,
    METRICS_TRAINING,
    CheckpointSaved,
    Event,
    HyperparametersChanged,
    LedgerSummary,
    RunEnded,
    TrainingHeld,
    UpdateSkipped,
    encode_json,
)
from rookery.messages.frame import Arrays

if TYPE_CHECKING:
    from rookery.learner.trainer import Trainer

_GIVE_UP_AFTER = 3  # updates in a row that were not finite: the weights do not get better of it
_ALL_TOLD = 4  # updates at the beginning: a run of a moment has a curve too
_KEPT_TRAINING_METRICS = 100_000  # records; some 60 MB
_KEPT_ACTOR_METRICS = 2_000


class Bookkeeper:
    def __init__(
        self,
        bus: Bus,
        config: RunConfig,
        store: CheckpointStore,
        inbox: Inbox,
        trainer: Trainer,
        transport: LearnerTransport,
        report: Report,
        league: LearnerLeague | None,
        resumed: Checkpoint[LearnerManifest] | None,
        delivery_bytes: int = 0,
        learners: int = 1,
    ) -> None:
        self._learners = learners
        self.inbox, self.trainer, self.transport, self.report = inbox, trainer, transport, report
        self.resumed, self._league = resumed, league
        self._bus, self._config, self._store = bus, config, store
        self._stop = config.stop
        self._metrics_due = 0.0
        self._checkpoint_due = time.monotonic() + config.checkpoint.interval_s
        self._delivery_bytes = delivery_bytes
        self._saved_at = deque([(0, inbox.position)], config.checkpoint.keep)
        self._saved_name = ""
        self._skipped = self._skipped_in_a_row = 0  # updates of this life
        self._diverged = ""  # why it is given up
        told = {} if resumed is None else resumed.manifest.hyperparameters
        self._applied = msgspec.structs.replace(NO_ORDERS, hyperparameters=told)
        self._changes = deque(change.steps for change in config.changes)  # to come
        if self._is_changed():  # before this life
            self._set(changed(config, inbox.ledger.trained, told))
        self._untold: list[Event] = []
        self._untold = self.apply_orders()  # what was asked while nobody learned

    def progress(self) -> float:
        """How much of the run is done, by its steps or its minutes; 0 where there is no limit."""
        stop = self._stop
        by_steps = self.inbox.ledger.trained / stop.steps if stop.steps else 0.0
        by_time = self.report.train_s / (60 * stop.minutes) if stop.minutes else 0.0
        return max(by_steps, by_time)

    def note(self, updated: Updated | None) -> list[Event]:
        """Take in what the loop did; publishes metrics when they are due."""
        events: list[Event] = []
        if updated is not None:
            events = self._note_skipped(updated)
            self.report.note(updated)
        elif self.inbox.book.outstanding:
            self.report.begin()
        now = time.monotonic()
        begins = updated is not None and updated.number <= _ALL_TOLD
        if begins or now >= self._metrics_due:
            self._metrics_due = now + min(1.0, max(0.25, self.report.train_s / 2000))
            self.publish_metrics()
        return events

    def _note_skipped(self, updated: Updated) -> list[Event]:
        """An update that was not finite left the weights as they were; many in a row are the end.

        The log hears of the first, the second, the fourth and so on: it is no place for thousands.
        """
        if not updated.skipped:
            self._skipped_in_a_row = 0
            return []
        self._skipped += 1
        self._skipped_in_a_row += 1
        why = _not_finite(updated)
        if self._skipped_in_a_row == _GIVE_UP_AFTER:
            self._diverged = (
                f"{why}, the {_GIVE_UP_AFTER}rd in a row: training diverged; lower "
                "algorithm.learning_rate, or check the environment's rewards"
            )
        if self._skipped & (self._skipped - 1):
            return []
        return [
            UpdateSkipped(
                run=self.report.run,
                update=updated.number,
                env_steps=self.inbox.ledger.trained,
                why=why,
                count=self._skipped,
            )
        ]

    def apply_orders(self) -> list[Event]:
        """Do what the newest orders say; returns what came of it."""
        events, self._untold = self._untold, []
        orders, before = self.inbox.orders, self._applied
        is_changed = self._is_changed()
        if orders.revision == before.revision and not is_changed:
            return events
        self._applied = orders
        where: dict[str, Any] = {
            "run": self.report.run,
            "update": self.transport.number + self.inbox.updates_begun + 1,
            "env_steps": self.inbox.ledger.trained,
        }
        now = changed(self._config, self.inbox.ledger.trained, orders.hyperparameters)
        self._set(now)
        if orders.stop is not None:
            self._stop = StopConfig.model_validate(orders.stop)
        if is_changed or orders.hyperparameters != before.hyperparameters:
            events.append(HyperparametersChanged(values=now, **where))
        if orders.paused != before.paused:
            self.report.hold(orders.paused)
            events.append(TrainingHeld(held=orders.paused, **where))
        if orders.checkpoints > before.checkpoints or orders.paused:
            self._checkpoint_due = time.monotonic()
        return events

    def _is_changed(self) -> bool:
        """Whether training has come to a change of the config since the last look."""
        found = False
        while self._changes and self.inbox.ledger.trained >= self._changes[0]:
            self._changes.popleft()
            found = True
        return found

    def _set(self, values: Mapping[str, float]) -> None:
        """The next update takes them as arguments: nothing is compiled anew."""
        policies = effective(self._config, values).all_policies
        for name in self.trainer.hyper:
            self.trainer.hyper[name] = live_hyperparameters(
                algorithm_of(policies[name].algorithm).config
            )

    def publish_metrics(self) -> None:
        metrics = self.report.metrics(
            self.transport.version,
            self.trainer.learning_rate(self.report.first, self.progress()),
            self.ledger_summary(),
            self.inbox.lag_max,
            self._league.metrics() if self._league is not None else None,
            self.inbox.unread(),
            self.inbox.book.late,
            self.inbox.book.offers,
        )
        self._bus.publish([Outgoing(METRICS_TRAINING, encode_json(metrics), key=metrics.run)])

    def ledger_summary(self) -> LedgerSummary:
        return self.inbox.ledger.summary(self.inbox.pending_steps, self.inbox.position)

    def ended(self) -> RunEnded | None:
        """Whether the run's target or limit is reached."""
        stop, run = self._stop, self.report.run
        if self._diverged:
            return RunEnded(run=run, status="failed", reason=self._diverged)
        mean = self.report.mean_return
        target = stop.until_return
        if target is not None and self.report.window_full and mean is not None and mean >= target:
            reason = f"mean return of 100 episodes {mean:.1f} >= {target:g}"
            return RunEnded(run=run, status="solved", reason=reason)
        limit = None
        if stop.steps is not None and self.inbox.ledger.trained >= stop.steps:
            limit = f"{self.inbox.ledger.trained:,} steps"
        elif stop.minutes is not None and self.report.train_s >= 60 * stop.minutes:
            limit = f"{stop.minutes:g} minutes"
        if limit is None:
            return None
        if target is None:
            return RunEnded(run=run, status="finished", reason=f"{limit} done")
        shown = "no episode ended" if mean is None else f"mean return {mean:.1f}"
        return RunEnded(
            run=run, status="limited", reason=f"{limit} came before return {target:g}: {shown}"
        )

    def last_word(self, ended: RunEnded | None) -> RunEnded:
        """How it ended, and how far it came; without an end of its own it was asked to stop."""
        run, steps = self.report.run, self.inbox.ledger.trained
        ended = ended or RunEnded(run=run, status="stopped", reason="asked to stop")
        return msgspec.structs.replace(
            ended,
            env_steps=steps,
            updates=self.transport.number,
            mean_return_100=self.report.mean_return,
            train_s=self.report.train_s,
        )

    def checkpoint_is_due(self) -> bool:
        """By time, or by bytes; not before something was trained."""
        if checkpoint_name(self.transport.version) == self._saved_name:
            return False
        return time.monotonic() >= self._checkpoint_due or self.has_read_much()

    def has_read_much(self) -> bool:
        """Experience may not pile up behind the newest checkpoint."""
        return self.inbox.bytes_read - self._saved_at[-1][0] >= self._portion

    @property
    def _in_flight(self) -> int:
        """Bytes that credits allow on the bus, and those of the update before."""
        book = self.inbox.book
        return book.fragments_per_batch * (book.max_lag + 2) * self._delivery_bytes

    @property
    def _portion(self) -> int:
        """Bytes that are read between two checkpoints, at most."""
        room = max(self._config.bus.max_experience_mb << 20, self._in_flight)
        return room // (self._config.checkpoint.keep + 2)

    def _let_go(self, oldest: Position) -> None:
        """Remove experience that no kept checkpoint needs; and if what is to come would have no
        room, that which only the older ones need: from one of those, it would count as lost."""
        spare = self._config.checkpoint.keep * self._portion - self._in_flight
        while len(self._saved_at) > 1 and self.inbox.bytes_read - self._saved_at[0][0] > spare:
            oldest = self._saved_at[1][1]
            self._saved_at.popleft()
        self._bus.retain(EXPERIENCES, oldest)

    def save(
        self, actor: Arrays | None = None, snapshots: Collection[str] = ()
    ) -> CheckpointSaved | None:
        """Write a checkpoint and let go of experience and snapshots that no kept one needs."""
        self._checkpoint_due = time.monotonic() + self._config.checkpoint.interval_s
        arrays = self.trainer.save()
        arrays |= {f"actor/{name}": array for name, array in (actor or {}).items()}
        pending = {pending_name(i): sent for i, (sent, _) in enumerate(self.inbox.received)}
        checkpoint = Checkpoint(self._manifest(snapshots), arrays, pending)
        if checkpoint.name == self._saved_name:
            return None  # nothing was trained since
        kept = save_checkpoint(self._store, checkpoint, self._config.checkpoint.keep)
        self._saved_name = checkpoint.name
        self._saved_at.append((self.inbox.bytes_read, self.inbox.position))
        self._forget(kept)
        return CheckpointSaved(
            run=self.report.run,
            name=checkpoint.name,
            env_steps=self.inbox.ledger.trained,
            updates=self.transport.number,
            mean_return_100=self.report.mean_return,
            train_s=self.report.train_s,
        )

    def _forget(self, kept: Sequence[LearnerManifest | None]) -> None:
        """What none of the checkpoints that are kept needs, and metrics of long ago."""
        oldest = next((manifest for manifest in kept if manifest is not None), None)
        if oldest is not None:
            begins = (0,) * len(self._bus.end(EXPERIENCES))  # a fork's first one has read nothing
            self._let_go(oldest.position or begins)
        needed = snapshots_needed(kept)
        if self._league is not None and needed is not None:
            self._league.forget_all_but(needed)
        for topic, most in (
            (METRICS_TRAINING, _KEPT_TRAINING_METRICS),
            (METRICS_ACTORS, _KEPT_ACTOR_METRICS),
        ):
            self._bus.retain(topic, tuple(max(0, end - most) for end in self._bus.end(topic)))

    def _manifest(self, snapshots: Collection[str]) -> LearnerManifest:
        inbox, report, league = self.inbox, self.report, self._league
        return LearnerManifest(
            run=report.run,
            generation=self.transport.generation,
            number=self.transport.number,
            ancestry=dict(inbox.branch.starts),
            position=inbox.position,
            ledger=inbox.ledger,
            book=inbox.book,
            windows=report.windows,
            train_s=report.train_s,
            pending=len(inbox.received),
            league=league.state if league is not None else None,
            threads=self._config.learner.threads,
            learners=self._learners,
            hyperparameters=self._applied.hyperparameters,
            pending_steps=inbox.pending_steps,
            snapshots=sorted({*snapshots, *(league.files if league is not None else ())}),
        )


def _not_finite(updated: Updated) -> str:
    policy = updated.skipped[0]
    values = updated.values[policy].items()
    named = (f"{name} = {value}" for name, value in values if not math.isfinite(value))
    return f"update {updated.number} of policy {policy} gave {next(named, 'no finite weights')}"
