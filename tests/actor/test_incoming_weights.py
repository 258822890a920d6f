"""Which weights an actor plays with, whatever else lies on the bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from rookery.actor import incoming_weights
from rookery.actor.loop import Admitted
from rookery.actor.transport import ActorTransport
from rookery.bus import Bus, Outgoing
from rookery.bus.memory import MemoryBus
from rookery.bus.sqlite import POLL_BYTES, SqliteBus
from rookery.messages import (
    CREDITS_KEY,
    MODEL_UPDATES,
    ActorId,
    Credits,
    WeightsVersion,
    encode_json,
)
from rookery.messages.weights import Weights, WeightsHeader, decode_weights, encode_weights

POLICIES = ("red", "blue")
ME = ActorId(0, 1)


@pytest.fixture(params=["memory", "sqlite"])
def bus(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bus]:
    made: Bus = MemoryBus() if request.param == "memory" else SqliteBus(tmp_path / "bus.sqlite")
    yield made
    made.close()


def actor_on(bus: Bus) -> ActorTransport:
    return ActorTransport(bus, "r", POLICIES, POLICIES, ME, ["player_0"], 0.0)


def weights(policy: str, number: int, floats: int = 2, run: str = "r") -> bytes:
    header = WeightsHeader(
        run=run, policy=policy, version=WeightsVersion(1, number), env_steps=number
    )
    return encode_weights(Weights(header, {"w": np.full(floats, number, np.float32)}))


def message(policy: str, payload: bytes) -> Outgoing:
    return Outgoing(MODEL_UPDATES, payload, policy, {"kind": "weights", "run": "r"})


def credits(upto: int) -> Outgoing:
    payload = encode_json(Credits(generation=1, upto={str(ME): upto}))
    return Outgoing(MODEL_UPDATES, payload, CREDITS_KEY, {"kind": "credits", "run": "r"})


def publish(bus: Bus, number: int, floats: int = 2, upto: int = 100) -> None:
    """What a learner does after each update."""
    sent = [message(policy, weights(policy, number, floats)) for policy in POLICIES]
    bus.publish([*sent, credits(upto)])


def admitted(actor: ActorTransport) -> Admitted:
    """The first leave to play."""
    for _ in range(10):
        if (found := actor.admit()) is not None:
            return found
    raise AssertionError("it was never admitted")


def numbers(found: Admitted) -> list[int]:
    return [int(found.arrays[policy]["w"][0]) for policy in POLICIES]


def test_large_weights_of_several_policies_are_taken_up_together(bus: Bus) -> None:
    floats = POLL_BYTES // 4 + 1  # of each, so that one poll of a file ends after the first
    actor = actor_on(bus)
    publish(bus, 1, floats)
    assert numbers(admitted(actor)) == [1, 1]
    publish(bus, 2, floats)
    for _ in range(4):
        found = admitted(actor)
        assert numbers(found) == [found.version.number] * 2
    assert found.version.number == 2


GARBAGE: dict[str, Callable[[], Outgoing]] = {
    "none of ours": lambda: message("red", b"\xff\x00"),
    "of nobody": lambda: message("green", b"\xff\x00"),
    "cut off": lambda: message("blue", weights("blue", 9)[:-3]),
    "of another policy": lambda: message("red", weights("blue", 9)),
    "of another run": lambda: message("red", weights("red", 9, run="s")),
    "of another network": lambda: message("red", weights("red", 9, floats=3)),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_among_the_weights_is_passed_over(bus: Bus, kind: str) -> None:
    actor = actor_on(bus)
    publish(bus, 1)
    assert numbers(admitted(actor)) == [1, 1]
    publish(bus, 2)
    bus.publish([GARBAGE[kind](), credits(100)])
    assert numbers(admitted(actor)) == [2, 2]
    publish(bus, 3)
    assert numbers(admitted(actor)) == [3, 3]
    assert numbers(admitted(actor_on(bus))) == [3, 3], "one that comes later"


def test_an_actor_without_the_weights_of_its_credit_waits_for_the_next(bus: Bus) -> None:
    """It neither mixes versions nor plays with older weights than its credit stands for."""
    actor = actor_on(bus)
    publish(bus, 1)
    assert numbers(admitted(actor)) == [1, 1]
    bus.publish(
        [message("red", weights("red", 2)), message("blue", weights("blue", 2)[:-3]), credits(101)]
    )
    assert actor.admit() is None
    publish(bus, 3)
    assert numbers(admitted(actor)) == [3, 3]


def test_who_waits_for_a_credit_decodes_little(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    actor, decoded = actor_on(bus), list[bytes]()

    def decode(payload: bytes) -> Weights:
        decoded.append(payload)
        return decode_weights(payload)

    monkeypatch.setattr(incoming_weights, "decode_weights", decode)
    for number in range(8):
        publish(bus, number, upto=0)
        assert actor.admit() is None
    assert len(decoded) < 8  # of two policies each: none, or the newest once in a while
    publish(bus, 8)
    assert numbers(admitted(actor)) == [8, 8]
