"""Runs whose owner is no node of the cluster: it is a client, and keeps all their files.

The cluster is one host, and the owner another one without a raylet (`tools.ray.hosts`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import Cli, wait_until
from tools.ray.hosts import Hosts, usable

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
]

STEPS, MORE_STEPS, FOREVER = 30_000, 60_000, 100_000_000
MINUTES_S = 240.0  # of a loaded machine
ENDED_S = 20.0  # a cluster waits some seconds for a client that may come back


class ClientCli(Cli):
    """`rookery` on the host called owner."""

    def __init__(self, home: Path, hosts: Hosts) -> None:
        super().__init__(home)
        self.hosts = hosts
        ours = {k: v for k, v in hosts.environment.items() if k.startswith("RAY_")}
        self.environment |= ours

    def _argv(self, arguments: tuple[object, ...]) -> list[str]:
        return self.hosts.command("owner", super()._argv(arguments))

    def in_cluster(self, name: str) -> list[psutil.Process]:
        """Processes of such actors."""
        return [p for p in self.hosts.processes("head") if "".join(_words(p)).startswith(name)]


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts({"head": 2, "owner": None}) as made:
        yield made


@pytest.fixture
def client(home: Path, hosts: Hosts) -> Iterator[ClientCli]:
    made = ClientCli(home, hosts)
    yield made
    made.close()


def test_a_client_trains_keeps_the_checkpoints_and_goes_on(client: ClientCli) -> None:
    address = ("--ray-address", client.hosts.client_address)
    options = ("--launcher", "ray", *address, "--steps", STEPS, "--json")
    run = client("train", "CartPole-v1", *options, timeout=MINUTES_S).json["run"]
    first = client("runs", "show", run, "--json").json
    assert first["balance"]["exact"] and first["balance"]["trained"] >= STEPS
    assert {worker["host"] for worker in first["workers"]} == {client.hosts.ip("head")}
    directory = client.home.run_dir(run) / "checkpoints"
    assert first["checkpoints"]
    assert all((directory / name).exists() for name in first["checkpoints"])

    client("resume", "last", *address, "--steps", MORE_STEPS, timeout=MINUTES_S)
    second = client("runs", "show", "last", "--json").json
    assert second["run"] == run and second["env_steps"] >= MORE_STEPS
    assert second["balance"]["exact"] and second["gaps"] == second["duplicates"] == 0
    wait_until(lambda: not client.in_cluster("ray::RayWorker"), "the end of its workers", ENDED_S)
    wait_until(lambda: not client.in_cluster("ray::Switchboard"), "the end of its host", ENDED_S)


def test_a_switchboard_that_is_killed_is_placed_again_and_no_step_is_lost(
    client: ClientCli,
) -> None:
    client.environment["RAY_ADDRESS"] = client.hosts.client_address
    options = ("--launcher", "ray", "--steps", FOREVER, "--json")
    running = client.start("train", "CartPole-v1", *options, timeout=MINUTES_S)
    running.wait_until(lambda: running.env_steps > STEPS, "some training", MINUTES_S)
    (board,) = client.in_cluster("ray::Switchboard")
    board.kill()
    before = running.env_steps
    running.wait_until(lambda: running.env_steps > before + STEPS, "more training", MINUTES_S)
    assert [other.pid != board.pid for other in client.in_cluster("ray::Switchboard")] == [True]
    assert running.interrupt(MINUTES_S).code == 130
    found = running.show()
    assert found["balance"]["exact"] and found["duplicates"] == 0
    assert {worker["incarnation"] for worker in found["workers"]} == {1}  # they waited for it


def test_workers_of_an_owner_that_was_killed_end_soon(client: ClientCli) -> None:
    client.environment["RAY_ADDRESS"] = client.hosts.client_address
    options = ("--launcher", "ray", "--steps", FOREVER, "--json")
    running = client.start("train", "CartPole-v1", *options, timeout=MINUTES_S)
    running.wait_until(lambda: running.env_steps > 0, "training to begin", MINUTES_S)
    assert client.in_cluster("ray::RayWorker")
    running.kill()
    wait_until(lambda: not client.in_cluster("ray::RayWorker"), "the end of its workers", ENDED_S)
