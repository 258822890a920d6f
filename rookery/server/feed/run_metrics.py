"""The newest metrics of one run in memory, and its newest messages for those who resume."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.bus import Record
from rookery.messages import (
    METRICS_ACTORS,
    METRICS_TRAINING,
    ActorMetrics,
    TrainingMetrics,
    decode_or_none,
)
from rookery.server.feed.recent_log import Message, Stretch

TOPICS = {"metrics": METRICS_TRAINING, "actors": METRICS_ACTORS}  # by a channel's first part
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
        decode = self._training if part == "metrics" else self._actor
        messages = [message for record in records if (message := decode(record))]
        if messages:
            self.ends[part] = messages[-1].seq
            if part in self.recent:
                self.recent[part].add(messages)
        return messages

    def _training(self, record: Record) -> Message | None:
        found = decode_or_none(record.payload, TrainingMetrics)
        if found is None or not is_text(record.payload):
            return None
        self.training = found
        return Message(
            f"metrics/{self.run}",
            record.offset,
            self.run,
            "training",
            record.time_s,
            record.payload,
        )

    def _actor(self, record: Record) -> Message | None:
        found = decode_or_none(record.payload, ActorMetrics)
        if found is None or not is_text(record.payload):
            return None
        ordinal = found.actor.partition(".")[0] + "."
        others = {n: m for n, m in self.actors.items() if not n.startswith(ordinal)}
        if len(others) < MOST_ACTORS:
            self.actors = {**others, found.actor: found}  # its earlier incarnations are gone
        return self._message("actors", "actor", record)

    def _message(self, part: str, kind: str, record: Record) -> Message:
        channel = f"{part}/{self.run}"
        return Message(channel, record.offset, self.run, kind, record.time_s, record.payload)


def is_text(payload: bytes) -> bool:
    """Decoding JSON does not look into what it skips."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True
