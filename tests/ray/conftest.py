"""What the tests of `rookery.ray` share: the cluster of their process, and a short run."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rookery


@pytest.fixture(scope="module")
def local_ray(ray_here: Any) -> Any:
    """The `ray` module, on the cluster of this process."""
    return ray_here


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
