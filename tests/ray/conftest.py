"""One local Ray for a module's tests: a process has one at a time, and others have their own.

It keeps to this machine and to a directory of its own (`tools.ray`), and every process that it
started is gone when the module is done.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

import rookery
from tools.ray import local_ray as cluster

END_S = 30.0


@pytest.fixture(scope="module")
def local_ray() -> Iterator[Any]:
    """The `ray` module, connected to a cluster of two CPUs."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with cluster(cpus=2):
        import ray

        yield ray
    left = _left(before)
    assert not left, f"Ray left processes behind: {left}"


def _left(before: set[int]) -> list[str]:
    """What this process has started since and still runs, after some patience; it is ended."""
    until = time.monotonic() + END_S
    while found := [c for c in psutil.Process().children(recursive=True) if c.pid not in before]:
        _, alive = psutil.wait_procs(found, max(0.0, until - time.monotonic()))
        if alive:
            names = [process.name() for process in alive]
            for process in alive:
                process.kill()
            return names
    return []


class Trained(NamedTuple):
    run: rookery.Run
    home: Path


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A short run, and its home."""
    home = tmp_path_factory.mktemp("trained") / "home"
    run = rookery.train(
        "CartPole-v1",
        steps=2000,
        seed=1,
        launcher="inline",
        envs_per_actor=4,
        home=home,
        quiet=True,
    )
    return Trained(run, home)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
