"""From a URI to a bus; a bus's packages are imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rookery.bus import Bus
from rookery.errors import ConfigError, MissingExtra, UnknownName

if TYPE_CHECKING:
    from rookery.bus.kafka.settings import KafkaSettings

SCHEMES = ("memory", "sqlite", "kafka")


def open_bus(uri: str, limits: Mapping[str, int] | None = None) -> Bus:
    """The bus at `memory:`, `sqlite:PATH` or `kafka://HOST:PORT`.

    `limits` bounds topics by kept payload bytes; on Kafka the broker's retention does.
    """
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme not in SCHEMES:
        raise UnknownName("bus", uri, SCHEMES, "use memory:, sqlite:PATH or kafka://HOST:PORT")
    if scheme == "memory":
        from rookery.bus.memory import MemoryBus

        return MemoryBus(limits)
    if scheme == "kafka":
        from rookery.bus.kafka.settings import KafkaSettings

        return kafka_bus(KafkaSettings.of(uri))
    if not rest:
        raise ConfigError("the bus 'sqlite:' lacks its path: write sqlite:PATH")
    from rookery.bus.sqlite import SqliteBus

    return SqliteBus(rest, limits)


def kafka_bus(
    settings: KafkaSettings, run: str | None = None, warn: Callable[[str], None] | None = None
) -> Bus:
    """The topics of a cluster, or what one run has in them.

    With `warn`, topics that exist are checked, and it is told of settings that would lose data.
    """
    try:
        from rookery.bus.kafka.bus import KafkaBus
    except ModuleNotFoundError as error:
        if error.name != "confluent_kafka":
            raise
        raise MissingExtra("the bus kafka://", "kafka") from None
    return KafkaBus(settings, run, warn)
