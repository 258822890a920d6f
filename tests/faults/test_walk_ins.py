"""Walk-ins sent to a run while it trains and is killed: every row of theirs is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rookery.actor.walk_in import Lane, Row, Seen, WalkInSender
from rookery.bus import Bus
from rookery.checkpoints.checkpoint import newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.envs import SOLO_SEAT
from rookery.learner.manifest import LearnerManifest, pending_fragments
from rookery.messages import EXPERIENCES, MODEL_UPDATES, WeightsVersion
from rookery.messages.weights import decode_weights

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

ROWS, LANES = 8, 2


def lanes(number: int, rng: np.random.Generator) -> list[Lane]:
    """What a simulator of its own might send: rows of these weights, the last lane a person's."""

    def seen() -> Seen:
        return Seen({"": rng.standard_normal(4).astype(np.float32)})

    def row(player: str) -> Row:
        return Row(seen(), np.int32(rng.integers(2)), 1.0, number, -0.69, player=player)

    kinds = ["policy"] * (LANES - 1) + ["human"]
    return [Lane([row(kind) for _ in range(ROWS)], seen()) for kind in kinds]


def newest_version(bus: Bus) -> WeightsVersion | None:
    record = bus.newest(MODEL_UPDATES, "main")
    return None if record is None else decode_weights(record.payload).header.version


def stream(running: Started, bus: Bus, sender: WalkInSender, until: int) -> None:
    """Send whenever there are new weights, until so many more steps have been trained."""
    rng = np.random.default_rng(0)
    sent: list[WeightsVersion] = []

    def send() -> bool:
        version = newest_version(bus)
        if version is not None and version not in sent:
            sent.append(version)
            sender.send("main", lanes(version.number, rng), version)
            sender.send("main", lanes(0, rng), version._replace(number=0))  # from long ago
        return running.env_steps >= until and len(sent) > 3

    running.wait_until(send, f"{until} trained steps")


def accounts(cli: Cli, run: str) -> tuple[dict[str, Any], Any]:
    shown = cli("runs", "show", run, "--json").json
    checkpoint = newest_checkpoint(open_store(cli.home.files(run).checkpoints), LearnerManifest)
    assert checkpoint is not None
    return dict(shown), checkpoint


@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("impala", marks=pytest.mark.soak)])
def test_the_balance_is_exact_with_walk_ins_and_kills(cli: Cli, algorithm: str) -> None:
    running = cli.start(
        *("train", "CartPole-v1", "--algorithm", algorithm, "--envs-per-actor", 4),
        *("--set", "actors.rollout_steps=16", "--set", "learner.max_policy_lag_versions=2"),
        *("--set", "learner.fragments_per_batch=2", "--set", "learner.walk_in_places=2"),
        *("--set", "checkpoint.interval_s=0.3", "--steps", 100_000_000, "--json"),
    )
    running.wait_until(lambda: running.env_steps > 0, "the first update")
    run = running.run
    bus = cli.home.open_run_bus(run, cli.home.config(cli.home.state(run)))
    sender = WalkInSender(bus, run, "lab", [SOLO_SEAT])
    stream(running, bus, sender, until=4000)

    running.kill()
    assert running.why().component == "owner"
    running = cli.start("resume", run, "--json", run=run)
    before = running.env_steps
    stream(running, bus, sender, until=before + 4000)
    running.named(None, "nothing is stuck")
    running.interrupt()

    shown, checkpoint = accounts(cli, run)
    assert shown["balance"]["exact"], shown["balance"]
    assert shown["gaps"] == 0
    ledger = checkpoint.manifest.ledger
    outcomes = ledger.walk_ins[sender.sender]
    waiting = sum(
        fragment.header.steps
        for _, fragment in pending_fragments(checkpoint)
        if fragment.header.actor == sender.sender
    )
    assert ledger.seen[sender.sender] == sum(outcomes.values()) + waiting
    unread = int(bus.newest_headers(EXPERIENCES)[sender.sender]["steps_total"])
    assert 0 < ledger.seen[sender.sender] <= unread == sender.agent_steps
    bus.close()
    assert outcomes["trained"] > 0 and outcomes["others"] > 0, outcomes
    assert ("late" in outcomes) == (algorithm == "ppo"), outcomes
