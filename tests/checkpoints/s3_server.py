"""A real S3-compatible server (moto's) in a process of its own, on a free port of 127.0.0.1.

with S3Server(directory) as server:
    environment |= server.environment
    server.make_bucket("b")
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until

SECRET = "a-secret-that-nobody-may-see"
BUCKET = "rookery-tests"
START_S = 60.0
_LISTENS = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")


class S3Server:
    def __init__(self, directory: Path) -> None:
        self._log = directory / "s3.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0  # a free one at first, and then the same again

    @property
    def environment(self) -> dict[str, str]:
        """What leads to it, as other tools have it too."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        }

    def start(self) -> None:
        program = "import sys; from moto.server import main; main(sys.argv[1:])"
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, "-H", "127.0.0.1", "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

        def listens() -> re.Match[str] | None:
            said = self._log.read_text(errors="replace")
            assert self._process is not None and self._process.poll() is None, said
            return _LISTENS.search(said)

        self.port = int(wait_until(listens, "the S3 server to listen", START_S)[1])

    def stop(self) -> None:
        """With all that it has: it keeps everything in memory."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client of its own, that knows nothing of ours."""
        import boto3

        found = boto3.client(
            "s3",
            endpoint_url=self.environment["AWS_ENDPOINT_URL"],
            aws_access_key_id="tester",
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )
        try:
            yield found
        finally:
            found.close()

    def make_bucket(self, name: str = BUCKET) -> None:
        with self.client() as client:
            client.create_bucket(Bucket=name)

    def keys(self, prefix: str = "") -> list[str]:
        """Every object of the bucket."""
        with self.client() as client:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
            return sorted(each["Key"] for page in pages for each in page.get("Contents", ()))


def needs_s3() -> None:
    """Skips, by name, where the packages are not here: they come with rookery[test]."""
    absent = [name for name in ("s3fs", "moto", "boto3") if importlib.util.find_spec(name) is None]
    if absent:
        pytest.skip(f"no S3 server: {', '.join(absent)} not installed")
