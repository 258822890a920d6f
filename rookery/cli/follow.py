"""Watching a run of a server to its end, with the same progress line as one of this terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from rookery.control.queries import train_result
from rookery.control.run_state import RunState, apply
from rookery.messages import Event as LogEvent
from rookery.messages import TrainingMetrics

if TYPE_CHECKING:
    from rookery.cli.progress import Progress
    from rookery.client import Event, RemoteRun
    from rookery.client.local import LocalRun
    from rookery.control.models import RunDetail

TICK_S = 0.1
LAST_WORDS_S = 3.0  # for the learner's last metrics after the end
LOOK_S = 5.0
GOING = ("created", "queued", "running", "paused", "interrupted")  # and not ended


class FollowedRun:
    """What a terminal knows of a run that is carried elsewhere."""

    def __init__(self, run: RemoteRun | LocalRun) -> None:
        self.run = run
        self.metrics: TrainingMetrics | None = None
        self.seats: int | None = None  # how many the environment has
        self._state = RunState(run.id, {}, time.time(), status="running")
        self._events_at = -1

    def to_its_end(self, progress: Progress) -> None:
        """Returns when the run has ended; Ctrl-C leaves it going."""
        for entry in self._log():
            self._fold(entry.data)
        created = next((e.seq for e in self.run.audit() if e.kind == "create_run"), 0)
        after = {"events": self._events_at, "commands": created - 1, f"metrics/{self.run.id}": -1}
        with self.run.follow(("events", "commands", "metrics"), after) as stream:
            look_at, detail = 0.0, None
            while detail is None or detail.status in GOING:
                found = stream.poll(TICK_S)
                self._take(found)
                progress(self._state, self.metrics, stream.trouble or self._waits(detail))
                now = time.monotonic()
                heard = any(event.kind == "run_ended" for event in found)
                if stream.trouble is None and (heard or now >= look_at):
                    look_at, detail = now + LOOK_S, self.run.look()
            deadline = time.monotonic() + LAST_WORDS_S
            while not self._is_up_to(detail) and time.monotonic() < deadline:
                self._take(stream.poll(TICK_S))
            progress(self._state, self.metrics)

    def result(self, began: float) -> dict[str, Any]:
        """The JSON object of `rookery train`."""
        return train_result(self.run.detail(), self.seats, self.metrics, began)

    def _log(self) -> Iterator[Any]:
        """What happened before we began to watch."""
        after: int | None = -1
        while after is not None:
            page = self.run.events_page(after, 1000)
            for entry in page.entries:
                self._events_at = entry.seq
                yield entry
            after = page.next

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if event.channel == "events":
                self._fold(event.data)
            elif event.kind == "training":
                self.metrics = _decoded(event.data, TrainingMetrics) or self.metrics
            elif event.kind == "create_run":
                self.seats = len(event.data["config"]["spec"]["seats"])

    def _fold(self, data: dict[str, Any]) -> None:
        message = _decoded(data, LogEvent)
        if message is not None:
            self._state = apply(self._state, message) or self._state

    def _waits(self, detail: RunDetail | None) -> str | None:
        """In the queue of its server, before it has any worker."""
        if detail is None or not detail.waits_for or self._state.workers:
            return None
        return f"for {detail.waits_for}"

    def _is_up_to(self, detail: RunDetail) -> bool:
        steps = self.metrics.env_steps if self.metrics is not None else 0
        return steps >= detail.env_steps


def _decoded(data: dict[str, Any], kind: Any) -> Any:
    """None for what a server of another version says."""
    try:
        return msgspec.convert(data, type=kind)
    except msgspec.ValidationError:
        return None
