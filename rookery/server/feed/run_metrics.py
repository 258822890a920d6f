"""The newest metrics of one run in memory, and its newest messages for those who resume."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.bus import Record
from rookery.control.log_messages import TOPICS, Message, read_metrics
from rookery.messages import ActorMetrics, TrainingMetrics
from rookery.server.feed.recent_log import Stretch

RECENT = 256  # messages of a channel in memory: minutes of a run
RECENT_BYTES = 4 << 20
MOST_ACTORS = 4096


class RunMetrics:
    """Written by the follower's thread, read by any."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.training: TrainingMetrics | None = None
        self.actors: dict[str, ActorMetrics] = {}  # exchanged as a whole
        self.ends = dict.fromkeys(TOPICS, -1)  # the newest seq that was read
        self.recent: dict[str, Stretch] = {}

    def begin(self, part: str, floor: int) -> None:
        """Keep the messages that come after this seq."""
        self.recent[part] = Stretch(floor, RECENT, RECENT_BYTES)

    def take(self, part: str, records: Sequence[Record]) -> list[Message]:
        """The next records of a topic as messages; what cannot be read is left away."""
        messages = [message for record in records if (message := self._read(part, record))]
        if messages:
            self.ends[part] = messages[-1].seq
            if part in self.recent:
                self.recent[part].add(messages)
        return messages

    def _read(self, part: str, record: Record) -> Message | None:
        found = read_metrics(part, self.run, record)
        if found is None:
            return None
        message, metrics = found
        if isinstance(metrics, TrainingMetrics):
            self.training = metrics
            return message
        ordinal = metrics.actor.partition(".")[0] + "."
        others = {n: m for n, m in self.actors.items() if not n.startswith(ordinal)}
        if len(others) < MOST_ACTORS:
            self.actors = {**others, metrics.actor: metrics}  # its earlier incarnations are gone
        return message
