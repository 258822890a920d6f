"""What a learner writes into its checkpoints, besides arrays."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rookery.bus import Position
from rookery.checkpoints.checkpoint import Checkpoint, Manifest
from rookery.config.models import RunConfig
from rookery.errors import InputError
from rookery.learner.credits import CreditBook
from rookery.learner.league import LeagueState
from rookery.learner.ledger import Ledger
from rookery.learner.report import Window
from rookery.messages.fragment import Fragment, decode_fragment


class LearnerManifest(Manifest, kw_only=True):
    """Everything that a learner goes on from, but for the arrays."""

    ancestry: dict[int, int]  # generation -> the update it began at
    position: Position  # in `experiences`
    ledger: Ledger
    book: CreditBook
    windows: dict[str, Window]  # by policy
    train_s: float
    pending: int  # fragments of half-built batches, each a file
    league: LeagueState | None  # None: the environment has one seat
    threads: int  # the size of XLA's pool: another size may change the last bits
    hyperparameters: dict[str, float] = msgspec.field(default_factory=dict)  # as last told
    pending_steps: int | None = None  # of those fragments; None: an older Rookery did not say
    snapshots: list[str] | None = None  # the files that going on from here may read; None: as above
    learners: int = 1  # of the crew that saved it: the next order of minibatches is theirs

    @classmethod
    def beginning(cls, run: str, config: RunConfig, has_league: bool) -> LearnerManifest:
        """Of a run that has not been trained yet."""
        learner = config.learner
        return cls(
            run=run,
            generation=0,
            number=0,
            ancestry={},
            position=(),
            ledger=Ledger(),
            book=CreditBook(learner.fragments_per_batch, learner.max_policy_lag_versions),
            windows={policy: Window() for policy in config.learning},
            train_s=0.0,
            pending=0,
            league=LeagueState() if has_league else None,
            threads=learner.threads,
        )


def check_own(manifest: LearnerManifest, run: str) -> None:
    """Raise for another run's: a store is for one run alone."""
    if manifest.run != run:
        raise InputError(
            f"where {run} keeps its checkpoints there are those of run {manifest.run}: give each "
            "a checkpoint.uri of its own"
        )


def snapshots_needed(kept: Sequence[LearnerManifest | None]) -> set[str] | None:
    """The snapshots of all checkpoints that are kept; None: one of them does not say."""
    found: set[str] = set()
    for manifest in kept:
        if manifest is None or manifest.snapshots is None:
            return None
        found.update(manifest.snapshots)
    return found


def pending_fragments(
    checkpoint: Checkpoint[LearnerManifest] | None,
) -> list[tuple[bytes, Fragment]]:
    """The fragments of half-built batches."""
    if checkpoint is None:
        return []
    files, arrays = checkpoint.files, checkpoint.arrays
    payloads = [
        files[name] if (name := pending_name(i)) in files else arrays[f"pending/{i}"].tobytes()
        for i in range(checkpoint.manifest.pending)  # in the state of an older Rookery
    ]
    return [(payload, decode_fragment(payload)) for payload in payloads]


def pending_name(index: int) -> str:
    return f"pending-{index}"
