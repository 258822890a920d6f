"""kill -9 of the server: the runs, their history and their processes are as if it had lived on."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import httpx2
import psutil
import pytest

from rookery.bus import EARLIEST
from rookery.messages import COMMANDS, EVENTS
from tests.conftest import Cli, Served, wait_until

SLOW = {"actors": {"envs_per_actor": 8, "rollout_steps": 32}, "stop": {"steps": 10**9}}
CONFIG = {"environment": {"id": "CartPole-v1"}, **SLOW}
MOMENTS = ("training", "command", "scaling")


def test_a_server_survives_kills(cli: Cli) -> None:
    kill_over_and_over(cli, ("scaling",), seed=1, count=1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_server_survives_twenty_kills(cli: Cli) -> None:
    kill_over_and_over(cli, MOMENTS * 7, seed=2, count=2)


def kill_over_and_over(cli: Cli, moments: Sequence[str], seed: int, count: int) -> None:
    rng = random.Random(seed)
    server = cli.serve("--cpus", 16)
    runs = [
        server.api("POST", "/runs", {"config": {**CONFIG, "seed": i}})["run"] for i in range(count)
    ]
    actors = dict.fromkeys(runs, 1)
    rates: dict[str, float] = {}
    wait_for_progress(server, runs)
    for moment in moments:
        before = history(cli)
        run = rng.choice(runs)
        if moment == "command":
            rates[run] = round(rng.uniform(1e-4, 1e-3), 6)
            values = {"values": {"algorithm.learning_rate": rates[run]}}
            send_and_kill(server, run, "set-hyperparameters", values, rng)
        elif moment == "scaling":
            actors[run] = rng.choice([n for n in (0, 1, 2, 3) if n != actors[run]]) or 1
            send_and_kill(server, run, "scale-actors", {"count": actors[run]}, rng)
        else:
            server.process.kill()
        server.process.wait(30)
        wait_until(lambda: not cli.processes(), "the end of its workers", 20)
        for each in runs:
            server.run = each
            found = server.why()
            assert found.component == "owner" and "has no owner" in found.summary, found

        server = cli.serve("--cpus", 16)
        assert [row["run"] for row in reversed(server.api("GET", "/runs")["runs"])] == runs
        after = history(cli)
        for topic, entries in before.items():
            assert after[topic][: len(entries)] == entries, f"{topic} changed its past"
        wait_for_progress(server, runs)
        settle(server, runs, actors, rates)
        check_processes(cli, server, runs, actors)
    answers = [e for e in history(cli)[EVENTS] if e["type"].startswith("command_")]
    assert len({e["command"] for e in answers}) == len(answers), "a command was answered twice"
    asked = {c["id"] for c in history(cli)[COMMANDS]}
    assert asked == {e["command"] for e in answers}, "every command has one answer"
    for run in runs:
        assert server.api("POST", f"/runs/{run}/stop", {})["outcome"] == "accepted"
    for run in runs:
        wait_until(
            lambda run=run: server.api("GET", f"/runs/{run}")["status"] == "stopped",
            f"{run} to stop",
        )
        balance = server.api("GET", f"/runs/{run}")["balance"]
        assert balance["exact"], balance
    server.interrupt()


def send_and_kill(
    server: Served, run: str, action: str, body: dict[str, Any], rng: random.Random
) -> None:
    """The command is appended before the kill; whether anybody heard the answer is left to luck."""
    before = {c["id"] for c in history(server.cli)[COMMANDS]}

    def is_there() -> bool:
        sent = [c for c in history(server.cli)[COMMANDS] if c["id"] not in before]
        return any(c["run"] == run and _holds(c, body) for c in sent)

    try:
        httpx2.post(
            f"{server.url}/api/v1/runs/{run}/{action}",
            json=body,
            headers=server.headers,
            timeout=rng.uniform(0.02, 0.3),
        )
    except httpx2.TimeoutException:
        wait_until(is_there, "the command to stand in the log")
    server.process.kill()


def _holds(command: dict[str, Any], body: dict[str, Any]) -> bool:
    return all(command.get(key) == value for key, value in body.items())


def history(cli: Cli) -> dict[str, list[dict[str, Any]]]:
    """All commands and events in the log, in order."""
    found = {}
    for topic in (COMMANDS, EVENTS):
        subscription = cli.home.control.subscribe(topic, EARLIEST)
        entries = []
        while records := subscription.poll(0.0, limit=4096):
            entries += [json.loads(record.payload) for record in records]
        found[topic] = entries
    return found


def wait_for_progress(server: Served, runs: list[str]) -> None:
    for run in runs:
        first = server.api("GET", f"/runs/{run}")["updates"]
        server.wait_until(
            lambda run=run, first=first: (
                server.api("GET", f"/runs/{run}")["updates"] > first + 2
                and server.api("GET", f"/runs/{run}")["status"] == "running"
            ),
            f"{run} to train",
        )


def settle(
    server: Served, runs: list[str], actors: dict[str, int], rates: dict[str, float]
) -> None:
    """What was asked for before the kill holds after it."""

    def as_asked(run: str) -> bool:
        detail = server.api("GET", f"/runs/{run}")
        rate = detail["hyperparameters"]["algorithm.learning_rate"]
        return detail["actors"] == actors[run] and rate == rates.get(run, rate)

    for run in runs:
        server.wait_until(lambda run=run: as_asked(run), f"{run} to be as asked for")


def check_processes(cli: Cli, server: Served, runs: list[str], actors: dict[str, int]) -> None:
    """Exactly the workers that the log knows, and the server: no orphan, no double."""
    known = {
        worker["pid"]
        for run in runs
        for worker in server.api("GET", f"/runs/{run}")["workers"]
        if worker["alive"]
    }
    living = {p.pid for p in cli.processes() if p.status() != psutil.STATUS_ZOMBIE}
    assert living - {server.pid} == known
    assert len(known) == len(runs) + sum(actors.values())
