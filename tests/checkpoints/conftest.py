"""An S3 server for the tests of a module, and the environment that leads to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.checkpoints.s3_server import S3Server, needs_s3


@pytest.fixture(scope="module")
def s3_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    needs_s3()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket()
        yield server


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in s3_process.environment.items():
        monkeypatch.setenv(name, value)
    return s3_process
