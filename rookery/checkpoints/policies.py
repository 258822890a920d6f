"""Policies out of runs: the newest checkpoint of one, or a snapshot in its league."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rookery.algorithms.networks import Network
from rookery.checkpoints.checkpoint import (
    Checkpoint,
    Manifest,
    acting_arrays,
    newest_checkpoint,
    newest_manifest,
)
from rookery.checkpoints.store import CheckpointStore, open_store
from rookery.config.models import RunConfig
from rookery.errors import InputError, UnknownName
from rookery.league import League
from rookery.messages.frame import Arrays
from rookery.messages.weights import decode_weights
from rookery.players.member import LoadWeights, PolicyWeights
from rookery.players.names import PlayerName
from rookery.players.seat_map import Seating
from rookery.spaces import EnvironmentSpec, SeatSpec

WEIGHTS_FILE = "weights.rkry"  # of a snapshot


@dataclass(frozen=True)
class RunFiles:
    """A run as its weights know it: what it is, and where they are kept."""

    run: str
    config: RunConfig
    spec: EnvironmentSpec
    checkpoints: str  # URI of the store
    snapshots: str  # URI of the store


FindRun = Callable[[str], RunFiles]
"""A run by its id, a unique prefix of one, or `last`."""


class _Trained(msgspec.Struct):
    trained: int


class _KeptLeague(msgspec.Struct):
    league: League


class PolicyManifest(Manifest, kw_only=True):
    """What whoever plays with a checkpoint needs of it."""

    ledger: _Trained
    league: _KeptLeague | None


@dataclass(frozen=True)
class FrozenPolicy:
    """Weights that will not change, and the network that they are for."""

    name: str  # RUN@number
    run: str
    policy: str
    number: int
    env_steps: int
    checkpoint: str  # the checkpoint that they are from
    network: Network
    arrays: Arrays

    def for_seat(self, seat: str, spec: SeatSpec, name: str = "") -> PolicyWeights:
        """What plays there; a seat with other spaces than those of its training is refused."""
        own = self.network.spec
        if (own.observation, own.action) != (spec.observation, spec.action):
            raise InputError(
                f"{self.name} cannot play seat {seat!r}: it was trained in another space "
                f"({_shapes(own)}, here {_shapes(spec)})"
            )
        return PolicyWeights(name or self.name, self.network, self.arrays)


def load_policy(
    files: RunFiles, number: int | None = None, policy: str | None = None
) -> FrozenPolicy:
    """A run's weights: of update `number` if that is in its league, else the newest."""
    run, config = files.run, files.config
    seating = Seating.of(config, files.spec)
    policy = policy or config.learning[0]
    if policy not in seating.spaces:
        raise UnknownName("policy", policy, seating.spaces, f"(of run {run})")
    network = Network(seating.spaces[policy], config.all_policies[policy].network)
    checkpoint = newest_of(files)
    manifest = checkpoint.manifest
    if number is None or number == manifest.number:
        return FrozenPolicy(
            f"{run}@{manifest.number}",
            run,
            policy,
            manifest.number,
            manifest.ledger.trained,
            checkpoint.name,
            network,
            acting_arrays(network, checkpoint.arrays, policy),
        )
    pool = manifest.league.league.pool(policy) if manifest.league is not None else []
    for snapshot in pool:
        if snapshot.number == number:
            arrays = load_snapshot(open_store(files.snapshots), snapshot.file)
            return FrozenPolicy(
                f"{run}@{number}",
                run,
                policy,
                number,
                snapshot.env_steps,
                snapshot.file,
                network,
                arrays,
            )
    known = [str(each.number) for each in pool] + [str(manifest.number)]
    raise UnknownName("version", f"{run}@{number}", [f"{run}@{n}" for n in known])


def frozen_weights(find: FindRun) -> LoadWeights:
    """For players called `RUN` or `RUN@340`: its newest weights, or those of the version."""

    def load(name: PlayerName, seat: str, spec: SeatSpec) -> PolicyWeights:
        run, number = name.run
        return load_policy(find(run), number).for_seat(seat, spec)

    return load


def newest_of(files: RunFiles) -> Checkpoint[PolicyManifest]:
    found = newest_checkpoint(open_store(files.checkpoints), PolicyManifest)
    if found is None:
        raise InputError(f"run {files.run} has no checkpoint yet: train it for some seconds first")
    return found


def newest_manifest_of(files: RunFiles) -> PolicyManifest:
    """Without the weights; where none can be read, the error says why."""
    found = newest_manifest(open_store(files.checkpoints), PolicyManifest)
    return found or newest_of(files).manifest


def load_snapshot(store: CheckpointStore, file: str) -> Arrays:
    """The weights of a snapshot, by its file's name."""
    return decode_weights(store.load(file)[WEIGHTS_FILE]).arrays


def _shapes(spec: SeatSpec) -> str:
    seen = ", ".join(f"{leaf.path or 'observation'}{list(leaf.shape)}" for leaf in spec.observation)
    return f"{seen} -> {type(spec.action).__name__}"
