"""Runs on a Ray cluster of several hosts: whoever is killed, frozen or cut off, the run goes on,
every step is accounted for, and `why` names what is missing.

Each host is a network namespace with a raylet of its own (`tools.ray.hosts`). The owner's is a node
without CPUs, so that everything crosses the network.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.conftest import Cli, wait_until
from tests.faults.test_crew import lives
from tools.ray.hosts import Hosts, usable

if TYPE_CHECKING:
    from tests.conftest import Started

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
]

EVERYBODY = (("learner", 0), ("actor", 0), ("actor", 1))
GOES_ON_S = 90.0  # a busy machine starts Ray's processes slowly
FOREVER = 100_000_000


class HostsCli(Cli):
    """`rookery` on the host called owner."""

    def __init__(self, home: Path, hosts: Hosts) -> None:
        super().__init__(home)
        self.hosts = hosts
        ours = {k: v for k, v in hosts.environment.items() if k.startswith("RAY_")}
        self.environment |= {**ours, "RAY_ADDRESS": hosts.address}

    def _argv(self, arguments: Any) -> list[str]:
        return self.hosts.command("owner", super()._argv(arguments))

    def train(self, *more: object) -> Started:
        return self.start(
            *("train", "CartPole-v1", "--launcher", "ray", "--actors", 2, "--steps", FOREVER),
            *("--envs-per-actor", 16, "--set", "actors.rollout_steps=32"),
            *("--set", "checkpoint.interval_s=1", "--json", *more),
        )


@pytest.fixture
def cli_on(home: Path) -> Iterator[Callable[[Hosts], HostsCli]]:
    made: list[HostsCli] = []

    def make(hosts: Hosts) -> HostsCli:
        made.append(HostsCli(home, hosts))
        return made[-1]

    yield make
    for cli in made:
        cli.close()


def trains_on(running: Started, steps: int = 5_000) -> None:
    before = running.env_steps
    running.wait_until(lambda: running.env_steps > before + steps, "training on", GOES_ON_S)


def host_of(running: Started, kind: str, index: int = 0) -> str:
    """The address of the node that a worker lives on."""

    def found() -> str:
        state = running.cli.home.state(running.run).workers.get(f"{kind}-{index}")
        return state.host if state is not None and state.running else ""

    return str(running.wait_until(found, f"{kind} {index} on a node", GOES_ON_S))


def on(hosts: Hosts, address: str) -> str:
    return next(name for name in hosts.names if hosts.ip(name) == address)


def bus_host(hosts: Hosts) -> psutil.Process:
    """The process of the run's host."""

    def found() -> psutil.Process | None:
        for process in hosts.processes("owner"):
            if any("RunHost" in word for word in process.cmdline()[:1]):
                return process
        return None

    host: psutil.Process = wait_until(found, "the host of the bus", GOES_ON_S)
    return host


def driver(hosts: Hosts) -> psutil.Process:
    return next(p for p in hosts.processes("owner") if "ray-driver" in p.cmdline())


def balanced(running: Started) -> dict[str, Any]:
    """After the end of a run: every step is accounted for, and none was trained twice."""
    shown = running.show()
    print(shown["balance"])
    assert shown["balance"]["exact"], shown["balance"]
    assert shown["duplicates"] == 0
    assert not shown["balance"]["dropped"].get("lost"), "the bus's file is on the owner's disk"
    return shown


def on_node(running: Started, address: str) -> dict[str, int]:
    """Who lives there, and the number of that life."""
    workers = running.cli.home.state(running.run).workers.items()
    return {name: w.incarnation for name, w in workers if w.running and w.host == address}


def replaced(running: Started, victims: dict[str, int]) -> None:
    """Wait until all of them are at work in a later life."""

    def is_done() -> bool:
        workers = running.cli.home.state(running.run).workers
        later = [workers[name].incarnation > life for name, life in victims.items()]
        return all(later) and all(workers[name].running for name in victims)

    running.wait_until(is_done, f"later lives of {victims}", 2 * GOES_ON_S)


def test_a_lost_node_and_a_lost_host_of_the_bus(cli_on: Callable[[Hosts], HostsCli]) -> None:
    """The share of the storm below that every change is tried with."""
    with Hosts({"owner": 0, "a": 3, "b": 3}) as hosts:
        running = cli_on(hosts).train()
        running.wait_until(lambda: running.env_steps > 5_000, "training", GOES_ON_S)
        places = {host_of(running, *who) for who in EVERYBODY}
        assert hosts.ip("owner") not in places

        bus_host(hosts).kill()
        trains_on(running)

        lost = on(hosts, host_of(running, "actor", 1))
        hosts.kill(lost)
        trains_on(running)
        running.wait_until(
            lambda: on(hosts, host_of(running, "actor", 1)) != lost,
            "the lost actor on another node",  # the others may train on before it is missed
            GOES_ON_S,
        )
        state = running.cli.home.state(running.run)
        errors = [w.last_error or "" for w in state.workers.values()]
        assert any(f"its node {hosts.ip(lost)}" in error for error in errors), errors
        gone = f"its node {hosts.ip(lost)}"
        running.wait_until(lambda: gone in running.why().summary, "why to tell of it", GOES_ON_S)
        running.interrupt()
        balanced(running)


@pytest.mark.soak
def test_two_learners_on_two_nodes_go_on_when_one_of_them_is_cut_off(
    cli_on: Callable[[Hosts], HostsCli],
) -> None:
    crew = ("--set", "learner.count=2", "--set", "placement.learner.cpus=3")  # one fits on a node
    with Hosts({"owner": 0, "a": 5, "b": 5, "c": 5}) as hosts:
        running = cli_on(hosts).train(*crew)
        running.wait_until(lambda: running.env_steps > 5_000, "training", GOES_ON_S)
        before = lives(running)
        places = [host_of(running, "learner", index) for index in range(2)]
        assert len({*places, hosts.ip("owner")}) == 3, places

        lost = on(hosts, places[1])
        hosts.cut(lost)
        running.named("learner-1", "", 40.0)

        def replaced() -> bool:
            now = lives(running)
            return now.keys() == before.keys() and all(now[name] > before[name] for name in before)

        running.wait_until(replaced, "both learners to be replaced", GOES_ON_S)
        trains_on(running)
        assert hosts.ip(lost) not in {host_of(running, "learner", index) for index in range(2)}
        hosts.mend(lost)
        trains_on(running)
        running.interrupt()
        balanced(running)


@pytest.mark.soak
def test_who_is_cut_off_on_a_cluster_with_rays_own_health_checks_is_named_in_15_s(
    cli_on: Callable[[Hosts], HostsCli],
) -> None:
    """Ray itself takes a minute."""
    with Hosts({"owner": 0, "a": 3, "b": 3, "c": 3}, health={}) as hosts:
        running = cli_on(hosts).train()
        running.wait_until(lambda: running.env_steps > 5_000, "training", GOES_ON_S)
        lost = on(hosts, host_of(running, "actor", 1))
        victims = on_node(running, hosts.ip(lost))
        hosts.cut(lost)

        def is_named() -> bool:
            found = running.why()
            return found.component in victims and "is frozen for" in found.summary

        running.wait_until(is_named, f"one of {victims} to be named", 15.0)
        replaced(running, victims)
        trains_on(running)
        running.interrupt()
        balanced(running)


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_a_storm_on_ray(cli_on: Callable[[Hosts], HostsCli]) -> None:
    faults = int(os.environ.get("ROOKERY_RAY_FAULTS", "20"))
    seed = int(os.environ.get("ROOKERY_RAY_SEED", secrets_seed()))
    print(f"seed {seed}")
    drawn = random.Random(seed)
    with Hosts({"head": 0, "owner": 0, "a": 3, "b": 3}) as hosts:
        storm = Storm(hosts, cli_on(hosts), drawn)
        for number in range(faults):
            storm.strike(number)
        storm.running.interrupt()
        shown = balanced(storm.running)
        print(shown["balance"])


def secrets_seed() -> str:
    return str(random.SystemRandom().randrange(10**6))


class Storm:
    def __init__(self, hosts: Hosts, cli: HostsCli, drawn: random.Random) -> None:
        self.hosts, self.cli, self.drawn = hosts, cli, drawn
        self.running = cli.train()
        self.running.wait_until(lambda: self.running.env_steps > 5_000, "training", GOES_ON_S)
        self.kinds = [
            self.kill_a_worker,
            self.kill_the_learner,
            self.freeze_a_worker,
            self.kill_the_bus_host,
            self.freeze_the_bus_host,
            self.kill_a_raylet,
            self.kill_a_host,
            self.cut_a_link,
            self.cut_a_link_for_30_s,
            self.kill_the_driver,
            self.kill_the_owner,
            self.kill_the_head,
        ]

    def strike(self, number: int) -> None:
        kind = self.kinds[number % len(self.kinds)]
        print(f"{number}: {kind.__name__}", flush=True)
        kind()
        trains_on(self.running)

    def _worker(self, kind: str, index: int = 0) -> psutil.Process:
        found: psutil.Process = self.running.wait_until(
            lambda: self.running.worker(kind, index), f"{kind} {index}", GOES_ON_S
        )
        return found

    def kill_a_worker(self) -> None:
        self._worker("actor", self.drawn.randrange(2)).kill()

    def kill_the_learner(self) -> None:
        self._worker("learner").kill()

    def freeze_a_worker(self) -> None:
        index = self.drawn.randrange(2)
        self._worker("actor", index).send_signal(signal.SIGSTOP)
        self.running.named(f"actor-{index}", "frozen", 40.0)

    def kill_the_bus_host(self) -> None:
        bus_host(self.hosts).kill()

    def freeze_the_bus_host(self) -> None:
        bus_host(self.hosts).send_signal(signal.SIGSTOP)

    def kill_a_raylet(self) -> None:
        self._lose(self.hosts.kill_raylet)

    def kill_a_host(self) -> None:
        self._lose(self.hosts.kill)

    def cut_a_link(self) -> None:
        self._lose(self.hosts.cut)

    def cut_a_link_for_30_s(self) -> None:
        """Whoever lived on there is heard again, and what it says counts for nothing."""
        self._lose(self.hosts.cut, cut_s=30.0)

    def _lose(self, how: Callable[[str], None], cut_s: float = 0.0) -> None:
        """A node with workers on it, until all of them live elsewhere."""
        name = on(self.hosts, host_of(self.running, *self.drawn.choice(EVERYBODY)))
        victims = on_node(self.running, self.hosts.ip(name))
        moment = time.monotonic() + cut_s
        how(name)
        replaced(self.running, victims)
        trains_on(self.running)
        if cut_s:
            self.running.wait_until(lambda: time.monotonic() > moment, "30 s", cut_s + 10)
        self.hosts.mend(name)
        if cut_s:
            trains_on(self.running, 20_000)
        self._back(name)

    def kill_the_driver(self) -> None:
        driver(self.hosts).kill()

    def kill_the_owner(self) -> None:
        self.running.process.kill()
        self.running.process.wait(30)
        run = self.running.run
        self.running = self.cli.start("resume", run, "--json", run=run)
        self.running.wait_until(lambda: self.running.env_steps > 0, "going on", GOES_ON_S)

    def kill_the_head(self) -> None:
        """And with it the cluster: the run waits, and goes on on the next one."""
        for name in ("a", "b", "head"):
            self.hosts.kill(name)
        raylet = self.hosts.raylet("owner")
        if raylet is not None:
            raylet.kill()
        self.running.named("learner-0", "Ray cluster", 120.0)
        for name in self.hosts.names:
            self.hosts.start_ray(name)

    def _back(self, name: str) -> None:
        """A raylet that the cluster gave up ends, and its host is as if started anew."""
        self.hosts.kill(name)
        self.hosts.start_ray(name)
