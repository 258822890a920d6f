"""Checkpoints: one atomic thing each, in a store named by a URI.

A checkpoint is a set of named files. The manifest carries the SHA-256 of each, and its own stands
beside it, so a damaged one is recognised and the newest good one is used instead.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec
import safetensors.numpy

from rookery.algorithms.networks import Network
from rookery.checkpoints.store import CheckpointStore
from rookery.errors import DamagedCheckpoint, MessageError
from rookery.messages import SCHEMA, WeightsVersion, decoder
from rookery.messages.frame import Arrays
from rookery.messages.weights import load_safetensors

MANIFEST = "manifest.json"
MANIFEST_SHA256 = "manifest.sha256"
STATE = "state.safetensors"


class Manifest(msgspec.Struct, kw_only=True):
    """Everything of a checkpoint that is not an array: what every reader needs of it.

    The learner's own has more (`learner.manifest`); a reader decodes what it knows.
    """

    schema: int = SCHEMA
    run: str
    generation: int
    number: int  # updates done
    sha256: dict[str, str] = {}

    @property
    def version(self) -> WeightsVersion:
        return WeightsVersion(self.generation, self.number)

    @property
    def name(self) -> str:
        return checkpoint_name(self.version)


def checkpoint_name(version: WeightsVersion) -> str:
    """Names sort as versions do."""
    return f"{version.generation:06d}-{version.number:010d}"


M = TypeVar("M", bound=Manifest)


@dataclass(frozen=True)
class Checkpoint(Generic[M]):
    manifest: M
    arrays: Arrays
    files: Mapping[str, bytes] = field(default_factory=dict)  # what need not be copied to be saved

    @property
    def name(self) -> str:
        return self.manifest.name


def acting_arrays(network: Network, arrays: Arrays, policy: str) -> Arrays:
    """What a policy needs to act, from a checkpoint's arrays."""
    own = sub_arrays(arrays, f"{policy}/")
    return network.acting_arrays(sub_arrays(own, "params/"), sub_arrays(own, "stats/"))


def critic_arrays(network: Network, arrays: Arrays, policy: str) -> Arrays:
    """The rest: what it needs to say what it expects."""
    own = sub_arrays(arrays, f"{policy}/")
    return network.critic_arrays(sub_arrays(own, "params/"), sub_arrays(own, "stats/"))


def sub_arrays(arrays: Arrays, prefix: str) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}


def save_checkpoint(store: CheckpointStore, checkpoint: Checkpoint[M], keep: int) -> list[M | None]:
    """Save, let go of all but the `keep` newest, and return their manifests, the oldest first;
    None in the place of a damaged one."""
    files = {STATE: safetensors.numpy.save(checkpoint.arrays), **checkpoint.files}
    checkpoint.manifest.sha256 = {n: hashlib.sha256(f).hexdigest() for n, f in files.items()}
    manifest = msgspec.json.format(msgspec.json.encode(checkpoint.manifest), indent=1)
    digest = hashlib.sha256(manifest).hexdigest().encode()
    store.save(checkpoint.name, {**files, MANIFEST: manifest, MANIFEST_SHA256: digest})
    names = store.names()
    for name in names[:-keep]:
        store.delete(name)
    return [manifest_or_none(store, name, type(checkpoint.manifest)) for name in names[-keep:]]


def newest_manifest(
    store: CheckpointStore, kind: type[M], damaged: Container[str] = ()
) -> M | None:
    """The newest readable manifest, but for the checkpoints that are known to be `damaged`.

    Of the arrays nothing is read, so nothing of theirs is checked.
    """
    names = [name for name in reversed(store.names()) if name not in damaged]
    found = (manifest_or_none(store, name, kind) for name in names)
    return next((manifest for manifest in found if manifest is not None), None)


def manifest_or_none(store: CheckpointStore, name: str, kind: type[M]) -> M | None:
    try:
        return _read_manifest(store.load(name, (MANIFEST, MANIFEST_SHA256)), kind)
    except DamagedCheckpoint:
        return None


def load_checkpoint(store: CheckpointStore, name: str, kind: type[M]) -> Checkpoint[M]:
    """Read and check one checkpoint."""
    files = store.load(name)
    manifest = _read_manifest(files, kind)
    for file_name, expected in manifest.sha256.items():
        content = files.get(file_name)
        if content is None:
            raise DamagedCheckpoint(f"checkpoint {name} has no {file_name}")
        if hashlib.sha256(content).hexdigest() != expected:
            raise DamagedCheckpoint(f"checkpoint {name}: {file_name} does not match its SHA-256")
    try:
        arrays = load_safetensors(files[STATE])
    except (MessageError, KeyError) as error:
        raise DamagedCheckpoint(f"checkpoint {name}: {error}") from error
    return Checkpoint(manifest, arrays, {n: files[n] for n in manifest.sha256 if n != STATE})


def newest_checkpoint(
    store: CheckpointStore,
    kind: type[M],
    damaged: Callable[[str, str], None] = lambda name, why: None,
) -> Checkpoint[M] | None:
    """The newest good checkpoint; `damaged` hears of each worse one that was passed over."""
    names = store.names()
    why = ""
    for name in reversed(names):
        try:
            return load_checkpoint(store, name, kind)
        except DamagedCheckpoint as error:
            why = str(error)
            damaged(name, why)
    if names:
        raise DamagedCheckpoint(
            f"no checkpoint of {len(names)} can be read; {why}; put a good copy "
            "back, or train a new run"
        )
    return None


def _read_manifest(files: Mapping[str, bytes], kind: type[M]) -> M:
    if MANIFEST not in files:
        raise DamagedCheckpoint(f"a checkpoint without {MANIFEST}")
    if files.get(MANIFEST_SHA256) != hashlib.sha256(files[MANIFEST]).hexdigest().encode():
        raise DamagedCheckpoint(f"{MANIFEST} does not match its SHA-256")
    try:
        manifest: M = decoder(kind).decode(files[MANIFEST])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedCheckpoint(f"{MANIFEST} is damaged: {error}") from error
    if manifest.schema != SCHEMA:
        raise DamagedCheckpoint(
            f"a checkpoint of schema version {manifest.schema}; this Rookery reads {SCHEMA}"
        )
    return manifest
