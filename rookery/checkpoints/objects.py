"""Checkpoints in an object store: whatever fsspec knows, `s3://BUCKET/PREFIX` first of all.

    PREFIX/data/NAME/WRITER/FILE      uploaded first, in a folder that no other save writes to
    PREFIX/NAME.json                  the marker, uploaded last: where its files are, how large

A store has neither rename nor locks, but it replaces one object as a whole. So a checkpoint is
there when its marker is, and gone when that is removed, which is done first. Files without a marker
are a save under way, or what a killed one left (docs/decisions/0034).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import msgspec

from rookery.checkpoints.reach import Remote
from rookery.checkpoints.writers import is_gone, writer_name
from rookery.errors import CheckpointGone, DamagedCheckpoint, StoreError

ABANDONED_S = 3600.0  # after which a save on another machine is taken for dead: none lasts as long
_DATA, _MARKER = "data", ".json"
_CHANGED = ("LastModified", "updated", "mtime", "last_modified", "created")  # as stores call it

logger = logging.getLogger(__name__)


class Marker(msgspec.Struct):
    """What makes a checkpoint exist."""

    folder: str  # below the store's root
    files: dict[str, int]  # name -> bytes


class ObjectStore:
    """Keeps the contract of `CheckpointStore`, over a network."""

    def __init__(self, remote: Remote, abandoned_s: float = ABANDONED_S) -> None:
        self._remote, self._abandoned_s = remote, abandoned_s

    def save(self, name: str, files: Mapping[str, bytes]) -> None:
        if self._marker(name) is not None:
            raise StoreError(f"{self._remote.uri} has a checkpoint {name} already: it is kept")
        folder = f"{_DATA}/{name}/{writer_name()}"
        sizes = {file_name: len(content) for file_name, content in files.items()}
        for file_name, content in files.items():
            self._put(f"{folder}/{file_name}", content)
        self._put(name + _MARKER, msgspec.json.encode(Marker(folder, sizes)))
        try:
            self.clear_leftovers()
        except StoreError as error:  # this save is done; the next one clears too
            logger.warning("leftovers in %s were not cleared: %s", self._remote.uri, error)

    def load(self, name: str, only: Collection[str] = ()) -> dict[str, bytes]:
        marker = self._marker(name)
        if marker is None:
            raise CheckpointGone(f"{self._remote.uri}/{name} is not there any more")
        wanted = [each for each in marker.files if not only or each in only]
        try:
            return {
                each: self._get(f"{marker.folder}/{each}", marker.files[each]) for each in wanted
            }
        except FileNotFoundError:
            if self._marker(name) is None:
                raise CheckpointGone(f"{self._remote.uri}/{name} was removed meanwhile") from None
            raise DamagedCheckpoint(f"{self._remote.uri}/{name} lacks a file") from None

    def names(self) -> list[str]:
        try:
            found = self._remote.call(lambda files, root: files.ls(root, detail=False))
        except FileNotFoundError:
            return []
        last = (str(path).rpartition("/")[2] for path in found)
        return sorted(each.removesuffix(_MARKER) for each in last if each.endswith(_MARKER))

    def delete(self, name: str) -> None:
        self._remove(name + _MARKER)
        for path in self._find(f"{_DATA}/{name}"):
            self._remove(path)

    def clear_leftovers(self) -> None:
        """Files without a marker, of writers that are gone. The files are listed before the
        markers: whoever finished in between is seen to have."""
        folders: dict[tuple[str, str], list[str]] = {}
        changed: dict[tuple[str, str], float] = {}
        for path, info in self._find(_DATA).items():
            name, _, rest = path.removeprefix(f"{_DATA}/").partition("/")
            folder = (name, rest.partition("/")[0])
            folders.setdefault(folder, []).append(path)
            changed[folder] = max(changed.get(folder, 0.0), _changed_s(info))
        newest = max(changed.values(), default=0.0)  # by the store's own clock
        known = set(self.names()) if folders else set()
        for folder, paths in folders.items():
            name, writer = folder
            aged = 0.0 < changed[folder] < newest - self._abandoned_s
            if (is_gone(writer) or aged) and not (name in known and self._is_used(folder)):
                for path in paths:
                    self._remove(path)

    def _is_used(self, folder: tuple[str, str]) -> bool:
        marker = self._marker(folder[0])
        return marker is not None and marker.folder == "/".join((_DATA, *folder))

    # --- single objects --------------------------------------------------------------------------

    def _marker(self, name: str) -> Marker | None:
        try:
            content = self._get(name + _MARKER, 0)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=Marker)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedCheckpoint(f"{self._remote.uri}/{name}{_MARKER}: {error}") from error

    def _get(self, path: str, size: int) -> bytes:
        found: bytes = self._remote.call(lambda files, root: files.cat_file(f"{root}/{path}"), size)
        return found

    def _put(self, path: str, content: bytes) -> None:
        size = len(content)
        self._remote.call(lambda files, root: files.pipe_file(f"{root}/{path}", content), size)

    def _find(self, folder: str) -> dict[str, dict[str, Any]]:
        """Every object below, by its path from the root; none where there is no such folder."""

        def find(files: Any, root: str) -> dict[str, dict[str, Any]]:
            found = files.find(f"{root}/{folder}", detail=True)
            return {path.removeprefix(f"{root}/"): info for path, info in found.items()}

        try:
            return self._remote.call(find)
        except FileNotFoundError:
            return {}

    def _remove(self, path: str) -> None:
        try:
            self._remote.call(lambda files, root: files.rm_file(f"{root}/{path}"))
        except FileNotFoundError:
            return  # somebody was faster


def _changed_s(info: Mapping[str, Any]) -> float:
    """When an object was written, by its store; 0 where that is not told."""
    found = next((info[key] for key in _CHANGED if info.get(key)), None)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    return found.timestamp() if isinstance(found, datetime) else float(found or 0.0)
