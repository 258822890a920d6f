"""Seats may change while a run goes on: from the next episode, through the command path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery.checkpoints.policies import newest_manifest_of, newest_of
from rookery.checkpoints.store import open_store

if TYPE_CHECKING:
    from tests.conftest import Cli

GAME = "pettingzoo:tictactoe_v3"
SEATS = ("--seats", "player_1=main", "player_2=script:random")
SMALL = (
    *("--envs-per-actor", 16, "--set", "actors.rollout_steps=32", "--minutes", 3, "--json"),
    *("--set", "checkpoint.interval_s=0.5", "--set", "league.rating_every=0"),
)


def opponents(cli: Cli, run: str) -> set[str]:
    """Whom `main` has met, by the newest checkpoint."""
    if cli.home.state(run).checkpoint is None:
        return set()
    league = newest_of(cli.home.files(run)).manifest.league
    assert league is not None
    return {name for row in league.league.payoff.pairs.values() for name in row} - {"main"}


def test_another_player_takes_the_seat_of_a_running_run(cli: Cli) -> None:
    started = cli.start("train", GAME, *SEATS, *SMALL)
    started.wait_until(lambda: "script:random" in opponents(cli, started.run), "games with random")
    assert "script:first-legal" not in opponents(cli, started.run)

    cli("seats", started.run, "player_2=script:first-legal")

    started.wait_until(
        lambda: "script:first-legal" in opponents(cli, started.run), "games with the other"
    )
    shown = started.show()
    assert shown["seats"]["player_2"] == "script:first-legal"
    assert shown["balance"]["exact"]
    assert started.interrupt().code == 130

    again = cli.start("resume", started.run, "--json", run=started.run)  # the change holds
    known = newest_of(cli.home.files(started.run)).manifest.league
    assert known is not None
    before = known.league.payoff.record("main", "script:random").games

    def played() -> int:
        league = newest_of(cli.home.files(started.run)).manifest.league
        assert league is not None
        return league.league.payoff.record("main", "script:first-legal").games

    more = played()
    again.wait_until(lambda: played() > more + 200, "more games with the other")
    league = newest_of(cli.home.files(started.run)).manifest.league
    assert league is not None
    still = league.league.payoff.record("main", "script:random").games
    assert still - before < 200  # those of the first episodes, before the actors had heard of it
    assert again.interrupt().code == 130


@pytest.mark.soak
def test_a_change_that_cannot_be_is_refused_in_one_line(cli: Cli) -> None:
    small = ("--envs-per-actor", 4, "--set", "actors.rollout_steps=16", "--json")
    run = cli("train", GAME, *SEATS, *small, "--steps", 200).json["run"]
    assert "did you mean player_" in cli.refused("seats", run, "player_9=script:random")
    assert "cannot move to a seat" in cli.refused("seats", run, "player_2=main")


CHOOSE = "def choose(observation, mask):\n    return int(mask.argmax())\n"


@pytest.mark.soak
def test_many_changes_of_seats_and_many_snapshots_leave_nothing_behind(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "rules.py").write_text(CHOOSE)
    cli.environment["PYTHONPATH"] = str(tmp_path)
    snapshots = ("--set", "league.snapshot_every_steps=500", "--set", "league.keep=2")
    seats = ("--seats", "player_1=main", "player_2=script:rules:choose?pool=8&deadline=1")
    started = cli.start("train", GAME, *seats, *SMALL, *snapshots)
    run = started.run

    def kept() -> list[str]:
        return open_store(cli.home.files(run).snapshots).names()

    def last_is(name: str) -> bool:
        return name in opponents(cli, run)

    started.wait_until(lambda: last_is("script:rules:choose?deadline=1&pool=8"), "its games")
    actor = started.worker("actor")
    assert actor is not None
    threads = actor.num_threads()
    for deadline in range(2, 8):
        cli("seats", run, f"player_2=script:rules:choose?pool=8&deadline={deadline}")
        name = f"script:rules:choose?deadline={deadline}&pool=8"
        started.wait_until(lambda name=name: last_is(name), f"games with {name}")
    started.wait_until(lambda: actor.num_threads() < threads + 8, "the replaced to end")
    league = newest_manifest_of(cli.home.files(run)).league
    assert league is not None and len(league.league.pool("main")) == 2
    assert league.league.snapshots[-1].number > 20, "many were taken"
    started.wait_until(lambda: len(kept()) < 12, "dropped snapshots to go")
    assert "nothing is stuck" in cli("why", run).stdout
    assert started.interrupt().code == 130
    shown = started.show()
    assert shown["balance"]["exact"] and len(kept()) < 12
    assert cli("eval", run, "--episodes", 2, "--json").json["run"] == run
    again = cli.start("resume", run, "--json", run=run)
    steps = shown["env_steps"]
    again.wait_until(lambda: again.env_steps > steps + 1000, "more training")
    assert again.interrupt().code == 130
