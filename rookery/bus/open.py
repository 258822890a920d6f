"""From a URI to a bus; a bus's packages are imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.bus import Bus
from rookery.errors import ConfigError, UnknownName

SCHEMES = ("memory", "sqlite")


def open_bus(uri: str, limits: Mapping[str, int] | None = None) -> Bus:
    """The bus at `memory:` or `sqlite:PATH`; `limits` bounds topics by kept payload bytes."""
    scheme, colon, rest = uri.partition(":")
    if not colon or scheme not in SCHEMES:
        raise UnknownName("bus", uri, SCHEMES, "use memory: or sqlite:PATH")
    if scheme == "memory":
        from rookery.bus.memory import MemoryBus

        return MemoryBus(limits)
    if not rest:
        raise ConfigError("the bus 'sqlite:' lacks its path: write sqlite:PATH")
    from rookery.bus.sqlite import SqliteBus

    return SqliteBus(rest, limits)
