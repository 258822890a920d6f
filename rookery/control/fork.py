"""A run that begins where another one was: its weights, optimiser, statistics and counters.

    fork = open_fork(files_of_the_parent, version, config, spec)    # what is wrong with it, at once
    fork.begin(files_of_the_new_run)                                # before its CreateRun is sent

The checkpoint is copied, so the new run needs nothing of its parent any more. What its config
changes takes hold where the shapes allow it; the steps that its parent trained are counted as they
were: produced once, trained once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from rookery.algorithms.policies import ORDER, initial_weights
from rookery.checkpoints.checkpoint import (
    Checkpoint,
    load_checkpoint,
    manifest_or_none,
    newest_checkpoint,
    save_checkpoint,
)
from rookery.checkpoints.policies import RunFiles
from rookery.checkpoints.store import CheckpointStore, open_store
from rookery.config.kinds import ALGORITHMS
from rookery.config.models import ParentConfig, RunConfig
from rookery.control.home import Home
from rookery.errors import InputError, UnknownName
from rookery.learner.credits import CreditBook
from rookery.learner.ledger import Ledger
from rookery.learner.manifest import (
    LearnerManifest,
    check_own,
    pending_fragments,
    pending_name,
)
from rookery.learner.report import Window
from rookery.messages import ActorId, CheckpointSaved
from rookery.messages.fragment import Fragment, FragmentHeader, encode_fragment
from rookery.messages.frame import Arrays
from rookery.players.seat_map import Seating
from rookery.spaces import EnvironmentSpec
from rookery.worker.policies import policy_setups

PLAYED_BY = ("environment", "actors", "seats", "seat_map", "policies", "network", "launcher")
"""Parts of a config that say how an actor plays: with others its games are begun anew."""
BATCHED_BY = ("algorithm", "actors", "learner", "policies")
"""Parts that say how a batch is cut into minibatches."""


@dataclass(frozen=True)
class Fork:
    """A checkpoint of a run, as another one with this config may begin with it."""

    run: str
    checkpoint: Checkpoint[LearnerManifest]
    snapshots: str  # URI of the parent's store
    config: RunConfig  # of the new run
    spec: EnvironmentSpec
    same_play: bool
    same_batches: bool

    @property
    def version(self) -> int:
        return self.checkpoint.manifest.number

    @property
    def summary(self) -> str:
        trained = self.checkpoint.manifest.ledger.trained
        return f"{self.run}@{self.version} at {trained:,} steps"

    def begin(self, child: RunFiles) -> CheckpointSaved:
        """Write the new run's first checkpoint, and the snapshots that it may read. What the same
        command left there when it was interrupted is replaced."""
        theirs = self.checkpoint.manifest
        store = open_store(child.checkpoints)
        _clear(store, child.run)
        if theirs.snapshots:
            _copy(open_store(self.snapshots), open_store(child.snapshots), theirs.snapshots)
        pending = self._pending(child.run)
        files = {pending_name(i): encode_fragment(f) for i, f in enumerate(pending)}
        manifest = self._manifest(child.run, pending)
        checkpoint = Checkpoint(manifest, self._arrays(), files)
        save_checkpoint(store, checkpoint, self.config.checkpoint.keep)
        return CheckpointSaved(
            run=child.run,
            name=checkpoint.name,
            env_steps=theirs.ledger.trained,
            updates=theirs.number,
            mean_return_100=_mean_return(theirs.windows.get(self.config.learning[0])),
            train_s=theirs.train_s,
        )

    def _pending(self, run: str) -> list[Fragment]:
        """What was played and not yet trained, if it fits; its actors are none of the new run's,
        whose incarnations begin at 1."""
        fits = self.same_play and self._leaves_time()
        found = pending_fragments(self.checkpoint) if fits else []
        return [f._replace(header=_inherited(f.header, run)) for _, f in found]

    def _leaves_time(self) -> bool:
        """Whether batches are as large, and may be as old, as those that it was played for."""
        book, learner = self.checkpoint.manifest.book, self.config.learner
        larger = learner.fragments_per_batch >= book.fragments_per_batch
        return larger and learner.max_policy_lag_versions >= book.max_lag

    def _manifest(self, run: str, pending: list[Fragment]) -> LearnerManifest:
        theirs, learner = self.checkpoint.manifest, self.config.learner
        trained, waiting = theirs.ledger.trained, sum(f.header.steps for f in pending)
        name = f"{self.run}@{self.version}"
        return msgspec.structs.replace(
            theirs,
            run=run,
            position=(),
            ledger=Ledger(trained=trained, seen={name: trained + waiting}),
            book=CreditBook(learner.fragments_per_batch, learner.max_policy_lag_versions),
            windows={p: theirs.windows.get(p, Window()) for p in self.config.learning},
            pending=len(pending),
            pending_steps=waiting,
            hyperparameters={},
            threads=learner.threads,
        )

    def _arrays(self) -> Arrays:
        """Without what the new config makes otherwise: where its actor was, the order of rows."""
        gone = () if self.same_play else ("actor/",)
        ends = () if self.same_batches else (f"/{ORDER}",)
        arrays = self.checkpoint.arrays
        return {
            name: array
            for name, array in arrays.items()
            if not name.startswith(gone) and not name.endswith(ends)
        }


def open_fork(
    files: RunFiles, version: int | None, config: RunConfig, spec: EnvironmentSpec
) -> Fork:
    """The parent's checkpoint, if the config fits it; else what is wrong, in one line."""
    if config.checkpoint.uri and config.checkpoint.uri == files.config.checkpoint.uri:
        raise InputError(
            f"checkpoint.uri {config.checkpoint.uri} is that of {files.run}: give the fork another"
        )
    checkpoint = _checkpoint(files, version)
    fork = Fork(
        files.run,
        checkpoint,
        files.snapshots,
        config,
        spec,
        _same(files.config, config, PLAYED_BY) and files.config.seed == config.seed,
        _same(files.config, config, BATCHED_BY) and _as_many(checkpoint.manifest, config),
    )
    name = f"{files.run}@{fork.version}"
    _check_algorithms(name, files.config, config)
    _check_shapes(name, checkpoint.arrays, config, spec)
    _check_bounds(name, checkpoint.manifest, config)
    return fork


def pinned(home: Home, parent: ParentConfig) -> dict[str, Any]:
    """The id and the version that are meant now: `last` and the newest may be others later."""
    files = home.find_files(parent.run)
    return {"run": files.run, "version": _checkpoint(files, parent.version).manifest.number}


def _checkpoint(files: RunFiles, version: int | None) -> Checkpoint[LearnerManifest]:
    store = open_store(files.checkpoints)
    if version is None:
        found = newest_checkpoint(store, LearnerManifest)
        if found is None:
            raise InputError(
                f"run {files.run} has no checkpoint yet: train it for some seconds first"
            )
        return found
    kept = {_number(name): name for name in store.names()}
    if version not in kept:
        names = [f"{files.run}@{number}" for number in kept]
        hint = "A run keeps its newest checkpoints: checkpoint.keep says how many."
        raise UnknownName("version", f"{files.run}@{version}", names, hint)
    return load_checkpoint(store, kept[version], LearnerManifest)


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _check_algorithms(name: str, old: RunConfig, new: RunConfig) -> None:
    for policy in new.learning:
        if policy not in old.learning:
            raise InputError(
                f"{name} has no policy {policy!r} that learned: it has {', '.join(old.learning)}"
            )
        kinds = (old.all_policies[policy].algorithm.kind, new.all_policies[policy].algorithm.kind)
        if kinds[0] != kinds[1] and not all(kind in ALGORITHMS for kind in kinds):
            raise InputError(
                f"{name} learned by {kinds[0]}: what that keeps beside the weights is not what "
                f"{kinds[1]} needs; keep algorithm.kind"
            )


def _check_shapes(name: str, arrays: Arrays, config: RunConfig, spec: EnvironmentSpec) -> None:
    """The first layer that differs is named."""
    setups = policy_setups(config, Seating.of(config, spec))
    weights = initial_weights([setups[policy] for policy in config.learning], config.seed)
    for policy, parts in weights.items():
        for part, wanted in zip(("params", "stats"), parts, strict=True):
            here = {f"{policy}/{part}/{layer}": array.shape for layer, array in wanted.items()}
            there = {n: a.shape for n, a in arrays.items() if n.startswith(f"{policy}/{part}/")}
            for layer in (*here, *there):
                if here.get(layer) != there.get(layer):
                    raise InputError(
                        f"{name} does not fit: layer {layer} is {_shape(there.get(layer))} there "
                        f"and {_shape(here.get(layer))} here; keep its network and its environment"
                    )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else f"{list(shape)}"


def _check_bounds(name: str, manifest: LearnerManifest, config: RunConfig) -> None:
    """A fork counts on: bounds that its parent has reached would end it at once."""
    stop, trained = config.stop, manifest.ledger.trained
    if stop.steps is not None and trained >= stop.steps:
        raise InputError(
            f"{name} was trained for {trained:,} steps, and stop.steps={stop.steps:,} counts them: "
            f"ask for more, like --steps {2 * trained}"
        )
    if stop.minutes is not None and manifest.train_s >= 60 * stop.minutes:
        raise InputError(
            f"{name} was trained for {manifest.train_s / 60:.1f} minutes, and stop.minutes="
            f"{stop.minutes:g} counts them: ask for more with --minutes"
        )


def _inherited(header: FragmentHeader, run: str) -> FragmentHeader:
    actor = ActorId.parse(header.actor)
    name = header.actor if actor is None else str(actor._replace(incarnation=0))
    return msgspec.structs.replace(header, run=run, actor=name)


def _same(old: RunConfig, new: RunConfig, parts: tuple[str, ...]) -> bool:
    return all(getattr(old, part) == getattr(new, part) for part in parts)


def _as_many(manifest: LearnerManifest, config: RunConfig) -> bool:
    """Whether a batch is what it was last: a run that was scaled had another than its config."""
    learner = config.learner
    return (manifest.book.fragments_per_batch, manifest.learners) == (
        learner.fragments_per_batch,
        learner.count,
    )


def _clear(store: CheckpointStore, run: str) -> None:
    """Nobody trains on them: the run is not in the log yet."""
    found = {name: manifest_or_none(store, name, LearnerManifest) for name in store.names()}
    for name, manifest in found.items():
        if manifest is not None:
            check_own(manifest, run)
            store.delete(name)


def _copy(source: CheckpointStore, target: CheckpointStore, names: list[str]) -> None:
    there, here = set(source.names()), set(target.names())
    for name in names:
        if name in there and name not in here:
            target.save(name, source.load(name))


def _mean_return(window: Window | None) -> float | None:
    return None if window is None else window.mean_return
