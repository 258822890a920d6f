"""What an actor tells of itself, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rookery.actor import main
from rookery.actor.main import EVERY_S, ActorMeter
from rookery.bus import EARLIEST
from rookery.bus.memory import MemoryBus
from rookery.messages import METRICS_ACTORS, ActorId, ActorMetrics, decode_json


def test_an_actor_is_heard_of_after_its_first_turn_and_then_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(main, "time", SimpleNamespace(monotonic=lambda: clock.now))
    bus, transport = MemoryBus(), SimpleNamespace(actor=ActorId(7, 1), sequence=0, agent_steps=0)
    context: Any = SimpleNamespace(run="a", bus=bus)
    meter = ActorMeter(context, cast(Any, SimpleNamespace(transport=transport)))
    told = bus.subscribe(METRICS_ACTORS, EARLIEST)
    for turn in range(11):
        clock.now += EVERY_S / 5
        transport.agent_steps += 10
        meter.note(turn > 0)
    reports = [decode_json(record.payload, ActorMetrics) for record in told.poll(0.0)]
    assert [report.doing for report in reports] == ["waiting", "playing", "playing"]
    assert [round(report.steps_per_s) for report in reports] == [50, 50, 50]
    assert [round(report.waiting_share, 3) for report in reports] == [1.0, 0.0, 0.0]
