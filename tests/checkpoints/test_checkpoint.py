"""A checkpoint is all there or not there at all, and a damaged one is passed over."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.checkpoints import store as module
from rookery.checkpoints.checkpoint import (
    MANIFEST,
    MANIFEST_SHA256,
    STATE,
    Checkpoint,
    load_checkpoint,
    newest_checkpoint,
    newest_manifest,
    save_checkpoint,
    sub_arrays,
)
from rookery.checkpoints.store import FileStore, open_store
from rookery.config.reading import build
from rookery.errors import CheckpointGone, DamagedCheckpoint, InputError, StoreError
from rookery.learner.manifest import LearnerManifest, pending_fragments, snapshots_needed
from rookery.messages.fragment import Episode
from tests.learner.test_inbox import fragment

CONFIG = build({"environment": {"id": "CartPole-v1"}})


def example(number: int = 1, position: int = 0, generation: int = 1) -> Checkpoint:
    manifest = LearnerManifest.beginning("r", CONFIG, False)
    manifest.generation, manifest.number, manifest.position = generation, number, (position,)
    manifest.ancestry = {1: 0}
    manifest.ledger.receive("0.1", 0, 8)
    manifest.ledger.train("0.1", 0, 8)
    manifest.book.join("0.1", 1)
    manifest.book.grant(number, 0)
    manifest.windows["main"].episodes = [Episode("player_0", 1.5, 3)]
    arrays = {"params/w": np.arange(6, dtype=np.float32).reshape(2, 3) + number}
    return Checkpoint(manifest, arrays)


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "checkpoints")


def visible(store: FileStore) -> list[str]:
    return sorted(os.listdir(store.root))


def test_a_checkpoint_comes_back_as_it_was(store: FileStore) -> None:
    saved = example(3, 17)

    save_checkpoint(store, saved, keep=3)
    back = newest_checkpoint(store, LearnerManifest)

    assert back is not None and back.manifest == saved.manifest
    assert list(back.arrays) == ["params/w"]
    np.testing.assert_array_equal(back.arrays["params/w"], saved.arrays["params/w"])
    assert (back.name, back.manifest.version) == ("000001-0000000003", (1, 3))
    assert back.manifest.ledger.outcomes == {"0.1": {"trained": [(0, 0)]}}


def test_nothing_saved_is_nothing_found(store: FileStore) -> None:
    assert newest_checkpoint(store, LearnerManifest) is None
    assert pending_fragments(None) == []


def with_pending(payload: bytes) -> Checkpoint:
    found = example()
    found.manifest.pending = 1
    return dataclasses.replace(found, files={"pending-0": payload})


def test_pending_fragments_are_files_of_their_own(store: FileStore) -> None:
    payload = fragment("0.1", 0, (1, 0)).payload
    save_checkpoint(store, with_pending(payload), keep=1)
    back = newest_checkpoint(store, LearnerManifest)
    assert back is not None and list(back.arrays) == ["params/w"]
    ((found, decoded),) = pending_fragments(back)
    assert found == payload and decoded.header.actor == "0.1"


def test_pending_fragments_of_an_older_rookery_are_in_the_state() -> None:
    payload = fragment("0.1", 0, (1, 0)).payload
    older = dataclasses.replace(with_pending(b""), files={})
    older.arrays["pending/0"] = np.frombuffer(payload, np.uint8)
    assert [found for found, _ in pending_fragments(older)] == [payload]


def test_a_damaged_pending_fragment_makes_a_damaged_checkpoint(store: FileStore) -> None:
    saved = with_pending(b"something")
    save_checkpoint(store, saved, keep=1)
    (store.root / saved.name / "pending-0").write_bytes(b"else")
    with pytest.raises(DamagedCheckpoint, match="pending-0 does not match"):
        newest_checkpoint(store, LearnerManifest)


def test_names_order_by_generation_then_number(store: FileStore) -> None:
    for generation, number in [(1, 9), (1, 10), (2, 4), (10, 1)]:
        save_checkpoint(store, example(number, generation=generation), keep=10)
    assert store.names() == [
        "000001-0000000009",
        "000001-0000000010",
        "000002-0000000004",
        "000010-0000000001",
    ]


def test_only_the_newest_are_kept_and_the_oldest_kept_position_is_told(store: FileStore) -> None:
    kept = [save_checkpoint(store, example(n, 10 * n), keep=2) for n in range(1, 5)]
    told = [[manifest and manifest.position for manifest in each] for each in kept]
    assert store.names() == ["000001-0000000003", "000001-0000000004"]
    assert told == [[(10,)], [(10,), (20,)], [(20,), (30,)], [(30,), (40,)]]


def test_a_damaged_old_checkpoint_does_not_hold_experience_back(store: FileStore) -> None:
    save_checkpoint(store, example(1, 10), keep=3)
    (store.root / example(1).name / MANIFEST).write_bytes(b"{")
    damaged, kept = save_checkpoint(store, example(2, 20), keep=3)
    assert damaged is None and kept is not None and kept.position == (20,)


class FrugalStore(FileStore):
    """Says which files were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []

    def load(self, name: str, only: Collection[str] = ()) -> dict[str, bytes]:
        found = super().load(name, only)
        self.read += found
        return found


def test_saving_and_looking_read_manifests_and_no_arrays(tmp_path: Path) -> None:
    store = FrugalStore(tmp_path)
    for number in range(1, 4):
        save_checkpoint(store, example(number), keep=2)
    found = newest_manifest(store, LearnerManifest)
    assert found is not None and found.number == 3
    older = newest_manifest(store, LearnerManifest, damaged=[example(3).name])
    assert older is not None and older.number == 2
    assert set(store.read) == {MANIFEST, MANIFEST_SHA256}


def test_a_checkpoint_that_is_gone_is_told_from_a_damaged_one(store: FileStore) -> None:
    with pytest.raises(CheckpointGone, match="not there any more"):
        store.load("main-000001-0000000003")


def test_a_manifest_of_an_older_rookery_says_nothing_of_steps_and_snapshots(
    store: FileStore,
) -> None:
    save_checkpoint(store, example(1), keep=3)
    path = store.root / example(1).name / MANIFEST
    written = json.loads(path.read_bytes())
    older = {k: v for k, v in written.items() if k not in ("pending_steps", "snapshots")}
    path.write_text(json.dumps(older))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (path.parent / MANIFEST_SHA256).write_text(digest)
    found = newest_manifest(store, LearnerManifest)
    assert found is not None and found.pending_steps is None and found.snapshots is None
    assert snapshots_needed([found]) is None and snapshots_needed([None]) is None
    said = [msgspec.structs.replace(found, snapshots=names) for names in (["a"], ["a", "b"])]
    assert snapshots_needed(said) == {"a", "b"}


# --- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_name", [STATE, MANIFEST, MANIFEST_SHA256])
@pytest.mark.parametrize("damage", ["truncated", "emptied", "removed", "flipped"])
def test_the_next_older_one_is_used_when_the_newest_is_damaged(
    store: FileStore, file_name: str, damage: str
) -> None:
    save_checkpoint(store, example(1), keep=3)
    save_checkpoint(store, example(2), keep=3)
    path = store.root / example(2).name / file_name
    content = path.read_bytes()
    if damage == "removed":
        path.unlink()
    else:
        flipped = content[:8] + bytes([content[8] ^ 0x80]) + content[9:]
        halves = {"truncated": content[: len(content) // 2], "emptied": b"", "flipped": flipped}
        path.write_bytes(halves[damage])
    heard: list[tuple[str, str]] = []

    found = newest_checkpoint(store, LearnerManifest, lambda name, why: heard.append((name, why)))

    assert found is not None and found.manifest.number == 1
    assert [name for name, _ in heard] == [example(2).name] and heard[0][1]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), file_name=st.sampled_from([STATE, MANIFEST, MANIFEST_SHA256]))
def test_any_damage_is_noticed(data: st.DataObject, file_name: str, tmp_path_factory: Any) -> None:
    store = FileStore(tmp_path_factory.mktemp("damage"))
    save_checkpoint(store, example(1), keep=3)
    path = store.root / example(1).name / file_name
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= data.draw(st.integers(1, 255))
    else:
        del content[at:]
    path.write_bytes(bytes(content))
    with pytest.raises(DamagedCheckpoint):
        load_checkpoint(store, example(1).name, LearnerManifest)


def test_when_all_are_damaged_it_says_so_and_why(store: FileStore) -> None:
    for number in (1, 2):
        save_checkpoint(store, example(number), keep=3)
        (store.root / example(number).name / STATE).write_bytes(b"junk")
    with pytest.raises(DamagedCheckpoint, match=r"no checkpoint of 2 can be read.*SHA-256"):
        newest_checkpoint(store, LearnerManifest)


def test_a_checkpoint_of_another_schema_is_refused_by_its_number(store: FileStore) -> None:
    save_checkpoint(store, example(1), keep=3)
    path = store.root / example(1).name / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_name(MANIFEST_SHA256).write_text(digest)
    with pytest.raises(DamagedCheckpoint, match="schema version 99"):
        newest_checkpoint(store, LearnerManifest)


# --- death and full disks in the middle ----------------------------------------------------------


class Killed(BaseException):
    """As if the process had ended there: nothing after it runs but what Python unwinds."""


@pytest.mark.parametrize("where", ["rename", "fsync"])
@pytest.mark.parametrize("cause", [Killed(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_save_that_fails_midway_leaves_the_last_checkpoint(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, where: str, cause: BaseException
) -> None:
    save_checkpoint(store, example(1), keep=1)

    def fail(*arguments: Any) -> None:
        raise cause

    with monkeypatch.context() as patch:
        patch.setattr(module.os, where, fail)
        expected = StoreError if isinstance(cause, OSError) else Killed
        with pytest.raises(expected):
            save_checkpoint(store, example(2), keep=1)

    assert visible(store) == [example(1).name]
    found = newest_checkpoint(store, LearnerManifest)
    assert found is not None and found.manifest.number == 1


def test_what_a_killed_process_left_behind_is_unseen_and_cleared(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(store, example(1), keep=3)

    def die(*arguments: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:  # kill -9 unwinds nothing: the clean-up does not run
        patch.setattr(module.os, "rename", die)
        patch.setattr(module.shutil, "rmtree", lambda *a, **k: None)
        with pytest.raises(Killed):
            save_checkpoint(store, example(2), keep=3)
    (store.root / ".deleting-000000-0000000001").mkdir()
    assert len(visible(store)) == 3 and store.names() == [example(1).name]

    save_checkpoint(store, example(3), keep=3)

    assert visible(store) == [example(1).name, example(3).name]


def test_a_full_disk_says_what_to_do_and_keeps_the_last_checkpoint(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(store, example(1), keep=1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left.*the last one is kept.*resume"):
        save_checkpoint(store, example(2), keep=1)


def test_a_directory_that_cannot_be_written_says_so(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(store, example(1), keep=1)
    store.root.chmod(0o500)
    if os.geteuid() == 0:  # root may write anyway: let the same call fail as it does for others

        def refuse(*arguments: Any, **options: Any) -> str:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(module.tempfile, "mkdtemp", refuse)
    try:
        with pytest.raises(StoreError, match=r"cannot write a checkpoint to .*Permission denied"):
            save_checkpoint(store, example(2), keep=1)
    finally:
        store.root.chmod(0o700)
    assert newest_checkpoint(store, LearnerManifest) is not None


def test_a_file_where_the_directory_should_be_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StoreError):
        save_checkpoint(FileStore(tmp_path / "taken"), example(1), keep=1)


def test_deleting_what_is_gone_is_nothing(store: FileStore) -> None:
    save_checkpoint(store, example(1), keep=1)
    store.delete(example(1).name)
    store.delete(example(1).name)
    assert store.names() == []


# --- the rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["", "file:", "s3:bucket", "/tmp/x"])
def test_a_store_that_is_not_there_yet_is_bad_input(uri: str) -> None:
    with pytest.raises(InputError, match="file:DIRECTORY"):
        open_store(uri)


def test_arrays_are_found_by_their_prefix() -> None:
    one = np.zeros(1)
    assert sub_arrays({"params/a": one, "stats/b": one}, "params/") == {"a": one}


def test_a_manifest_is_plain_json(store: FileStore) -> None:
    save_checkpoint(store, example(1), keep=1)
    content = (store.root / example(1).name / MANIFEST).read_bytes()
    assert json.loads(content)["ancestry"] == {"1": 0}
    assert msgspec.json.decode(content, type=LearnerManifest).ancestry == {1: 0}
