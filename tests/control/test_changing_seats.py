"""Seats may change while a run goes on: from the next episode, through the command path."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rookery.checkpoints.policies import newest_of

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
