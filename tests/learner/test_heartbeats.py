"""Actors that nobody watches over: silence is noticed, but not while the bus is away."""

from __future__ import annotations

from rookery.learner.heartbeats import MISSED, Heartbeats


class World:
    def __init__(self) -> None:
        self.now, self.deaf = 0.0, False
        self.heartbeats = Heartbeats(lambda: self.deaf, lambda: self.now)

    def after(self, seconds: float) -> list[str]:
        self.now += seconds
        return self.heartbeats.silent()


def test_silence_is_noticed_after_a_few_beats() -> None:
    world = World()
    world.heartbeats.expect("1000.1", 5.0)
    world.heartbeats.expect("0.1", 0.0)  # a controller watches over it
    assert world.after(MISSED * 5.0) == []
    assert world.after(1.1) == ["1000.1"]
    world.heartbeats.forget("1000.1")
    assert world.after(100.0) == []


def test_a_beat_in_time_keeps_an_actor() -> None:
    world = World()
    world.heartbeats.expect("1000.1", 5.0)
    for _ in range(10):
        assert world.after(MISSED * 5.0 - 1) == []
        world.heartbeats.heard("1000.1")


def test_silence_does_not_count_while_the_bus_is_away() -> None:
    world = World()
    world.heartbeats.expect("1000.1", 5.0)
    world.deaf = True
    for _ in range(50):
        assert world.after(2.0) == []
    world.deaf = False
    assert world.after(MISSED * 5.0 - 2) == []
    assert world.after(4.0) == ["1000.1"]
