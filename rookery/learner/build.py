"""Who exists in a learner and who is handed what: one wiring for every launcher and every bus.

`wait_s` is how long the learner may sleep on the bus; in an inline run it is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rookery.algorithms import algorithm_of
from rookery.algorithms.batch import blank
from rookery.algorithms.policies import PolicySetup, initial_weights
from rookery.bus import EARLIEST
from rookery.checkpoints.checkpoint import acting_arrays, newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.config.kinds import ALGORITHMS
from rookery.learner.bookkeeping import Bookkeeper
from rookery.learner.generations import Branch, claim
from rookery.learner.inbox import Inbox
from rookery.learner.league import LearnerLeague
from rookery.learner.loop import Updated, learn
from rookery.learner.manifest import LearnerManifest, check_own, pending_fragments
from rookery.learner.report import Report
from rookery.learner.scaling import Scaling
from rookery.learner.transport import LearnerTransport
from rookery.learner.walk_ins import WalkIns
from rookery.messages import CheckpointDamaged
from rookery.worker.context import RunContext
from rookery.worker.policies import delivery_bytes, layouts, networks, policy_setups
from rookery.worker.xla import device_used

if TYPE_CHECKING:
    from rookery.learner.leader import Muster

AHEAD_BYTES = 32 << 20  # of a batch, beyond which no second one is held beside it


@dataclass
class Learner:
    """A learner with its parts in place."""

    bookkeeper: Bookkeeper
    loop: Iterator[Updated | None]


def build_learner(
    context: RunContext,
    at_least: int,
    wait_s: float,
    stopped: Callable[[], bool] = lambda: False,
    muster: Muster | None = None,
) -> Learner:
    """The learner, going on from the newest good checkpoint if there is one; with `muster` it leads
    a crew.

    The first weights go out before anything is compiled: actors get ready meanwhile.
    """
    run, config = context.run, context.config
    nets = networks(config, context.seating)
    setups = policy_setups(config, context.seating)
    store = open_store(context.files.checkpoints)

    def damaged(name: str, why: str) -> None:
        context.record(CheckpointDamaged(run=run, name=name, why=why))

    checkpoint = newest_checkpoint(store, LearnerManifest, damaged)
    begun = initial_weights([setups[p] for p in config.learning], config.seed)
    begun = initial_weights(list(setups.values()), config.seed) | begun
    arrays = {p: nets[p].acting_arrays(*begun[p]) for p in setups}
    if checkpoint is None:
        manifest = LearnerManifest.beginning(run, config, context.seating.has_league)
    else:
        manifest = checkpoint.manifest
        check_own(manifest, run)
        arrays |= {p: acting_arrays(nets[p], checkpoint.arrays, p) for p in config.learning}
    generation = claim(context.bus, max(at_least, manifest.generation + 1))
    manifest.ancestry[generation] = manifest.number
    inbox = Inbox(
        context.bus,
        manifest.book,
        manifest.ledger,
        Branch(manifest.ancestry),
        manifest.position or EARLIEST,
        pending_fragments(checkpoint),
        wait_s,
        _walk_ins(context, [setups[p] for p in config.learning]),
        orders=context.orders,
        trusted=context.trusted,
    )
    interval_s = config.learner.publish_interval_s
    transport = LearnerTransport(context.bus, run, inbox, generation, manifest.number, interval_s)
    league, pools = None, None
    if manifest.league is not None:
        league = LearnerLeague(
            config,
            manifest.league,
            open_store(context.files.snapshots),
            generation,
            lambda: inbox.ledger.trained,
        )
        pools = league.begin(manifest.number, arrays)
    transport.announce(arrays, pools)

    crew = muster(generation) if muster is not None else None
    from rookery.learner.trainer import Trainer  # imports JAX

    def batches_of(fragments: int) -> list[PolicySetup]:
        lanes = layouts(config, context.seating)
        return [replace(setups[p], lanes=lanes[p].lanes * fragments) for p in config.learning]

    trainer = Trainer(
        batches_of(inbox.book.fragments_per_batch), config.actors.rollout_steps, config.seed, crew
    )
    if checkpoint is not None:
        trainer.restore(checkpoint.arrays, manifest.learners)
    learners = 1 if crew is None else crew.size
    transport.critics = trainer.critic_arrays
    if league is not None:
        league.reset = trainer.reset
    device = device_used("cpu" if crew else config.learner.device) + f" x {learners}" * bool(crew)
    report = Report(run, manifest.windows, len(context.spec.seats), manifest.train_s, device)
    if wait_s and inbox.receive(transport.number, wait_s=0.0):
        transport.grant()  # the first fragments are played while the update compiles
        report.begin()
    trainer.compile()
    each = delivery_bytes(config, context.seating)
    bookkeeper = Bookkeeper(
        context.bus,
        config,
        store,
        inbox,
        trainer,
        transport,
        report,
        league,
        checkpoint,
        each,
        learners,
    )
    ahead = min(1, config.learner.max_policy_lag_versions)
    large = each * inbox.book.fragments_per_batch > AHEAD_BYTES
    if large or league is not None or not wait_s:  # a league may let a policy begin anew
        ahead = 0
    ours = config.algorithm.kind in ALGORITHMS
    scaling = Scaling(
        inbox,
        config.learner,
        ours and algorithm_of(config.algorithm).corrects_staleness,
        lambda fragments: trainer.reshape(batches_of(fragments)),
        transport.grant,
    )
    if muster is not None:
        stopped = muster.stopped
    loop = learn(
        inbox, trainer, transport, bookkeeper.progress, league, stopped, ahead, scaling.holds
    )
    return Learner(bookkeeper, loop)


def _walk_ins(context: RunContext, learning: Sequence[PolicySetup]) -> WalkIns:
    """Walk-ins are filled up to the shape of the actors' fragments."""
    found = layouts(context.config, context.seating)
    algorithms = {setup.name: algorithm_of(setup.algorithm) for setup in learning}
    return WalkIns(
        {s.name: blank(s.network, found[s.name].rows, found[s.name].lanes) for s in learning},
        context.config.learner.walk_in_places,
        all(algorithm.corrects_staleness for algorithm in algorithms.values()),
        frozenset(name for name, a in algorithms.items() if not a.needs_log_prob),
    )
