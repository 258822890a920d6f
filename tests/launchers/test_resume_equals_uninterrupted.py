"""In `inline`, a run that was stopped or killed and resumed is bit for bit one that was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from rookery.checkpoints.checkpoint import Checkpoint, newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.config.reading import build, self_play
from rookery.control.context import open_context
from rookery.control.create import create_run
from rookery.control.home import Home
from rookery.launchers.inline import take_turns
from rookery.learner.manifest import LearnerManifest
from rookery.worker import WorkerId

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Cli

UPDATES, ROWS = 240, 64  # 4 environments x 16 steps an update
SMALL = (
    *("--launcher", "inline", "--envs-per-actor", 4, "--set", "actors.rollout_steps=16"),
    *("--set", "checkpoint.every_updates=12", "--seed", 7, "--json"),
)
PPO = ("--set", "algorithm.schedule=linear", "--set", "algorithm.minibatch_size=32")
IMPALA = ("--algorithm", "impala", "--set", "network.normalize_observations=true")
LEAGUE = (
    *("--set", "league.snapshot_every_steps=600", "--set", "league.rating_every=3"),
    *("--set", "league.games_per_draw=8", "--set", "league.rating_slots=4"),
)
TURNS = ("--seats", "player_1=main", "player_2=league:main")
CASES = {
    "CartPole-v1": ("CartPole-v1", *PPO, "--set", "network.normalize_observations=true"),
    "LunarLander-v3": ("LunarLander-v3", *PPO),
    "gymnax:CartPole-v1": ("gymnax:CartPole-v1", *PPO),
    "CartPole-v1 with IMPALA": ("CartPole-v1", *IMPALA),
    "pgx:tic_tac_toe, a league": ("pgx:tic_tac_toe", *PPO, "--self-play", *LEAGUE),
    "pettingzoo:tictactoe_v3, a league": ("pettingzoo:tictactoe_v3", *PPO, *TURNS, *LEAGUE),
}


def last_checkpoint(cli: Cli, run: str) -> Checkpoint:
    found = newest_checkpoint(open_store(cli.home.files(run).checkpoints), LearnerManifest)
    assert found is not None
    return found


def training_state(checkpoint: Checkpoint) -> dict[str, np.ndarray]:
    """Parameters, optimiser, statistics and every random state of the learner."""
    return {name: a for name, a in checkpoint.arrays.items() if not name.startswith("actor/")}


def snapshots(checkpoint: Checkpoint) -> list[tuple[str, int, int]]:
    """Without the generation, which counts the learner's lives."""
    league = checkpoint.manifest.league
    found = league.league.snapshots if league is not None else []
    return [(each.policy, each.number, each.env_steps) for each in found]


def counters(checkpoint: Checkpoint) -> dict[str, Any]:
    manifest = checkpoint.manifest
    return {
        "number": manifest.number,
        "trained": manifest.ledger.trained,
        "windows": manifest.windows,
        "gaps and duplicates": (manifest.ledger.gaps, manifest.ledger.duplicates),
        "snapshots": snapshots(checkpoint),
        "ratings": manifest.league and manifest.league.league.ratings,
        "payoff": manifest.league and manifest.league.league.payoff,
        "pending": manifest.pending,
    }


def assert_same(found: Checkpoint, expected: Checkpoint) -> None:
    assert counters(found) == counters(expected)
    ours, theirs = training_state(found), training_state(expected)
    assert ours.keys() == theirs.keys() and len(ours) > 10
    different = [
        name
        for name, array in ours.items()
        if array.dtype != theirs[name].dtype or array.tobytes() != theirs[name].tobytes()
    ]
    assert different == []


IN_CI = ("CartPole-v1",)  # the others are alike, and slow


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, id=name, marks=[] if name in IN_CI else [pytest.mark.soak])
        for name, options in CASES.items()
    ],
)
def test_a_run_stopped_and_killed_equals_an_uninterrupted_one(
    cli: Cli, options: tuple[object, ...]
) -> None:
    has_league = options[-len(LEAGUE) :] == LEAGUE
    steps = ROWS * UPDATES // (4 if has_league else 1)
    train = ("train", *options, *SMALL, "--steps", steps)
    whole = last_checkpoint(cli, cli(*train).json["run"])
    assert whole.manifest.ledger.trained >= steps
    if has_league:
        assert len(snapshots(whole)) > 3
        assert whole.manifest.league is not None and whole.manifest.league.rated_games > 20

    first = cli.start(*train)
    first.wait_until(lambda: first.env_steps > steps // 10, "training")
    assert first.interrupt().code == 130
    stopped = last_checkpoint(cli, first.run).manifest
    assert 0 < stopped.number < whole.manifest.number

    second = cli.start("resume", first.run, "--json", run=first.run)
    second.wait_until(
        lambda: last_checkpoint(cli, first.run).manifest.number > stopped.number, "a checkpoint"
    )
    second.kill()
    kept = last_checkpoint(cli, first.run).manifest
    assert kept.generation == 2 and kept.number < whole.manifest.number

    assert cli("resume", first.run, "--json").json["status"] == "finished"
    last = last_checkpoint(cli, first.run)
    assert last.manifest.ancestry == {1: 0, 2: stopped.number, 3: kept.number}
    assert_same(last, whole)


def play_turns(home: Home, run: str, life: int, turns: int, killed: bool) -> bool:
    """One life of a run, for about so many turns; whether the run came to its end."""
    played = 0
    ask = lambda: played >= turns and not killed  # noqa: E731
    work = take_turns(open_context(home, run), WorkerId("inline", 0, life), ask)
    for code in work:
        played += 1
        if code is not None:
            assert code == 0
            return not ask()
        if killed and played >= turns:
            break
    work.close()
    return False


STOPPED, KILLED = False, True
LIVES = {  # at these points a league that told its actors too much on resuming went another way
    "stops": ((118, STOPPED), (53, STOPPED), (16, KILLED)),
    "a kill first": ((177, KILLED), (61, STOPPED)),
}


@pytest.mark.soak
def test_a_league_goes_on_exactly_wherever_it_was_stopped_or_killed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    actors = {"envs_per_actor": 4, "rollout_steps": 16}
    ppo = {"schedule": "linear", "minibatch_size": 32}
    league = {
        **{"snapshot_every_steps": 600, "rating_every": 3},
        **{"games_per_draw": 8, "rating_slots": 4},
    }
    config = build(
        {"environment": {"id": "pgx:tic_tac_toe"}, "launcher": "inline", "seed": 7},
        {"actors": actors, "algorithm": ppo, "checkpoint": {"every_updates": 12}},
        {"league": league, "stop": {"steps": ROWS * UPDATES // 4}, **self_play()},
    )
    ends: dict[str, Checkpoint] = {}
    for name, lives in {"uninterrupted": (), **LIVES}.items():
        run = create_run(home, config)
        for life, (turns, killed) in enumerate((*lives, (10**9, STOPPED)), start=1):
            ended = play_turns(home, run, life, turns, killed)
            assert ended == (turns == 10**9), "the points are not within the run"
        found = newest_checkpoint(open_store(home.files(run).checkpoints), LearnerManifest)
        assert found is not None
        ends[name] = found
    for name in LIVES:
        assert_same(ends[name], ends["uninterrupted"])
