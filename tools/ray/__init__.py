"""Ray for tests: clusters that keep to this machine and write nothing to the user's home.

    with local_ray():           # a cluster of one node, in a process of its own; this one is on it
        import ray

Starting Ray forks, and leaves processes for whoever started it to wait for: that is not for a test
process, which may have JAX and many threads.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
OBJECT_STORE_BYTES = 256 << 20
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # read when Ray is imported
TOKEN = secrets.token_hex(32)  # of this process: Ray reads it once, when it is imported
HERE = {**LOOPBACK, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
"""For a process that is to get onto a cluster of `local_ray`, before it imports Ray."""


def private_environment(directory: Path) -> dict[str, str]:
    """Variables that keep what Ray writes in a directory, its token too."""
    token = directory / "token"
    if not token.exists():
        token.write_text(TOKEN)
        token.chmod(0o600)
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # a busy machine starts one slowly
    }


@contextlib.contextmanager
def local_ray(cpus: int = 4) -> Iterator[None]:
    """A cluster of one node, on loopback, until the block ends."""
    os.environ.update(HERE)
    directory = Path(tempfile.mkdtemp(prefix="rk-"))  # sockets in it have short paths
    head = _head(directory, cpus)
    try:
        assert head.stdout is not None
        address = head.stdout.readline().decode().strip()
        if not address:
            raise RuntimeError(f"no Ray cluster: {(directory / 'head.log').read_text()[-2000:]}")
        import ray

        ray.init(address=address, log_to_driver=False, logging_level="warning")
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        _end(head)
        shutil.rmtree(directory, ignore_errors=True)


def _head(directory: Path, cpus: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "tools.ray.head", str(cpus), str(directory)]
    with open(directory / "head.log", "wb") as log:
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **private_environment(directory)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )


def _end(head: subprocess.Popen[bytes]) -> None:
    """And all that it started."""
    family = psutil.Process(head.pid).children(recursive=True) if head.poll() is None else []
    with head:
        assert head.stdin is not None
        head.stdin.close()
        try:
            head.wait(10)
        except subprocess.TimeoutExpired:
            head.kill()
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family, 10)
