"""Runs that belong together, and runs that begin where others were, by every door."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rookery.checkpoints.checkpoint import newest_manifest
from rookery.checkpoints.store import open_store
from rookery.client import Client
from rookery.learner.manifest import LearnerManifest
from tests.conftest import Cli

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("CartPole-v1", "--envs-per-actor", 8, "--set", "actors.rollout_steps=16")
STEPS = 2_000


@pytest.fixture(scope="module")
def seeds(shared_cli: Cli) -> dict[str, Any]:
    """Two runs, carried side by side by one command."""
    trained = ("train", *SMALL, "--launcher", "inline", "--steps", STEPS, "--seed", 3)
    found: dict[str, Any] = shared_cli(*trained, "--seeds", 2, "--json").json
    return found


def test_one_command_trains_several_seeds_and_says_what_they_came_to(
    shared_cli: Cli, seeds: dict[str, Any]
) -> None:
    assert [row["status"] for row in seeds["runs"]] == ["finished", "finished"]
    assert [row["name"] for row in seeds["runs"]] == ["seed 3", "seed 4"]
    returns = {row["run"]: row["mean_return_100"] for row in seeds["runs"]}
    (found,) = seeds["aggregates"]
    assert found["runs"] == 2
    assert found["mean"] == pytest.approx(sum(returns.values()) / 2)
    assert returns[found["best"]] >= returns[found["worst"]]
    assert found["low"] <= found["iqm"] <= found["high"]
    configs = [shared_cli.home.config(shared_cli.home.state(run)) for run in returns]
    assert [config.seed for config in configs] == [3, 4]


def test_a_group_is_shown_and_listed_as_one(shared_cli: Cli, seeds: dict[str, Any]) -> None:
    group = seeds["group"]
    text = shared_cli("runs", "show", group).stdout
    assert "interquartile mean" in text and all(row["run"] in text for row in seeds["runs"])
    listed = shared_cli("runs", "list", f"group={group}", "--json").json["runs"]
    assert {row["run"] for row in listed} == {row["run"] for row in seeds["runs"]}


def test_a_group_is_drawn_with_its_band(
    shared_cli: Cli, seeds: dict[str, Any], tmp_path: Path
) -> None:
    out = tmp_path / "group.png"
    drawn = shared_cli("plot", seeds["group"], "--out", out, "--json").json
    assert drawn["points"][seeds["group"]] > 5
    assert out.read_bytes().startswith(b"\x89PNG")


def test_what_is_neither_run_nor_group_is_said_to_be_no_run(
    shared_cli: Cli, seeds: dict[str, Any]
) -> None:
    assert "nobody" in shared_cli.refused("runs", "show", "nobody")
    assert "nobody" in shared_cli.refused("plot", "nobody")


def test_a_run_is_forked_by_the_command_line(shared_cli: Cli, seeds: dict[str, Any]) -> None:
    parent = seeds["runs"][0]
    changed = ("--set", "algorithm.learning_rate=1e-4", "--steps", 2 * STEPS, "--group", "forks")
    fork = shared_cli("fork", parent["run"], *changed, "--json").json
    assert fork["status"] == "finished" and fork["env_steps"] >= 2 * STEPS
    shown = shared_cli("runs", "show", fork["run"], "--json").json
    assert shown["parent"] == f"{parent['run']}@{parent['updates']}"
    assert shown["group"] == "forks"
    assert shown["balance"]["exact"]
    config = shared_cli.home.config(shared_cli.home.state(fork["run"]))
    assert config.algorithm.learning_rate == 1e-4 and config.seed == 3
    assert f"parent     {shown['parent']}" in shared_cli("runs", "show", fork["run"]).stdout
    again = shared_cli("train", *SMALL, "--from", fork["run"], "--steps", 3 * STEPS, "--json").json
    assert again["env_steps"] >= 3 * STEPS


def test_the_seeds_of_one_command_begin_alike_and_keep_checkpoints_apart(
    shared_cli: Cli, tmp_path: Path
) -> None:
    """`last` means the same run for all of them."""
    inline = ("--launcher", "inline", "--steps")
    parent = shared_cli("train", *SMALL, *inline, 500, "--json").json
    there = ("--seeds", 2, "--set", f"checkpoint.uri=file:{tmp_path}")
    done = shared_cli("fork", "last", *inline[2:], 1000, *there, "--json").json
    assert [row["status"] for row in done["runs"]] == ["finished", "finished"]
    assert {row["parent"] for row in done["runs"]} == {f"{parent['run']}@{parent['updates']}"}
    home, found = shared_cli.home, [row["run"] for row in done["runs"]]
    stores = {home.config(home.state(run)).checkpoint.uri for run in found}
    assert stores == {f"file:{place}" for place in tmp_path.iterdir()} and len(stores) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "network.hidden=[8]", "--steps", 9_000), "layer main/params/"),
        ((), "counts them"),
    ],
)
def test_a_fork_that_does_not_fit_is_one_line(
    shared_cli: Cli, seeds: dict[str, Any], words: tuple[object, ...], said: str
) -> None:
    assert said in shared_cli.refused("fork", seeds["runs"][0]["run"], *words)


def test_a_server_forks_and_tells_of_groups(shared_cli: Cli, seeds: dict[str, Any]) -> None:
    server = shared_cli.serve()
    parent, group = seeds["runs"][0], seeds["group"]
    asked = {"parent": {"run": parent["run"]}, "stop": {"steps": 2 * STEPS}}
    body = {"config": asked, "group": group, "start": False}
    made = server.api("POST", "/runs", body)
    assert f"forked from {parent['run']}@{parent['updates']}" in made["effect"]
    shown = server.api("GET", f"/runs/{made['run']}")
    assert (shown["env_steps"], shown["group"]) == (parent["env_steps"], group)
    found = server.api("GET", f"/groups/{group}")
    assert len(found["runs"]) == 3
    (curve,) = server.api("GET", f"/groups/{group}/metrics?points=20")["curves"]
    assert len(curve["steps"]) == len(curve["iqm"]) == len(curve["low"]) <= 20
    assert max(curve["count"]) == 2
    with Client(server.url, server.token) as client:
        assert client.group(group).model_dump() == found
        again = client.submit(asked, start=False, dry_run=True)
        assert again.outcome == "would_accept"
    far = shared_cli("runs", "show", group, "--server", f"{server.url}#token={server.token}")
    assert "interquartile mean" in far.stdout


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_run_that_grew_is_forked_with_as_many_actors_as_at_its_start(cli: Cli) -> None:
    """`--actors auto` begins with one again: batches of fewer fragments than its parent's last."""
    running = cli.start("train", *SMALL, "--actors", "auto", "--steps", 10**8)
    running.wait_until(lambda: running.env_steps > 0, "the first steps")
    cli("scale", running.run, "--actors", 3)
    running.wait_until(lambda: fragments(cli, running.run) == 3, "batches of three fragments")
    running.interrupt()
    steps = running.show()["env_steps"] + 2_000
    fork = cli("fork", "last", "--actors", "auto", "--steps", steps, "--json").json
    assert fork["status"] == "finished"
    assert fragments(cli, fork["run"]) == 1


def fragments(cli: Cli, run: str) -> int:
    """Of a batch, as the run's newest checkpoint has it."""
    found = newest_manifest(open_store(cli.home.files(run).checkpoints), LearnerManifest)
    return 0 if found is None else found.book.fragments_per_batch
