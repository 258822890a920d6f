"""Frozen players out of runs: the newest checkpoint of one, or a snapshot in its league."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.algorithms.networks import Network
from rookery.codec import Arrays
from rookery.config import RunConfig
from rookery.control.home import Home
from rookery.errors import InputError, UnknownName
from rookery.learner.checkpoint import Checkpoint, acting_arrays, newest_checkpoint
from rookery.learner.leagues import load_snapshot
from rookery.learner.store import CheckpointStore, open_store
from rookery.players.seat_map import Seating
from rookery.spaces import SeatSpec


@dataclass(frozen=True)
class Frozen:
    """Weights that will not change, and the network that they are for."""

    name: str  # RUN@number
    run: str
    policy: str
    number: int
    env_steps: int
    checkpoint: str  # the checkpoint that they are from
    network: Network
    arrays: Arrays

    def check_plays(self, seat: str, spec: SeatSpec) -> None:
        """Refuse a seat with other spaces than those it was trained in."""
        own = self.network.spec
        if (own.observation, own.action) != (spec.observation, spec.action):
            raise InputError(
                f"{self.name} cannot play seat {seat!r}: it was trained in another space "
                f"({_shapes(own)}, here {_shapes(spec)})"
            )


def snapshot_store(home: Home, run: str, config: RunConfig) -> CheckpointStore:
    uri = config.checkpoint.uri
    return open_store(f"{uri}-snapshots" if uri else f"file:{home.run_dir(run) / 'snapshots'}")


def load_frozen(
    home: Home, run: str, number: int | None = None, policy: str | None = None
) -> Frozen:
    """A run's weights: of update `number` if that is in its league, else the newest."""
    state = home.state(run)
    config, spec = home.config(state), home.spec(state)
    seating = Seating.of(config, spec)
    policy = policy or config.learning[0]
    if policy not in seating.spaces:
        raise UnknownName("policy", policy, seating.spaces, f"(of run {run})")
    network = Network(seating.spaces[policy], config.all_policies[policy].network)
    checkpoint = newest_of(home, run)
    manifest = checkpoint.manifest
    if number is None or number == manifest.number:
        return Frozen(
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
            arrays = load_snapshot(snapshot_store(home, run, config), snapshot.file)
            return Frozen(
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


def newest_of(home: Home, run: str) -> Checkpoint:
    config = home.config(home.state(run))
    found = newest_checkpoint(open_store(home.checkpoint_uri(run, config)))
    if found is None:
        raise InputError(f"run {run} has no checkpoint yet: train it for some seconds first")
    return found


def _shapes(spec: SeatSpec) -> str:
    seen = ", ".join(f"{leaf.path or 'observation'}{list(leaf.shape)}" for leaf in spec.observation)
    return f"{seen} -> {type(spec.action).__name__}"
