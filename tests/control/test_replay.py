"""Training from the log alone: what another run has recorded, in its order, again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rookery.actor.loop import Admitted
from rookery.actor.rollouts.recorded import RecordedRollout, recorded_steps
from rookery.bus import EARLIEST, Outgoing
from rookery.bus.memory import MemoryBus
from rookery.errors import InputError
from rookery.messages import EXPERIENCES, WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader, encode_fragment
from rookery.messages.steps import Steps
from tests.conftest import training_history

if TYPE_CHECKING:
    from tests.conftest import Cli

NOW = Admitted(WeightsVersion(1, 0), {})


def fragment(sequence: int, policy: str = "main", part: int = 0, parts: int = 1) -> Outgoing:
    header = FragmentHeader(
        run="r",
        policy=policy,
        actor="0.1",
        sequence=sequence,
        first_step=2 * sequence,
        steps=2,
        version=WeightsVersion(1, 0),
        seats=("player",),
        players=("policy",),
        part=part,
        parts=parts,
    )
    flags, small = np.zeros((2, 1), bool), np.zeros((2, 1), np.uint8)
    numbers = np.full((2, 1), sequence, np.float32)
    steps = Steps(
        observation={"": np.zeros((3, 1, 4), np.float32)},
        action=np.zeros((2, 1), np.int64),
        reward=numbers,
        terminated=flags,
        truncated=flags,
        valid=~flags,
        log_prob=numbers,
        seat=small,
        player=small,
        behind=small,
    )
    headers = {"kind": "fragment", "steps": "2"}
    return Outgoing(EXPERIENCES, encode_fragment(Fragment(header, steps)), "0.1", headers)


def rewards(rollout: RecordedRollout, count: int, policy: str = "main") -> list[int]:
    return [int(rollout(NOW).steps[policy].reward[0, 0]) for _ in range(count)]


def test_a_recording_is_handed_over_in_order_and_begins_again() -> None:
    bus = MemoryBus()
    bus.publish([Outgoing(EXPERIENCES, b"{}", "0.1", {"kind": "joined"})])
    bus.publish([fragment(number) for number in range(3)])
    bus.publish([Outgoing(EXPERIENCES, b"damaged", "0.1", {"kind": "fragment"})])
    assert rewards(RecordedRollout(bus, ["main"], EARLIEST), 7) == [0, 1, 2, 0, 1, 2, 0]
    assert recorded_steps(bus, EARLIEST) == 6 and recorded_steps(bus, (3,)) == 2
    assert rewards(RecordedRollout(bus, ["main"], (3,)), 3) == [2, 2, 2]


def test_a_restored_recording_goes_on_where_it_was() -> None:
    bus = MemoryBus()
    bus.publish([fragment(number) for number in range(5)])
    rollout = RecordedRollout(bus, ["main"], EARLIEST)
    rewards(rollout, 2)
    state = rollout.save()
    expected = rewards(rollout, 4)
    other = RecordedRollout(bus, ["main"], EARLIEST)
    other.restore(state)
    assert rewards(other, 4) == expected == [2, 3, 4, 0]


def test_all_policies_of_a_turn_come_together() -> None:
    bus = MemoryBus()
    for turn in range(2):
        bus.publish([fragment(2 * turn + i, policy, i, 2) for i, policy in enumerate("ab")])
    rollout = RecordedRollout(bus, ["a", "b"], EARLIEST)
    assert [rewards(rollout, 1, policy)[0] for policy in "ab"] == [0, 3]


def test_an_empty_recording_is_refused_not_waited_for() -> None:
    with pytest.raises(InputError, match="holds no whole turn"):
        RecordedRollout(MemoryBus(), ["main"], EARLIEST)(NOW)


@pytest.mark.soak
def test_a_run_is_trained_again_from_the_log_alone(kafka_cli: Cli) -> None:
    """It must be at least as good as the recorded run was halfway."""
    recorded = kafka_cli("train", "CartPole-v1", "--until-return", 475, "--seed", 1, "--json").json
    curve = list(training_history(kafka_cli.home, recorded["run"]))
    half = next(m for m in curve if m.env_steps >= recorded["env_steps"] / 2)
    done = kafka_cli("replay", recorded["run"], "--into", "again", "--json").json
    assert done["status"] == "finished" and done["run"] == "again"
    assert done["env_steps"] >= recorded["env_steps"]
    found = kafka_cli("eval", "again", "--episodes", 100, "--json").json
    assert half.mean_return_100 is not None and half.mean_return_100 > 50
    assert found["sampled"]["mean"] >= half.mean_return_100


@pytest.mark.soak
def test_a_run_on_kafka_is_replayed_to_the_end_of_its_log(kafka_cli: Cli) -> None:
    small = ("--set", "actors.rollout_steps=16", "--envs-per-actor", 8, "--launcher", "inline")
    recorded = kafka_cli("train", "CartPole-v1", *small, "--steps", 2000, "--json").json
    assert "offset" in kafka_cli.refused("replay", "last", "--into", "b", "--from-offset", "x")
    done = kafka_cli("replay", recorded["run"], "--into", "again", "--json").json
    assert (done["status"], done["run"]) == ("finished", "again")
    assert done["env_steps"] >= recorded["env_steps"]
    assert "exists already" in kafka_cli.refused("replay", "again", "--into", "again")


def test_an_interrupted_run_is_told_as_saved_and_its_replay_says_whose_return_is_whose(
    cli: Cli,
) -> None:
    small = ("--set", "actors.rollout_steps=16", "--envs-per-actor", 8, "--steps", 10**8)
    running = cli.start("train", "CartPole-v1", *small, "--set", "checkpoint.interval_s=1000")
    running.wait_until(lambda: running.env_steps > 1000, "1000 trained steps")
    running.kill()
    (row,) = cli("runs", "list", "--json").json["runs"]
    shown = cli("runs", "show", running.run, "--json").json
    assert row["status"] == "interrupted" and shown["balance"]["exact"]
    for found in (row, shown):  # nothing was saved: all of it is played and trained again
        assert (found["env_steps"], found["updates"], found["mean_return_100"]) == (0, 0, None)

    done = cli("replay", running.run, "--into", "again")
    said = f"again trains with impala (not ppo, as {running.run} did), which corrects"
    assert said in done.stderr
    assert "recorded return" in done.stdout and "the new policy: a return of" in done.stdout
    assert f"of {running.run}, as recorded" in cli("runs", "show", "again").stdout


def test_the_embedded_bus_says_that_it_keeps_no_recording(cli: Cli) -> None:
    run = cli("train", "CartPole-v1", "--launcher", "inline", "--steps", 3000, "--json").json["run"]
    bus = cli.home.open_run_bus(run, cli.home.config(cli.home.state(run)))
    bus.retain(EXPERIENCES, bus.end(EXPERIENCES))
    bus.close()
    assert "record on Kafka" in cli.refused("replay", run, "--into", "again")
