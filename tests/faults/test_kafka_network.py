"""A second host: an actor in a network namespace of its own, cut off and back again."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from rookery.control.signing import KEY_VARIABLE, key_path
from tools.kafka.broker import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Cli

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        shutil.which("ip") is None or os.geteuid() != 0, reason="needs root and iproute2"
    ),
]


class Host(NamedTuple):
    """Another machine, as far as the network goes."""

    name: str
    link: str  # our end of the cable
    address: str  # of that end

    def cable(self, state: str) -> None:
        ip("link", "set", self.link, state)

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=20, capture_output=True)


@pytest.fixture
def host() -> Iterator[Host]:
    tag = secrets.token_hex(2)
    subnet = f"10.{77 + secrets.randbelow(100)}.{secrets.randbelow(250)}"
    name, ours, theirs = f"rookery-{tag}", f"rk{tag}a", f"rk{tag}b"
    ip("netns", "add", name)
    try:
        ip("link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
        ip("addr", "add", f"{subnet}.1/24", "dev", ours)
        ip("link", "set", ours, "up")
        for words in (
            ("addr", "add", f"{subnet}.2/24", "dev", theirs),
            ("link", "set", theirs, "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", name, *words)
        yield Host(name, ours, f"{subnet}.1")
    finally:
        ip("netns", "del", name)


def test_an_actor_on_another_host_is_cut_off_and_comes_back(
    host: Host, tmp_path: Path, home: Path, kafka_cli_on: Callable[..., Cli], eventually: Any
) -> None:
    with Cluster(directory=tmp_path / "kafka", also_on=host.address) as cluster:
        cli = kafka_cli_on(home, cluster)
        running = cli.start(
            *("train", "CartPole-v1", "--envs-per-actor", 16, "--set", "actors.rollout_steps=32"),
            *("--steps", 100_000_000, "--set", "checkpoint.interval_s=1", "--json"),
            *("--set", "actors.heartbeat_s=1"),
        )
        running.wait_until(lambda: running.env_steps > 0, "the first steps")
        away = tmp_path / "away"
        away.mkdir()
        environment = {
            **cli.environment,
            "ROOKERY_HOME": str(away),
            "ROOKERY_BUS": f"kafka://{cluster.also_servers}",
            KEY_VARIABLE: str(key_path(cli.home.path)),
        }
        argv = host.command(sys.executable, "-m", "rookery", "actor", running.run)
        with open(away / "log", "wb") as log:
            actor = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd=away)
        try:
            far = running.wait_until(lambda: steps_from_afar(running), "steps from afar")
            host.cable("down")
            before = running.env_steps
            with pytest.raises(subprocess.TimeoutExpired):
                actor.wait(30)
            assert "was last heard" in running.why().summary
            running.wait_until(lambda: running.env_steps > before, "training on without it")
            host.cable("up")
            running.wait_until(lambda: steps_from_afar(running) > far + 20_000, "it is back", 90)
            running.interrupt()
            assert actor.wait(60) == 0
        finally:
            actor.kill()
            actor.wait()
        shown = cli("runs", "show", running.run, "--json").json
        print(shown["balance"])
        assert shown["balance"]["exact"] and shown["duplicates"] == 0 and shown["gaps"] == 0


def steps_from_afar(running: Any) -> int:
    from rookery.control.queries import newest_training

    home = running.cli.home
    bus = home.read_run_bus(home.state(running.run))
    metrics = newest_training(bus, running.run)
    bus.close()
    seen = metrics.ledger.seen if metrics is not None else {}
    return sum(steps for actor, steps in seen.items() if not actor.startswith("0."))
