"""A toy bus for runs: two files, one of them for metrics. One file, as CONTRIBUTING.md says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from rookery.bus import Bus, BusPlace, Outgoing
from rookery.bus.sqlite import SqliteBus
from rookery.config.bus import BusConfig


class ToyBusConfig(BusConfig):
    """Metrics in a file of their own."""

    kind: Literal["toy"] = "toy"
    max_experience_mb: int = 64


class ToyBus:
    """Hands every topic to the file that has it."""

    def __init__(self, metrics: Bus, rest: Bus) -> None:
        self._metrics, self._rest = metrics, rest
        self.trouble = None

    def publish(self, messages: Sequence[Outgoing], timeout_s: float = 60.0) -> list[int]:
        buses = {self._of(message.topic) for message in messages}
        assert len(buses) <= 1, "nobody publishes both at once"
        return [n for bus in buses for n in bus.publish(messages, timeout_s)]

    def _of(self, topic: str) -> Bus:
        return self._metrics if topic.startswith("metrics.") else self._rest

    def close(self) -> None:
        self._metrics.close()
        self._rest.close()

    def snapshot(self) -> Any:
        return self._rest.snapshot()

    def __getattr__(self, name: str) -> Any:
        """Everything else has a topic as its first argument."""
        return lambda topic, *rest, **options: getattr(self._of(topic), name)(
            topic, *rest, **options
        )


class ToyRunBus:
    Config = ToyBusConfig

    @staticmethod
    def open(place: BusPlace) -> Any:
        place.directory.mkdir(parents=True, exist_ok=True)
        files = (place.directory / "metrics.sqlite", place.directory / "rest.sqlite")
        return ToyBus(*map(SqliteBus, files))

    @staticmethod
    def read(place: BusPlace) -> Any:
        return ToyRunBus.open(place) if (place.directory / "rest.sqlite").exists() else None
