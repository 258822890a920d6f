"""One local Ray for all tests of a session that need a real one.

It keeps to this machine and to a directory of its own: no token is written to anybody's home, the
dashboard is off, and every process that it started is gone when the session ends.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

QUIET = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
END_S = 30.0


@pytest.fixture(scope="session")
def local_ray() -> Iterator[Any]:
    """The `ray` module, connected to a cluster of two CPUs."""
    ray = pytest.importorskip("ray")
    place = Path(tempfile.mkdtemp(prefix="rk-", dir="/tmp"))  # short: sockets lie in it
    token = place / "token"
    token.write_text("0123456789abcdef" * 4)
    token.chmod(0o600)
    told = {**QUIET, "RAY_AUTH_TOKEN_PATH": str(token), "PYTHONPATH": os.getcwd()}
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    children = {child.pid for child in psutil.Process().children(recursive=True)}
    try:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=str(place),
            object_store_memory=100 << 20,
            log_to_driver=False,
            configure_logging=False,
        )
        yield ray
    finally:
        ray.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        left = _left(children)
        shutil.rmtree(place, ignore_errors=True)
    assert not left, f"Ray left processes behind: {left}"


def _left(before: set[int]) -> list[str]:
    """What this process has started since and still runs, after some patience; it is ended."""
    until = time.monotonic() + END_S
    mine = psutil.Process()
    while found := [c for c in mine.children(recursive=True) if c.pid not in before]:
        gone, alive = psutil.wait_procs(found, max(0.0, until - time.monotonic()))
        if alive:
            names = [process.name() for process in alive]
            for process in alive:
                process.kill()
            return names
    return []


@pytest.fixture
def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
