"""Many seats learn: self-play, leagues and teams, judged by matches against fixed players."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rookery.league.intervals import spearman

if TYPE_CHECKING:
    from tests.conftest import Cli


def trained(cli: Cli, *options: object, timeout: float = 200.0) -> str:
    done = cli("train", *options, "--json", timeout=timeout)
    run: str = done.json["run"]
    return run


def match(cli: Cli, environment: str, run: str, other: str, games: int) -> dict[str, Any]:
    done = cli("match", environment, run, other, "--games", games, "--json", timeout=300)
    found: dict[str, Any] = done.json
    print(other, {key: found[key] for key in ("wins", "draws", "losses", "distinct")})
    for way in ("a_first", "b_first"):
        print("  ", way, {k: found[way][k] for k in ("games", "wins", "draws", "losses")})
    return found


@pytest.mark.soak
def test_a_little_self_play_beats_random(cli: Cli) -> None:
    run = trained(cli, "pgx:tic_tac_toe", "--self-play", "--steps", 200_000)
    found = match(cli, "pgx:tic_tac_toe", run, "script:random", 400)
    for way in ("a_first", "b_first"):
        assert found[way]["points"] > 0.8, found


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_tic_tac_toe_is_learned_to_perfection(cli: Cli) -> None:
    run = trained(cli, "pgx:tic_tac_toe", "--self-play", "--steps", 12_000_000, timeout=1500)
    perfect = match(cli, "pgx:tic_tac_toe", run, "script:perfect", 1000)
    random = match(cli, "pgx:tic_tac_toe", run, "script:random", 4000)
    assert perfect["losses"] == 0 and random["losses"] == 0
    ladder = cli("ladder", run, "--json").json["players"]
    best = next(row for row in ladder if row["player"] == "script:perfect")
    above = [row for row in ladder if row["low"] > best["high"]]
    assert above == [], ladder


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_connect_four_is_learned_in_ten_minutes(cli: Cli) -> None:
    run = trained(cli, "pgx:connect_four", "--self-play", "--minutes", 10, timeout=900)
    random = match(cli, "pgx:connect_four", run, "script:random", 1000)
    minimax = match(cli, "pgx:connect_four", run, "script:minimax?depth=2", 1000)
    for way in ("a_first", "b_first"):
        assert random[way]["wins"] >= 0.97 * random[way]["games"]
        assert minimax[way]["points"] >= 0.6


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_two_learners_learn_connect_four_as_one_does(cli: Cli) -> None:
    """After as many steps: both beat a player at random, and neither beats the other clearly."""
    words = ("pgx:connect_four", "--self-play", "--steps", 3_000_000)
    runs = [
        trained(cli, *words, "--set", f"learner.count={count}", timeout=700) for count in (1, 2)
    ]
    for run in runs:
        found = match(cli, "pgx:connect_four", run, "script:random", 400)
        assert found["points"] >= 0.9, found
    between = match(cli, "pgx:connect_four", runs[1], runs[0], 400)
    assert 0.35 <= between["points"] <= 0.65, between


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_snapshots_of_connect_four_rank_in_the_order_they_were_made(cli: Cli) -> None:
    every = ("--set", "league.snapshot_every_steps=1_500_000")
    run = trained(cli, "pgx:connect_four", "--self-play", "--minutes", 5, *every, timeout=600)
    ladder = cli("ladder", run, "--json").json["players"]
    rated = {row["player"]: row["mu"] for row in ladder if row["player"].startswith("main@")}
    made = sorted(rated, key=lambda name: int(name.partition("@")[2]))
    print([(name, round(rated[name], 1)) for name in made])
    assert len(made) >= 8
    assert spearman(range(len(made)), [rated[name] for name in made]) >= 0.9


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_pettingzoo_s_connect_four_learns_by_the_same_config(cli: Cli) -> None:
    name = "pettingzoo:connect_four_v3"
    run = trained(cli, name, "--self-play", "--minutes", 10, timeout=900)
    random = match(cli, name, run, "script:random", 400)
    assert random["points"] >= 0.9


SPREAD = {"shared": ("agent_*=main",), "separate": ("agent_0=a", "agent_1=b", "agent_2=c")}
TAG = {
    "shared": ("adversary_*=main",),
    "separate": ("adversary_0=a", "adversary_1=b", "adversary_2=c"),
}


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sharing", ["shared", "separate"])
@pytest.mark.parametrize(
    ("game", "seats", "seat", "margin"),
    [("simple_spread_v3", SPREAD, "agent_0", 5.0), ("simple_tag_v3", TAG, "adversary_0", 8.0)],
)
def test_teams_learn_with_shared_and_with_separate_policies(
    cli: Cli, game: str, seats: dict[str, tuple[str, ...]], seat: str, margin: float, sharing: str
) -> None:
    chosen = [*seats[sharing], *(["agent_0=script:random"] if game == "simple_tag_v3" else [])]
    learning = {each.partition("=")[2] for each in chosen} - {"script:random"}
    policies = [x for name in sorted(learning) for x in ("--set", f"policies.{name}={{}}")]
    options = ("--seats", *chosen, *(policies if sharing == "separate" else ()))
    run = trained(cli, f"pettingzoo:{game}", *options, "--actors", 2, "--minutes", 2, timeout=400)
    ours = cli("eval", run, "--episodes", 200, "--json", timeout=200).json
    random = cli("eval", run, "--episodes", 200, "--player", "script:random", "--json").json
    print(game, sharing, ours["greedy"]["seats"][seat], random["sampled"]["seats"][seat])
    gained = ours["greedy"]["seats"][seat]["mean"]
    assert gained > random["sampled"]["seats"][seat]["mean"] + margin
