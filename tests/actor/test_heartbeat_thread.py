"""An actor says that it lives for as long as it does."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from rookery.actor.main import HeartbeatThread
from rookery.errors import BusError


def test_a_heartbeat_goes_on_after_the_bus_failed() -> None:
    beats, again = [0], threading.Event()

    def alive() -> None:
        beats[0] += 1
        if beats[0] < 3:
            raise BusError("the broker is away")
        again.set()

    transport: Any = SimpleNamespace(alive=alive)
    with HeartbeatThread(transport, 0.001):
        assert again.wait(10.0), "no further heartbeat"
