"""Taking out of a store what one run has written there, and nothing else."""

from __future__ import annotations

from rookery.checkpoints.checkpoint import Manifest, manifest_or_none
from rookery.checkpoints.store import CheckpointStore


class OwnedManifest(Manifest, kw_only=True):
    """What tells whose things are whose."""

    snapshots: list[str] | None = None


def remove_run(checkpoints: CheckpointStore, snapshots: CheckpointStore, run: str) -> None:
    """Remove the run's checkpoints, and the snapshots that only these name.

    A checkpoint says whose it is and which snapshots it needs. A damaged one says nothing: it
    stays, as do snapshots that no checkpoint has named yet.
    """
    found = {n: manifest_or_none(checkpoints, n, OwnedManifest) for n in checkpoints.names()}
    told = {name: each for name, each in found.items() if each is not None}
    mine = [name for name, each in told.items() if each.run == run]
    needed = {file for n, each in told.items() if n not in mine for file in each.snapshots or ()}
    for file in sorted({file for name in mine for file in told[name].snapshots or ()} - needed):
        snapshots.delete(file)
    for name in mine:  # last: until then they say what belongs to the run
        checkpoints.delete(name)
    for store in (checkpoints, snapshots):
        store.clear_leftovers()
