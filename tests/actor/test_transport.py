"""What an actor is admitted with: the version of those that learn, and everybody's weights."""

from __future__ import annotations

import numpy as np

from rookery.actor.transport import ActorTransport
from rookery.bus import Outgoing
from rookery.bus.memory import MemoryBus
from rookery.messages import MODEL_UPDATES, ActorId, Credits, WeightsVersion, encode_json
from rookery.messages.weights import Weights, WeightsHeader, encode_weights


def weights(policy: str, number: int) -> Outgoing:
    version = WeightsVersion(1, number)
    header = WeightsHeader(run="r", policy=policy, version=version, env_steps=0)
    payload = encode_weights(Weights(header, {"w": np.full(2, number, np.float32)}))
    return Outgoing(MODEL_UPDATES, payload, policy, {"kind": "weights"})


def test_a_policy_listed_first_that_does_not_learn_does_not_date_the_fragments() -> None:
    bus = MemoryBus()
    transport = ActorTransport(
        bus, "r", ["teacher", "main"], ["main"], ActorId(0, 1), ["player_0"], 0.0
    )
    credits = encode_json(Credits(generation=1, upto={"0.1": 9}))
    granted = Outgoing(MODEL_UPDATES, credits, "credits", {"kind": "credits"})
    bus.publish([weights("teacher", 0), weights("main", 0), granted])
    assert transport.admit() is not None
    bus.publish([weights("main", 3), granted])
    admitted = transport.admit()
    assert admitted is not None and admitted.version == WeightsVersion(1, 3)
    assert {p: float(found["w"][0]) for p, found in admitted.arrays.items()} == {
        "teacher": 0.0,
        "main": 3.0,
    }
