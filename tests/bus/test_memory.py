"""The memory bus keeps the contract; `open_bus` finds it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rookery.bus import Bus
from rookery.bus.memory import MemoryBus
from rookery.bus.open import open_bus
from rookery.errors import InputError, UnknownName
from rookery.testing.bus_suite import EmbeddedBusSuite


class TestMemoryBus(EmbeddedBusSuite):
    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        return MemoryBus(limits)


def test_open_bus_makes_a_memory_bus() -> None:
    bus = open_bus("memory:", {"t": 1})
    assert isinstance(bus, MemoryBus)
    bus.close()


@pytest.mark.parametrize("uri", ["memry:", "sqlite", "", "redis:x"])
def test_an_unknown_bus_is_named_with_what_exists(uri: str) -> None:
    with pytest.raises(UnknownName, match="use memory:, sqlite:PATH or kafka:"):
        open_bus(uri)


def test_a_sqlite_bus_needs_a_path() -> None:
    with pytest.raises(InputError, match="sqlite:PATH"):
        open_bus("sqlite:")
