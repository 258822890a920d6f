"""Every store keeps the same contract: a directory, objects in memory, objects on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.checkpoints.objects import ObjectStore
from rookery.checkpoints.reach import Remote
from rookery.checkpoints.store import CheckpointStore, FileStore, open_store
from rookery.errors import CheckpointGone
from rookery.testing.store_suite import StoreSuite
from tests.checkpoints.s3_server import BUCKET, S3Server


class TestFileStore(StoreSuite):
    @pytest.fixture(autouse=True)
    def _in(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def make_store(self, place: str) -> CheckpointStore:
        return FileStore(self.directory / place)


class TestObjectsInMemory(StoreSuite):
    """Without a network: what is ours, and not S3's."""

    @pytest.fixture(autouse=True)
    def _emptied(self) -> Iterator[None]:
        fsspec = pytest.importorskip("fsspec")
        yield
        memory = fsspec.filesystem("memory")
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]

    def make_store(self, place: str) -> CheckpointStore:
        return ObjectStore(Remote(f"memory://{place}/checkpoints"))


class TestObjectsOnS3(StoreSuite):
    @pytest.fixture(autouse=True)
    def _on(self, s3: S3Server) -> None:
        """A real server."""

    def make_store(self, place: str) -> CheckpointStore:
        return open_store(f"s3://{BUCKET}/{place}")


def test_what_is_deleted_while_it_is_listed_is_gone_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(tmp_path)
    store.save("000", {"x": b"0"})

    def listed_late(place: Path) -> Iterator[Path]:
        """A directory that was opened before it was deleted lists nothing."""
        store.delete(place.name)
        return iter(())

    monkeypatch.setattr(Path, "iterdir", listed_late)
    with pytest.raises(CheckpointGone):
        store.load("000")
