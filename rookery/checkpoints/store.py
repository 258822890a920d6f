"""Where checkpoints live: sets of named files that are saved all or nothing, at a URI."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from rookery.errors import CheckpointGone, DamagedCheckpoint, InputError, StoreError

_ADDRESS = re.compile(r"[a-z][a-z0-9]*://.+")


class CheckpointStore(Protocol):
    """Where checkpoints live. `save` is all or nothing, whenever the process dies."""

    def save(self, name: str, files: Mapping[str, bytes]) -> None: ...

    def load(self, name: str, only: Collection[str] = ()) -> dict[str, bytes]:
        """All of its files, or those of these that it has: one may be a hundred megabytes."""
        ...

    def names(self) -> list[str]:
        """Oldest first."""
        ...

    def delete(self, name: str) -> None: ...

    def clear_leftovers(self) -> None:
        """Remove what killed writers began; each save does it too."""
        ...


def open_store(uri: str) -> CheckpointStore:
    """The store at `file:DIRECTORY`, `s3://BUCKET/PREFIX` or whatever else fsspec knows. Nothing is
    looked at yet, and what is far away is imported when it is first used."""
    scheme, _, path = uri.partition(":")
    if scheme == "ray" and path:  # never a person's word: what a worker elsewhere was told
        from rookery.checkpoints.hosted import hosted_store

        return hosted_store(path)
    if scheme == "file" and path:
        return FileStore(Path(path))
    if not _ADDRESS.fullmatch(uri):
        raise InputError(
            f"checkpoint.uri {uri!r} is not supported: use file:DIRECTORY or s3://BUCKET/PREFIX"
        )
    from rookery.checkpoints.objects import ObjectStore
    from rookery.checkpoints.reach import Remote, check_installed

    check_installed(uri)
    return ObjectStore(Remote(uri))


class FileStore:
    """A directory per checkpoint: written aside, flushed, then renamed into place."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def save(self, name: str, files: Mapping[str, bytes]) -> None:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self.clear_leftovers()
            aside = Path(tempfile.mkdtemp(prefix=".writing-", dir=self.root))
            try:
                for file_name, content in files.items():
                    with open(aside / file_name, "wb") as file:
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
                _sync_directory(aside)
                os.rename(aside, self.root / name)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            _sync_directory(self.root)
        except OSError as error:
            raise StoreError(
                f"cannot write a checkpoint to {self.root}: {error.strerror}; the last one is "
                "kept. Free some space or make it writable, then resume the run"
            ) from error

    def load(self, name: str, only: Collection[str] = ()) -> dict[str, bytes]:
        place = self.root / name
        try:
            paths = list(place.iterdir())
            found = {p.name: p.read_bytes() for p in paths if not only or p.name in only}
            place.stat()  # still there, so all of it was: whoever deletes it renames it first
            return found
        except FileNotFoundError as error:
            raise CheckpointGone(f"{place} is not there any more") from error
        except OSError as error:
            raise DamagedCheckpoint(f"cannot read {place}: {error.strerror}") from error

    def names(self) -> list[str]:
        if not self.root.is_dir():
            return []
        return sorted(p.name for p in self.root.iterdir() if not p.name.startswith("."))

    def delete(self, name: str) -> None:
        aside = self.root / f".deleting-{name}"
        try:
            os.rename(self.root / name, aside)
        except FileNotFoundError:
            return
        shutil.rmtree(aside, ignore_errors=True)

    def clear_leftovers(self) -> None:
        for path in self.root.glob(".*ing-*"):
            shutil.rmtree(path, ignore_errors=True)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
