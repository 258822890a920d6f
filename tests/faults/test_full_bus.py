"""A bus that is full, observations that are large: a run goes on, and says what it waits for."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rookery.actor.loop import Admitted, Played
from rookery.actor.main import ActorMeter
from rookery.actor.transport import FULL_BUS, ActorTransport
from rookery.bus import Outgoing
from rookery.bus.memory import MemoryBus
from rookery.messages import (
    EXPERIENCES,
    METRICS_ACTORS,
    ActorId,
    ActorMetrics,
    WeightsVersion,
    decode_json,
)
from rookery.messages.steps import Steps

if TYPE_CHECKING:
    from tests.conftest import Cli

LIMIT = 1 << 20


def steps(lanes: int) -> Steps:
    flags, numbers = np.ones((2, lanes), bool), np.zeros((2, lanes), np.float32)
    indices = np.zeros((2, lanes), np.uint8)
    observation = {"": np.zeros((3, lanes), np.float32)}
    return Steps(
        observation, numbers, numbers, flags, flags, flags, numbers, indices, indices, indices
    )


def test_an_actor_says_that_the_bus_is_full_and_goes_on_when_there_is_room() -> None:
    bus, said = MemoryBus({EXPERIENCES: LIMIT}), threading.Event()

    def busy(doing: str) -> None:
        if doing == FULL_BUS:
            meter.report(doing)
            said.set()

    transport = ActorTransport(bus, "r", ["main"], ["main"], ActorId(0, 1), ["s"], 0.01, busy)
    context: Any = SimpleNamespace(bus=bus, run="r")
    actor: Any = SimpleNamespace(transport=transport)
    meter = ActorMeter(context, actor)
    bus.publish([Outgoing(EXPERIENCES, bytes(LIMIT))])
    played = Played({"main": steps(lanes=1000)}, {"main": ()})
    admitted = Admitted(WeightsVersion(1, 0), {})
    sender = threading.Thread(target=transport.send, args=(played, admitted), daemon=True)
    sender.start()

    assert said.wait(30.0)
    record = bus.newest(METRICS_ACTORS, "0.1")
    assert record is not None
    assert decode_json(record.payload, ActorMetrics).doing == FULL_BUS

    bus.retain(EXPERIENCES, (1,))
    sender.join(30.0)
    assert not sender.is_alive()
    assert bus.end(EXPERIENCES) == (2,)


@pytest.mark.soak
def test_fragments_of_more_than_half_the_limit_are_trained(cli: Cli) -> None:
    running = cli.start(
        *("train", "CartPole-v1", "--envs-per-actor", 512, "--steps", 1_000_000),
        *("--set", "bus.max_experience_mb=1", "--json"),
    )
    running.wait_until(lambda: running.env_steps > 100_000, "more than two updates", 60.0)
    assert "nothing is stuck" in cli("why", running.run).stdout
    assert running.interrupt().code == 130
    balance = cli("runs", "show", running.run, "--json").json["balance"]
    dropped = sum(balance["dropped"].values())
    assert balance["produced"] == balance["trained"] + dropped + balance["in_flight"], balance


@pytest.mark.soak
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_128_environments_of_large_frames_are_trained_in_two_gigabytes(
    cli: Cli, algorithm: str
) -> None:
    frames = ("rookery.testing.envs:FramesEnv", "--envs-per-actor", 128, "--algorithm", algorithm)
    save_often = ("--set", "checkpoint.interval_s=5")
    running = cli.start("train", *frames, *save_often, "--steps", 10**9, "--json")
    largest: dict[str, int] = {}

    def trained() -> bool:
        learner = running.worker("learner")
        if learner is not None:
            peak = Path(f"/proc/{learner.pid}/status").read_text().partition("VmHWM:")[2].split()
            largest["learner"] = int(peak[0]) << 10
        return running.env_steps > 4 * 128 * 128

    running.wait_until(trained, "some updates", 800)
    running.named(None, "nothing is stuck")
    assert running.interrupt().code == 130
    assert largest["learner"] < 2 << 30, largest
    print(algorithm, largest["learner"] >> 20, "MiB at most")
    assert running.show()["balance"]["exact"]
