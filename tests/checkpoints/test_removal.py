"""A run that is deleted takes what it wrote to a store along, and nothing of others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec

from rookery.checkpoints.checkpoint import MANIFEST, save_checkpoint
from rookery.checkpoints.removal import remove_run
from rookery.checkpoints.store import FileStore
from tests.checkpoints.test_checkpoint import example


def save(store: FileStore, run: str, number: int, snapshots: list[str]) -> str:
    found = example(number)
    manifest = msgspec.structs.replace(found.manifest, run=run, snapshots=snapshots)
    saved = dataclasses.replace(found, manifest=manifest)
    save_checkpoint(store, saved, keep=100)
    return saved.name


def test_what_a_run_wrote_goes_and_all_else_stays(tmp_path: Path) -> None:
    checkpoints, snapshots = FileStore(tmp_path / "a"), FileStore(tmp_path / "a-snapshots")
    for file in ("mine", "both", "nobodys"):
        snapshots.save(file, {"weights.rkry": b""})
    save(checkpoints, "mine", 1, ["mine", "removed-long-ago"])
    save(checkpoints, "mine", 2, ["both"])
    theirs = save(checkpoints, "theirs", 3, ["both"])
    damaged = save(checkpoints, "mine", 4, [])
    (checkpoints.root / damaged / MANIFEST).write_bytes(b"{")
    (checkpoints.root / ".writing-x").mkdir()

    remove_run(checkpoints, snapshots, "mine")

    assert checkpoints.names() == [theirs, damaged]
    assert snapshots.names() == ["both", "nobodys"]
    assert not (checkpoints.root / ".writing-x").exists()
    remove_run(checkpoints, snapshots, "mine")
    assert checkpoints.names() == [theirs, damaged]
