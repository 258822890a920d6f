"""Ray for tests: a cluster in this process, that writes nothing to the user's home."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

OBJECT_STORE_BYTES = 256 << 20
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # read when Ray is imported
TOKEN = secrets.token_hex(32)  # of this process: Ray reads it once, for every cluster in it


def private_environment(directory: Path) -> dict[str, str]:
    """Variables that keep what Ray writes in a directory, its token too."""
    token = directory / "token"
    if not token.exists():
        token.write_text(TOKEN)
        token.chmod(0o600)
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }


@contextlib.contextmanager
def local_ray(cpus: int = 4) -> Iterator[None]:
    """A cluster of one node, on loopback, until the block ends."""
    directory = Path(tempfile.mkdtemp(prefix="rk-"))  # sockets in it have short paths
    os.environ.update({**private_environment(directory), **LOOPBACK})
    import ray

    try:
        with warnings.catch_warnings():  # Ray forks only to execute another program
            warnings.filterwarnings("ignore", r"os.fork\(\) was called", RuntimeWarning)
            ray.init(
                num_cpus=cpus,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="warning",
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=str(directory),
            )
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)
