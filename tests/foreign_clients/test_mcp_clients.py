"""MCP as clients that others wrote see it: the inspector's command line and fastmcp's client.

Both tell one story at both doors, on a true server: look, create, steer, go wrong, stop, delete.
"""

from __future__ import annotations

from typing import Any, get_args

import pytest

from rookery.control.run_state import Status
from tests.conftest import Cli, Served
from tests.foreign_clients.assistants import FastMcp, Inspector, Said

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

START_S = 900.0  # until a busy machine trains
CONFIG = {"environment": {"id": "CartPole-v1"}, "stop": {"steps": 1_000_000_000}}
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "a status": ("list_runs", {"status": "runing"}, "; did you mean running?"),
    "a run": ("get_run", {"run": "nobodys"}, "unknown run 'nobodys'; run list_runs."),
    "an argument": ("resume_run", {"run": "last", "step": 5}, "'step'; did you mean steps?"),
    "a metric": ("get_metrics", {"run": "last", "names": ["entrpy"]}, "did you mean entropy"),
    "a player": ("evaluate", {"run": "last", "player": "polcy"}, "did you mean policy?"),
    "an environment": (
        "create_run",
        {"config": {"environment": {"id": "CartPol-v1"}}},
        "did you mean CartPole-v1",
    ),
    "no environment": ("create_run", {"config": {}}, "list_environments lists them"),
    "a hyperparameter": (
        "set_hyperparameters",
        {"run": "last", "values": {"algorithm.lerning_rate": 0.1}},
        "did you mean algorithm.learning_rate",
    ),
}


def call(tool: str, **arguments: Any) -> list[Any]:
    return ["call", tool, arguments]


@pytest.mark.parametrize("door", ["HTTP", "stdio"])
@pytest.mark.parametrize("kind", [Inspector, FastMcp])
def test_a_client_of_others_tells_the_whole_story(
    cli: Cli, kind: type[Inspector | FastMcp], door: str
) -> None:
    server = cli.serve()
    client = kind(cli, server if door == "HTTP" else None)

    listed, made = client.steps(
        ["tools"], call("create_run", config=CONFIG, reason="by a client of others")
    )
    check_tools(listed)
    run = made.data["run"]
    # over standard input whoever is not carried waits for the server, which may be there already
    outcomes = {"accepted"} if door == "HTTP" else {"accepted", "waiting"}
    assert made.data["outcome"] in outcomes
    server.run = run
    server.wait_until(lambda: server.env_steps > 1000, "1,000 trained steps", START_S)

    waited, running, scaled, metrics, seen = client.steps(
        call("wait_for_run", run="last", env_steps=1000, wait_s=20),
        call("list_runs", status="running"),
        call("scale_actors", run="last", count=2),
        call("get_metrics", run="last", names=["mean_return_100"]),
        ["read", "rookery://runs/last/config"],
    )

    assert waited.data["reached"] and waited.data["env_steps"] >= 1000
    assert [row["run"] for row in running.data["runs"]] == [run]
    assert scaled.data["effect"] == "actors 1 -> 2: 1 process starts"
    assert metrics.data["series"][0]["name"] == "mean_return_100"
    assert seen.data["config"]["environment"]["id"] == "CartPole-v1"

    check_errors(client)
    check_end(client, server, outcomes)


def check_tools(listed: Said) -> None:
    tools = {tool["name"]: tool for tool in listed.data["tools"]}
    for name in ("list_runs", "wait_for_run"):
        assert set(tools[name]["inputSchema"]["properties"]["status"]["enum"]) == {
            "",
            *get_args(Status),
        }
    assert '{"environment": {"id": "CartPole-v1"}' in tools["create_run"]["description"]
    assert all(tool["outputSchema"]["type"] == "object" for tool in tools.values())


def check_errors(client: Inspector | FastMcp) -> None:
    found = client.steps(
        *(["call", tool, arguments] for tool, arguments, _ in WRONG.values()),
        ["read", "rookery://runs/nobodys/why"],
    )
    *tools, resource = found
    for (what, (_, _, words)), said in zip(WRONG.items(), tools, strict=True):
        assert words in said.error, (what, said)
        assert "\n" not in said.error and "rookery " not in said.error, (what, said)
    assert resource.error == "unknown run 'nobodys'; run list_runs."


def check_end(client: Inspector | FastMcp, server: Served, outcomes: set[str]) -> None:
    run = server.run
    (stopped,) = client.steps(call("stop_run", run=run, reason="enough"))
    assert stopped.data["outcome"] == "accepted", stopped
    server.wait_until(lambda: server.show()["status"] == "stopped", "its end", START_S)
    (deleted,) = client.steps(call("delete_run", run=run, confirm=run))
    assert deleted.data["outcome"] in outcomes, deleted
    server.wait_until(lambda: not server.api("GET", "/runs")["runs"], "it to be gone", START_S)
    (nobody,) = client.steps(call("list_runs"))
    assert nobody.data["runs"] == []
